"""Installing an agent with the real pip, from a wheel made here: whole or not there, once, and for every user to read."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip looks at."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "ale_greeter-1.0.dist-info"
    files = {
        "ale_greeter.py": SOURCE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: ale-greeter\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {name: hashlib.sha256(text.encode()).digest() for name, text in files.items()}
    record = [f"{n},sha256={base64.urlsafe_b64encode(d).decode().rstrip('=')}," for n, d in digests.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"])
    with zipfile.ZipFile(folder / "ale_greeter-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
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


def test_a_failed_install_leaves_nothing_and_says_what_pip_said(wheels: Path, tmp_path: Path) -> None:
    shelf, spec = tmp_path / "shelf", own_agent("2.0")
    with pytest.raises(InfraError, match=r"ale-greeter==2\.0"):
        install_agent(spec, shelf)
    assert find_installed(spec, shelf) is None
    assert all(path.name.startswith(".lock") for path in shelf.iterdir())


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
