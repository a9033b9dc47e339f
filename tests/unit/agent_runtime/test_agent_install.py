"""Installing an agent with the real pip, from a wheel made here: whole or not there, once, and for every user to read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from agent_runtime.agents.install import MANIFEST, find_installed, install_agent
from agent_runtime.agents.spec import AgentSpec, load_agent, read_spec
from rock_env.errors import InfraError, Unimplemented

SOURCE = "import sys\n\n\ndef main():\n    print('hello', *sys.argv)\n    return 3\n"


def own_agent(version: str = "1.0") -> AgentSpec:
    return read_spec(
        f"""
        name: greeter
        version: "{version}"
        about: says hello
        dialect: chat
        install: {{pip: ["ale-greeter=={version}"], program: "ale_greeter:main"}}
        command: ["{{prompt}}"]
        """,
        source="test",
    )


def wheel(folder: Path, name: str, source: str, needs: str = "") -> None:
    """Write a wheel of one module."""
    info = f"{name}-1.0.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {name: hashlib.sha256(text.encode()).digest() for name, text in files.items()}
    record = [f"{n},sha256={base64.urlsafe_b64encode(d).decode().rstrip('=')}," for n, d in digests.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip looks at."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "ale_greeter", SOURCE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_what_is_installed_runs_without_any_other_package(wheels: Path, tmp_path: Path) -> None:
    spec = own_agent()
    root = install_agent(spec, tmp_path / "shelf")
    assert json.loads((root / MANIFEST).read_text())["packages"] == {"ale_greeter": "1.0"}
    argv = [sys.executable, *spec.argv({"root": str(root), "prompt": "you"})[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "hello greeter you\n"), done.stderr
    assert all(path.stat().st_mode & 0o004 for path in root.rglob("*"))
    assert not any(path.stat().st_mode & 0o022 for path in root.rglob("*") if path.is_file())


def test_a_second_install_changes_nothing_and_needs_no_pip(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = install_agent(own_agent(), tmp_path / "shelf")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert install_agent(own_agent(), tmp_path / "shelf") == root
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_several_installs_at_once_make_one(wheels: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    with ThreadPoolExecutor(3) as pool:
        roots = set(pool.map(lambda _: install_agent(own_agent(), shelf), range(3)))
    assert roots == {shelf / own_agent().folder}
    assert [path.name for path in shelf.iterdir() if not path.name.startswith(".lock")] == [
        own_agent().folder
    ]


def test_a_failed_install_leaves_no_agent_and_says_what_pip_said(wheels: Path, tmp_path: Path) -> None:
    shelf, spec = tmp_path / "shelf", own_agent("2.0")
    with pytest.raises(InfraError, match=r"ale-greeter==2\.0"):
        install_agent(spec, shelf)
    assert find_installed(spec, shelf) is None
    assert all(path.name.startswith((".lock", ".fetched")) for path in shelf.iterdir())


def test_an_install_says_what_it_does_and_how_far_it_is(wheels: Path, tmp_path: Path) -> None:
    told: list[str] = []
    install_agent(own_agent(), tmp_path / "shelf", told.append)
    what = "pip, which fetches ale-greeter==1.0"
    assert [said for said in told if said.startswith("pip")] == [
        what,
        f"{what}: 1 package so far",
        f"{what}: it unpacks 1",
    ]


NPM = """#!/bin/sh
for word; do
  case $word in --cache=*) cache=${word#--cache=};; esac
  [ "$before" = --prefix ] && folder=$word
  before=$word
done
mkdir -p "$folder/node_modules/mine" "$cache"
echo "npm http fetch GET 200 https://registry.example/mine 9ms (cache miss)"
echo "npm http fetch GET 200 https://registry.example/mine/-/mine-1.0.0.tgz 9ms (cache miss)"
echo "npm http fetch GET 200 https://registry.example/left/-/left-1.0.0.tgz 9ms (cache miss)"
if [ -e "$cache/once" ]; then
  echo "#!/bin/sh" > "$folder/node_modules/mine/cli.js"
  echo '{"packages": {"node_modules/mine": {"version": "1.0.0"}}}' > "$folder/node_modules/.package-lock.json"
else
  touch "$cache/once"
  echo "npm ERR! the network broke"
  exit 1
fi
"""


def test_npm_is_heard_and_goes_on_with_what_it_had_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(NPM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    spec = read_spec(
        """
        name: mine
        version: "1.0.0"
        about: says nothing
        dialect: chat
        install: {npm: ["mine@1.0.0"], program: npm/node_modules/mine/cli.js}
        command: ["{prompt}"]
        """,
        source="test",
    )
    told: list[str] = []
    with pytest.raises(InfraError, match=r"ended with 1: npm ERR! the network broke$"):
        install_agent(spec, tmp_path / "shelf", told.append)
    assert told[-1] == "npm, which fetches mine@1.0.0: 2 packages so far"
    root = install_agent(spec, tmp_path / "shelf")
    assert json.loads((root / MANIFEST).read_text())["packages"] == {"mine": "1.0.0"}
    assert not list(root.parent.glob(".fetched*"))


class _Index(SimpleHTTPRequestHandler):
    """A package index whose `down` files cannot be had."""

    asked: ClassVar[Counter[str]] = Counter()
    down: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        self.asked[name] += 1
        if name in self.down:
            self.send_error(404)
        elif self.path.endswith(".whl"):
            super().do_GET()
        else:
            wheel = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
            body = f'<a href="/{wheel}">{wheel}</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600" if self.path.endswith(".whl") else "no-cache")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_what_was_fetched_before_an_interruption_is_not_fetched_again(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(wheels, "ale_greeter", SOURCE, needs="ale-helper")
    wheel(wheels, "ale_helper", "")
    _Index.asked, _Index.down = Counter(), {"ale_helper-1.0-py3-none-any.whl"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Index, directory=str(wheels)))
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")  # of others without TLS pip keeps nothing
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    try:
        with pytest.raises(InfraError, match="404"):
            install_agent(own_agent(), tmp_path / "shelf")
        _Index.down = set()
        install_agent(own_agent(), tmp_path / "shelf")
    finally:
        server.shutdown()
        server.server_close()
    fetched = {name: count for name, count in _Index.asked.items() if name.endswith(".whl")}
    assert fetched == {"ale_greeter-1.0-py3-none-any.whl": 1, "ale_helper-1.0-py3-none-any.whl": 2}


def test_what_a_killed_install_left_is_removed_by_the_next(wheels: Path, tmp_path: Path) -> None:
    shelf, spec = tmp_path / "shelf", own_agent()
    remains = shelf / f".part-{spec.folder}-x"
    (remains / "pip").mkdir(parents=True)
    install_agent(spec, shelf)
    assert not remains.exists()


def test_an_agent_that_is_gone_is_reported_not_faked(tmp_path: Path) -> None:
    with pytest.raises(Unimplemented, match="its service closed"):
        install_agent(load_agent("iflow"), tmp_path)
    assert not list(tmp_path.iterdir())
