"""Programs that a box's warm interpreter runs, against the same programs in an interpreter of their own; on real boxes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from fences import why_not_isolated

from rock_env.backends.process.backend import ProcessBackend, ProcessBox
from rock_env.errors import InvalidArgument
from rock_env.sandbox import ExecResult
from rock_env.spec import Resources, SandboxSpec
from sandboxes.swe import ENV

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(why_not_isolated()), reason=f"no isolation here: {why_not_isolated()}"),
]

assert ENV.sandbox is not None
SPEC = ENV.sandbox
WARM, COLD = "rock-python", "python"
WHICH = "import sys\nprint('warm' if 'pytest' in sys.modules else 'cold')\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path_factory.mktemp("warm"), isolation="namespaces")
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(backend: ProcessBackend, request: pytest.FixtureRequest) -> AsyncIterator[ProcessBox]:
    made = await backend.create(SPEC, sandbox_id=f"box-{abs(hash(request.node.nodeid))}")
    await made.write_file("which.py", WHICH.encode())
    yield made
    await made.close()


async def which(box: ProcessBox, *arguments: str, **how: object) -> bytes:
    """Return which interpreter ran `which.py`."""
    result = await box.exec([WARM, *(arguments or ("which.py",))], **how)  # type: ignore[arg-type]
    return result.stdout.strip()


async def sh(box: ProcessBox, script: str, *, timeout_s: float = 30.0) -> ExecResult:
    return await box.exec(["/bin/sh", "-c", script], timeout_s=timeout_s)


PROGRAMS = {
    "what it was told": (
        "import os, sys\nprint(sys.argv, sys.path, sys.orig_argv, sys.flags, sys.executable, sys.prefix)\n"
        "print(__name__, __file__, __doc__, __package__, os.getcwd(), sorted(os.environ.items()))\n"
        "print(sys.stdin, sys.stdout, sys.stderr, sys.stdout.errors, sys.stdin.read())\n"
    ),
    "open files and limits": (
        "import os, resource, signal\nprint(os.listdir('/proc/self/fd'))\n"
        "print([resource.getrlimit(number) for number in range(16)], os.umask(0))\n"
        "print([signal.getsignal(number) for number in (1, 2, 3, 13, 15, 17)])\n"
    ),
    "the depth of calls": (
        "def depth(n):\n    try:\n        return depth(n + 1)\n    except RecursionError:\n        return n\n"
        "print(depth(0))\n"
    ),
    "hashes": "print(hash('a'), list({'one', 'two', 'three'}))\n",
    "a traceback": "def f():\n    raise ValueError('no') from KeyError('x')\nf()\n",
    "a syntax error": "x = 1\nif x\n    pass\n",
    "an exit code": "import sys\nprint('a')\nsys.exit(5)\n",
    "an exit with words": "raise SystemExit('said')\n",
    "exit handlers and threads": (
        "import atexit, threading, time\natexit.register(print, 'last')\n"
        "class Late:\n    def __del__(self):\n        print('deleted')\nlate = Late()\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
    ),
    "a signal": "import os, signal\nprint('a', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "our own code": "import rock_env\n",
    "annotations": "def f(x: 1 + 1): ...\nprint(f.__annotations__, f.__globals__ is globals(), sorted(globals()))\n",
    "not there": "from nothing.at_all import x\n",
    "modules of the server's": "import sys\nprint([m for m in sys.modules if 'rock' in m or m.startswith('ctypes')])\n",
}


@pytest.mark.parametrize("form", ["file", "module"])
@pytest.mark.parametrize("what", PROGRAMS)
async def test_a_program_cannot_tell_the_difference(box: ProcessBox, what: str, form: str) -> None:
    await box.write_file("prog/program.py", PROGRAMS[what].encode())
    arguments = ["-m", "program"] if form == "module" else ["program.py"]
    ends = [
        await box.exec([python, *arguments, "a", "b c"], cwd="prog", stdin=b"in", env={"ADDED": "1"})
        for python in (COLD, WARM)
    ]
    cold, warm = [(end.exit_code, end.signal, end.stdout, end.stderr) for end in ends]
    assert warm == cold
    assert await which(box) == b"warm"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("{} which.py", b"warm"),
        ("cd /tmp && {} /workspace/which.py", b"warm"),
        ("{} -m which", b"warm"),
        ("echo > pytest.ini; mkdir tests; {} which.py", b"warm"),
        ("{} - < which.py", b"cold"),
        ("{} -c \"$(cat which.py)\"", b"cold"),
        ("{} -I which.py", b"cold"),
        ("PYTHONPATH=/tmp {} which.py", b"cold"),
        ("PYTHONHASHSEED=7 {} which.py", b"cold"),
        ("LC_ALL=C {} which.py", b"cold"),
        ("mkdir p && cp which.py p/__main__.py && {} p", b"cold"),
        ("echo > json.py; {} which.py", b"cold"),
        ("mkdir pluggy; {} -m which", b"cold"),
    ],
)  # fmt: skip
async def test_what_a_fork_cannot_have_gets_an_interpreter_of_its_own(
    box: ProcessBox, how: str, expected: bytes
) -> None:
    assert (await sh(box, how.format(WARM))).stdout.strip() == expected


async def test_without_a_warm_interpreter_python_is_run(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.kill_all()
    assert await which(box) == b"cold"
    plain = await backend.create(replace(SPEC, preload=()), sandbox_id="plain")
    await plain.write_file("which.py", WHICH.encode())
    assert await which(plain) == b"cold"
    assert (await sh(plain, "set -- /proc/[0-9]*; echo $#")).stdout == b"2\n", "the guest and the shell alone"
    await plain.close()


async def test_without_a_fence_python_is_run(tmp_path: Path) -> None:
    backend = ProcessBackend(root=tmp_path, isolation="none")
    box = await backend.create(SPEC, sandbox_id="bare")
    await box.write_file("which.py", WHICH.encode())
    assert await which(box) == b"cold"
    await backend.close()


async def test_a_timeout_takes_the_program_and_all_it_started(box: ProcessBox) -> None:
    program = (
        "import subprocess\nsubprocess.Popen(['sleep', '987.1'], start_new_session=True)\n"
        "subprocess.Popen(['sleep', '987.2'])\nopen('ready', 'w')\nwhile True: pass\n"
    )
    await box.write_file("loop.py", program.encode())
    late = await sh(box, f"{WARM} loop.py; true", timeout_s=6.0)
    assert late.timed_out
    await box.stat("ready")
    for _ in range(1500):
        left = (await sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
        if b"987" not in left and b"loop.py" not in left:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail(f"still there after 30 s: {left!r}")
    assert await which(box) == b"warm", "the next one is served"


async def test_signals_reach_the_program(box: ProcessBox) -> None:
    program = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('up', flush=True)\ntime.sleep(30)\n"
    )
    await box.write_file("waits.py", program.encode())
    async with box.start([WARM, "waits.py"]) as command:
        async for event in command.events():
            if getattr(event, "data", b"") == b"up\n":
                command.kill(15)
            end = event
    assert (getattr(end, "exit_code", None), getattr(end, "signal", None)) == (9, None)


async def test_memory_is_the_boxes_and_its_end_is_told(backend: ProcessBackend) -> None:
    small = replace(SPEC, resources=Resources(memory_bytes=64 << 20, disk_bytes=16 << 20, pids=32))
    box = await backend.create(small, sandbox_id="small")
    await box.write_file("greedy.py", b"a = [bytes([1]) * (1 << 20) for _ in range(400)]")
    end = await box.exec([WARM, "greedy.py"])
    assert (end.signal, end.oom_killed) == (9, True), end
    await box.close()


async def test_limits_on_processes_are_as_without(backend: ProcessBackend) -> None:
    count = (
        "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0:\n            time.sleep(9)\n"
        "        n += 1\nexcept OSError:\n    print(n)\n"
    )
    counts = []
    for preload in (SPEC.preload, ()):
        spec = replace(SPEC, preload=preload, resources=Resources(pids=12))
        box = await backend.create(spec, sandbox_id=f"pids-{len(preload)}")
        await box.write_file("count.py", count.encode())
        counts.append(int((await box.exec([COLD, "count.py"])).stdout))
        await box.close()
    assert counts[0] == counts[1] > 5


async def test_pause_holds_it_and_its_programs(box: ProcessBox) -> None:
    await box.write_file(
        "ticks.py", b"import time\nwhile True:\n    open('tick', 'a').write('.')\n    time.sleep(0.01)\n"
    )
    await box.start_process([WARM, "ticks.py"])
    await sh(box, "until test -s tick; do sleep 0.02; done")
    await box.pause()
    before = (await box.stat("tick")).size
    await asyncio.sleep(0.1)
    assert (await box.stat("tick")).size == before
    await box.resume()
    went_on = await sh(box, f"until [ $(wc -c < tick) -gt {before} ]; do sleep 0.02; done")
    assert went_on.ok
    assert await which(box) == b"warm"


async def test_a_copy_of_a_box_has_one_of_its_own(backend: ProcessBackend, box: ProcessBox) -> None:
    await sh(box, f"{WARM} -c 0; echo kept > kept")
    await box.kill_all()
    assert await which(box) == b"cold"
    await backend.snapshot(box.id, snapshot_id="warm-copy")
    copy = await backend.create(SPEC, sandbox_id="copy", snapshot="warm-copy")
    assert await which(copy) == b"warm"
    again = await backend.restore("copy", snapshot="warm-copy")
    assert await which(again) == b"warm"
    assert await again.read_file("kept") == b"kept\n"
    await again.close()
    await backend.delete_snapshot("warm-copy")


async def test_it_holds_nothing_of_the_machine_or_the_guest(box: ProcessBox) -> None:
    """Looked at by the box's own user, who may read it whole."""
    assert await which(box) == b"warm"
    # It may still be closing the connection of the program that has just ended.
    one = (
        "for i in $(seq 100); do test $(ls -l /proc/2/fd | grep -c socket:) -gt 1 || break; sleep 0.02; done"
    )
    fds = (await sh(box, f"{one}; ls -l /proc/2/fd")).stdout.decode()
    targets = [line.partition(" -> ")[2] for line in fds.splitlines() if " -> " in line]
    assert targets[:3] == ["/dev/null"] * 3
    assert all(re.match(r"(socket|pipe|anon_inode):|/dev/null", target) for target in targets)
    sockets = [target for target in targets if target.startswith("socket:")]
    assert len(sockets) == 1, "its own, at which programs are asked for"
    assert os.fsencode(sockets[0][8:-1]) in (await sh(box, "grep rock-python /proc/net/unix")).stdout
    about = (await sh(box, "cat /proc/2/environ /proc/2/cmdline | tr '\\0' '\\n'")).stdout.decode()
    assert "TOKEN" not in about
    assert str(Path(__file__).parents[3]) not in about
    status = (await sh(box, "cat /proc/2/status")).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(fields["CapBnd"], 16) == int(fields["CapEff"], 16) == 0
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert set(fields["Uid"].split()) == {"1000"}


async def test_the_agent_may_replace_it_and_harms_itself(backend: ProcessBackend, box: ProcessBox) -> None:
    false = (
        "import socket, os\nos.kill(2, 9)\ns = socket.socket(socket.AF_UNIX)\n"
        "while True:\n    try:\n        s.bind('\\0rock-python')\n        break\n    except OSError: pass\n"
        "s.listen()\nopen('up', 'w')\nwhile True:\n    c, _ = s.accept()\n    n = int.from_bytes(c.recv(8), 'little')\n"
        "    while n > 0:\n        n -= len(c.recv(n))\n    c.send(b'exit 0')\n    c.close()\n"
    )
    await box.write_file("false.py", false.encode())
    await box.start_process([COLD, "false.py"])
    await sh(box, "until test -e up; do sleep 0.02; done")
    assert (await box.exec([WARM, "-c", "1/0"])).exit_code == 1
    assert (await box.exec([WARM, "nowhere.py"])).exit_code == 0, "the box's own lie"
    other = await backend.create(SPEC, sandbox_id="other")
    assert (await other.exec([WARM, "nowhere.py"])).exit_code == 2
    await other.close()


@pytest.mark.parametrize("name", ["", "no module", "os;x", "pytest.__main__", "class", "../x"])
async def test_what_is_no_module_is_refused(backend: ProcessBackend, name: str) -> None:
    with pytest.raises(InvalidArgument, match="preload"):
        await backend.create(SandboxSpec(preload=(name,)), sandbox_id="refused")


async def test_only_what_is_installed_for_boxes_is_imported(
    backend: ProcessBackend, caplog: pytest.LogCaptureFixture
) -> None:
    spec = SandboxSpec(preload=("antigravity", "numpy", "pytest", "pluggy.nothing"))
    box = await backend.create(spec, sandbox_id="chosen")
    await box.write_file(
        "m.py", b"import sys\nprint([m in sys.modules for m in ('antigravity', 'numpy', 'pytest')])"
    )
    assert (await box.exec([WARM, "m.py"])).stdout == b"[False, False, True]\n"
    assert "antigravity, numpy, pluggy.nothing" in caplog.text
    await box.close()
