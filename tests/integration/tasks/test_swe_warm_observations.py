"""What an agent of `swe` reads is the same, byte for byte, whether its tests ran in a warm interpreter or a cold one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from fences import why_not_isolated

from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from rock_env.tools import RunTests, Toolbox
from sandboxes.swe import ENV
from sandboxes.swe.catalog import TEST_COMMAND, make_tasks
from sandboxes.swe.params import SweParams

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(why_not_isolated()), reason=f"no isolation here: {why_not_isolated()}"),
]

TASKS = make_tasks(SweParams())
assert ENV.sandbox is not None
SPEC = ENV.sandbox
HARM = {
    "failing import": "import nothing_of_that_name\n",
    "syntax error": "def f(:\n",
    "exit": "import sys\nsys.exit(0)\n",
    "hard exit": "import os\nos._exit(3)\n",
    "output at the end": "import atexit\natexit.register(print, 'at the end')\nprint('at import')\n",
    "endless recursion": "def f(n):\n    return f(n + 1)\nf(0)\n",
    "its own pytest": "import sys\nsys.modules['pytest'] = None\n",
    "warnings": "import warnings\nwarnings.warn('mind this')\n",
    "signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "endless loop": "print('on', flush=True)\nwhile True:\n    pass\n",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path_factory.mktemp("warm"), isolation="namespaces")
    yield made
    await made.close()


async def observe(
    backend: ProcessBackend, number: int, harm: str, args: tuple[str, ...]
) -> dict[str, list[str]]:
    """Return what both ways tell, each in a box of its own, one after another."""
    task = TASKS.get("train", number)
    project = task.files[0][0].partition("/")[0]
    told = {}
    for way, command in (("warm", TEST_COMMAND), ("cold", TEST_COMMAND.replace("rock-python", "python"))):
        spec = SPEC if way == "warm" else replace(SPEC, preload=())
        box: Sandbox = await backend.create(spec, sandbox_id=f"{way}-{number}-{abs(hash((harm, args)))}")
        for path, content in task.files:
            module = harm and path == f"{project}/{project}/__init__.py"
            await box.write_file(path, content + (f"\n{HARM[harm]}".encode() if module else b""))
        tools = Toolbox(project, command, command_timeout_s=8.0 if harm == "endless loop" else 20.0)
        replies = [await tools.call(box, RunTests(each)) for each in args]
        told[way] = [reply.text.replace("rock-python", "python") for reply in replies]
        await box.close()
    return told


@pytest.mark.parametrize("number", [0, 150, 300])
async def test_tasks_read_the_same(backend: ProcessBackend, number: int) -> None:
    told = await observe(backend, number, "", ("", "--tb=long -vv", "tests/nowhere.py"))
    assert told["warm"] == told["cold"]
    assert "failed" in told["warm"][0]


@pytest.mark.parametrize("harm", HARM)
async def test_broken_projects_read_the_same(backend: ProcessBackend, harm: str) -> None:
    told = await observe(backend, 0, harm, ("",))
    assert told["warm"] == told["cold"]


async def test_the_tests_ran_in_the_warm_interpreter(backend: ProcessBackend) -> None:
    """Else all of this would compare a thing with itself."""
    box = await backend.create(SPEC, sandbox_id="counted")
    await box.write_file("p/test_parent.py", b"import os\ndef test_parent():\n    assert os.getppid() == 2\n")
    tools = Toolbox("p", TEST_COMMAND)
    assert "1 passed" in (await tools.call(box, RunTests(""))).text
    await box.kill_all()
    assert "1 failed" in (await tools.call(box, RunTests(""))).text
    await box.close()


async def test_many_boxes_at_once(backend: ProcessBackend) -> None:
    boxes = [await backend.create(SPEC, sandbox_id=f"many-{n}") for n in range(12)]
    for box in boxes:
        await box.write_file("p/test_x.py", b"def test_x():\n    pass\n")
    told = await asyncio.gather(*(Toolbox("p", TEST_COMMAND).call(box, RunTests("")) for box in boxes))
    assert {reply.text for reply in told} == {told[0].text}
    assert "1 passed" in told[0].text
    await asyncio.gather(*(box.close() for box in boxes))
