"""Process boxes of a server that is not root: one user namespace for all, the same fence."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pydantic
import pytest

import rock_env
from rock_env.backends.process import cgroups

NOBODY = 65534
PACKAGES = {str(Path(module.__file__ or "").resolve().parents[1]) for module in (rock_env, pydantic)}
SCRIPT = """
import asyncio, logging, os, sys
from pathlib import Path
from rock_env.backends.process.backend import ProcessBackend
from rock_env.spec import Resources, SandboxSpec
logging.disable()
SPEC = SandboxSpec(resources=Resources(disk_bytes=8 << 20))

async def out(box, script):
    result = await box.exec(["bash", "-c", script])
    return (result.stdout + result.stderr).decode()

async def main():
    assert os.geteuid() != 0
    server = ProcessBackend(root=Path(sys.argv[1]), isolation="namespaces")
    box = await server.create(SPEC, sandbox_id="box", durable=True)
    print(await out(box, "id -u; grep -h CapBnd /proc/self/status"), end="")
    print(await out(box, "head -c 6M /dev/zero > big; head -c 6M /dev/zero > more; rm big more"), end="")
    await out(box, "mkdir a; echo 1 > a/gone; echo 2 > a/kept; echo x > shut; chmod 0 shut; ln a/kept same")
    print(await out(box, "touch /home/x /opt/x /etc/x 2>&1 | grep -c 'Read-only file system'"), end="")
    print(await out(box, "(echo > /.files/upper/x) 2>&1 | grep -c Read-only; cat /proc/1/mem 2>&1 | grep -c denied"), end="")
    await server.snapshot("box", snapshot_id="one")
    fork = await server.create(SPEC, sandbox_id="fork", snapshot="one")
    await out(fork, "rm a/gone; rm -r a/kept; mkdir b")
    await server.snapshot("fork", snapshot_id="two")
    await server.let_go()
    server = ProcessBackend(root=Path(sys.argv[1]), isolation="namespaces")
    again = await server.adopt("box", spec=SPEC)
    await server.snapshot("box", snapshot_id="three")
    for layer in ("two", "three"):
        made = await server.create(SPEC, sandbox_id=layer, snapshot=layer)
        print(await out(made, "find . | sort | tr '\\\\n' ' '; stat -c %a shut; chmod 600 shut; cat shut"), end="")
    await server.adopt("fork", spec=SPEC)
    assert set(await server.census()) == {"box", "two", "three"}
    await server.close()
    server = ProcessBackend(root=Path(sys.argv[1]))
    for layer in ("two", "one", "three"):
        await server.delete_snapshot(layer)
    await server.close()
    print(os.listdir(sys.argv[1]))

asyncio.run(main())
"""

WORKER = """
import asyncio, os, subprocess, sys
from rock_env.env_workers.fencing import Fencing, how_it_ended
from rock_env.env_workers.worker_view import WorkerView

INSIDE = '''
import os, sys
sys.stdout = sys.stderr
print(os.getuid(), os.getppid())
for act in (lambda: os.kill(int(sys.argv[1]), 0), lambda: open(sys.argv[2]), lambda: os.mkdir("/usr/x")):
    try:
        act()
    except OSError as error:
        print(type(error).__name__)
if os.fork() == 0:
    os._exit(0)
os.kill(os.getpid(), 11)
'''

async def main():
    open(sys.argv[1] + "/secret", "w").close()
    fence = await Fencing(lambda: WorkerView((), ()), "always").of()
    inside = [sys.executable, "-c", INSIDE, str(os.getpid()), sys.argv[1] + "/secret"]
    done = subprocess.run(fence.command(inside, 1 << 30), env=fence.view.variables(os.environ), stderr=subprocess.PIPE)
    print(done.stderr.decode(), end="")
    print(how_it_ended(done.returncode, fence))

asyncio.run(main())
"""


@pytest.fixture
def interpreter() -> list[str]:
    """Return a Python that another user can start, too."""
    if os.geteuid() != 0:
        return [sys.executable]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        test = [candidate, "-c", "import pydantic, rock_env"]
        with_packages = {"PYTHONPATH": os.pathsep.join(PACKAGES)}
        try:
            done = subprocess.run(
                test, env=with_packages, user=NOBODY, group=NOBODY, cwd="/", capture_output=True, check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return [candidate]
    pytest.skip(
        f"no {version} that user {NOBODY} can start and that finds pydantic (Debian: apt install python3)"
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder that the other user owns; those of pytest are closed to it."""
    made = Path(tempfile.mkdtemp(prefix="rock-test-"))
    if os.geteuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


def ran(interpreter: list[str], folder: Path, script: str) -> list[str]:
    """Run a script as the other user; return its lines."""
    with contextlib.suppress(OSError):
        cgroups.find()  # as another server of this machine, which is root, has left it
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(  # type: ignore[call-overload]
        [*interpreter, "-c", script, str(folder)],
        env={"PYTHONPATH": os.pathsep.join(PACKAGES), "PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **other,
    )
    if "cannot isolate sandboxes" in done.stderr or "cannot be fenced in" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_same_box_without_privileges(interpreter: list[str], folder: Path) -> None:
    assert ran(interpreter, folder, SCRIPT) == [
        "1000",
        "CapBnd:\t0000000000000000",
        "head: error writing 'standard output': No space left on device",
        "3",
        "1",
        "1",
        ". ./a ./b ./same ./shut 0",
        "x",
        ". ./a ./a/gone ./a/kept ./same ./shut 0",
        "x",
        "[]",
    ]


def test_the_same_worker_without_privileges(interpreter: list[str], folder: Path) -> None:
    refused = ["ProcessLookupError", "FileNotFoundError", "OSError"]
    assert ran(interpreter, folder, WORKER) == ["1000 1", *refused, "it was killed by signal 11"]
