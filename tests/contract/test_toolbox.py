"""The tools in real boxes, in process and through a server: what each call does there, says, and leaves to undo."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import transports
from fences import why_not_isolated

from rock_env.backends.process.backend import ProcessBackend
from rock_env.client import Client, Credentials
from rock_env.errors import InfraError, NotFound
from rock_env.local import EmbeddedServer
from rock_env.spec import Resources, SandboxSpec
from rock_env.tools import Toolbox, ToolReply
from rock_env.tools.box import Box
from rock_env.tools.remote import RemoteBox

pytestmark = pytest.mark.any_address

TESTS = "python -m unittest"
SOURCE = b"def add(a, b):\n    return a - b\n"
TEST = b"""\
import unittest
from calc import add


class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with transports.served(["--isolation=none"]) as started:
        yield started


@pytest.fixture(params=["in process", "remote"])
async def box(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Box]:
    """Return a box with a small project in the folder `project`, and `/bin/sh`, bash and Python in its PATH."""
    if request.param == "remote":
        address = request.getfixturevalue("server").address
        async with (
            Client(address, credentials=Credentials()) as client,
            await client.sandboxes.create() as sandbox,
        ):
            yield await with_project(RemoteBox(sandbox))
        return
    backend = ProcessBackend(root=tmp_path, isolation="none")
    yield await with_project(await backend.create(SandboxSpec(), sandbox_id="box"))
    await backend.close()


async def with_project(box: Box) -> Box:
    await box.write_file("project/calc.py", SOURCE)
    await box.write_file("project/test_calc.py", TEST)
    return box


@pytest.fixture
def tools() -> Toolbox:
    return Toolbox("project", TESTS)


def edit(path: str, old: str, new: str) -> str:
    return f"edit {path}\n<<<<<<<\n{old}\n=======\n{new}\n>>>>>>>"


async def said(tools: Toolbox, box: Box, action: str) -> str:
    """Carry out a call that must succeed; return the reply."""
    reply = await tools.act(box, action)
    assert not reply.failed, reply
    assert not reply.illegal, reply
    return reply.text


async def refused(tools: Toolbox, box: Box, action: str) -> str:
    reply = await tools.act(box, action)
    assert dict(reply.info) == {"tool_failed": True}
    return reply.text


async def test_a_bug_is_found_and_repaired(tools: Toolbox, box: Box) -> None:
    failed = await said(tools, box, "run_tests")
    assert failed.startswith("[exit code 1]\n")
    assert "-1 != 3" in failed
    assert (
        await said(tools, box, "view calc.py") == "calc.py (lines 1-2 of 2)\ndef add(a, b):\n    return a - b"
    )
    assert await said(tools, box, edit("calc.py", "a - b", "a + b")) == "Edited calc.py: lines 2-2."
    passed = await said(tools, box, "run_tests")
    assert passed.startswith("[exit code 0]\n"), "also within the second and the size of the file before"
    assert (await tools.act(box, "submit")) == ToolReply("Submitted.", submitted=True)


async def test_the_session_begins_in_the_project_and_lasts(tools: Toolbox, box: Box) -> None:
    assert await said(tools, box, "ls") == "[exit code 0]\ncalc.py\ntest_calc.py"
    assert await said(tools, box, "mkdir sub; cd sub; export A=1; f() { echo f$1; }") == "[exit code 0]"
    again = Toolbox("project", TESTS)
    assert await said(again, box, "basename $PWD; echo $A; f 2") == "[exit code 0]\nsub\n1\nf2", (
        "it is in the box"
    )
    assert "def add" in await said(tools, box, "view calc.py"), "paths are the project's, not the session's"
    assert (await said(tools, box, "run_tests")).startswith("[exit code 1]\n")


async def test_run_tests_takes_arguments_as_a_shell_would(tools: Toolbox, box: Box) -> None:
    assert (await said(tools, box, "run_tests test_calc -k 'no such'")).startswith(
        ("[exit code 5]", "[exit code 0]")
    )
    assert "no_module" in await said(tools, box, "run_tests no_module")
    assert (await said(Toolbox("project", "echo got"), box, "run_tests 'a  b' *.py")) == (
        "[exit code 0]\ngot a  b calc.py test_calc.py"
    )


async def test_without_a_test_command_there_is_no_such_tool(box: Box) -> None:
    tools = Toolbox("project", "")
    assert "no tests" in await refused(tools, box, "run_tests")
    assert "run_tests" not in tools.describe()
    assert "run_tests" not in {each["function"]["name"] for each in tools.schemas()}
    assert "run_tests [ARGS]" in Toolbox("project", TESTS).describe()


async def test_a_command_that_takes_too_long_is_told_so(box: Box) -> None:
    tools = Toolbox("project", "sleep 600 #", command_timeout_s=0.3)
    assert await said(tools, box, "echo begun; sleep 600") == "[timed out after 0.3 s and was killed]\nbegun"
    assert await said(tools, box, "run_tests") == "[timed out after 0.3 s and was killed]"


async def test_equal_calls_get_equal_replies(tools: Toolbox, box: Box) -> None:
    replies = [await said(tools, box, "run_tests") for _ in range(2)]
    replies += [await said(tools, box, "python -c 'print(object())'") for _ in range(2)]
    assert replies[0] == replies[1]
    assert replies[2] == replies[3] == "[exit code 0]\n<object object at 0x...>"


async def test_a_long_reply_says_how_to_see_the_rest(box: Box) -> None:
    tools = Toolbox("project", TESTS, max_output_chars=100)
    text = await said(tools, box, "seq 1000")
    assert text.startswith("[exit code 0]\n1\n2\n")
    assert text.endswith("\n999\n1000")
    assert "3792 characters" in text
    assert "tail -n" in text
    assert len(text) < 350
    assert "its output" not in text
    flood = await said(tools, box, "head -c 1000000 /dev/zero | tr '\\0' x")
    assert flood.startswith("[exit code 0; it printed more than 262144 bytes, and the rest was dropped]\nxxx")


async def test_folders_are_listed(tools: Toolbox, box: Box) -> None:
    await said(tools, box, "mkdir sub .hidden; ln -s calc.py link; ln -s sub way")
    listing = "(folder, 6 entries)\n.hidden/\ncalc.py\nlink -> calc.py\nsub/\ntest_calc.py\nway -> sub"
    assert await said(tools, box, "view .") == f". {listing}"
    assert await said(tools, box, "view ../project/") == f"../project/ {listing}"
    assert await said(tools, box, "view way") == "way (folder, 0 entries)"
    assert "has no lines" in await refused(tools, box, "view sub 1 2")


NOWHERE = {
    "none.py": "[failed] no such file or folder: none.py.",
    "no/ne.py": "[failed] no such file or folder: no/ne.py.",
    "calc.py/x": "[failed] calc.py/x cannot be used: ",
    "loop": "[failed] loop cannot be used: ",
    "pipe": "[failed] pipe cannot be used: ",
    "../../../../etc/passwd": "[failed] ../../../../etc/passwd cannot be used: ",
    "n" * 300: "[failed] nnn",
}


async def test_paths_that_lead_nowhere_are_refused(tools: Toolbox, box: Box) -> None:
    await said(tools, box, "ln -s loop loop; mkfifo pipe")
    for path, problem in NOWHERE.items():
        for action in (f"view {path}", edit(path, "x", "y")):
            text = await refused(tools, box, action)
            assert text.startswith(problem)
            assert "files/work" not in text, "no path of the host"


async def test_an_edit_keeps_mode_line_breaks_links_and_a_missing_last_one(tools: Toolbox, box: Box) -> None:
    await box.write_file("project/run.sh", b"echo 1\r\necho 2", mode=0o755)
    await said(tools, box, "ln -s run.sh link; mkdir -p a; ln -s ../link a/link")
    assert await said(tools, box, edit("a/link", "echo 2", "echo 3\necho 4")) == "Edited a/link: lines 2-3."
    assert await box.read_file("project/run.sh") == b"echo 1\r\necho 3\r\necho 4"
    assert stat.S_IMODE((await box.stat("project/run.sh")).mode) == 0o755
    assert (await box.stat("project/a/link")).symlink_target == "../link"
    assert (await box.stat("project/link")).symlink_target == "run.sh"
    assert await said(tools, box, "undo") == "Undone: a/link is as before that edit."
    assert await box.read_file("project/run.sh") == b"echo 1\r\necho 2"
    assert stat.S_IMODE((await box.stat("project/run.sh")).mode) == 0o755


async def test_an_edit_that_fits_nowhere_or_twice_changes_nothing(tools: Toolbox, box: Box) -> None:
    before = await box.read_file("project/test_calc.py")
    assert "0 matches in test_calc.py" in await refused(tools, box, edit("test_calc.py", "nothing", ""))
    assert "3 matches in test_calc.py" in await refused(tools, box, edit("test_calc.py", "add", "sub"))
    assert "is a folder" in await refused(tools, box, edit(".", "x", "y"))
    assert await box.read_file("project/test_calc.py") == before
    assert "no edit to take back" in await refused(tools, box, "undo")


async def test_binary_and_huge_files_are_refused(tools: Toolbox, box: Box) -> None:
    await box.write_file("project/data", b"a\0b")
    await box.write_file("project/big.txt", b"x\n" * (1 << 19) + b"y\n")
    await said(tools, box, "truncate -s 9M huge.txt")
    assert "data is a binary file" in await refused(tools, box, edit("data", "a", "b"))
    assert "data is a binary file of 3 bytes" in await refused(tools, box, "view data")
    assert "big.txt has 1048578 bytes" in await refused(tools, box, edit("big.txt", "y", "z"))
    assert (
        await said(tools, box, "view big.txt 524289 524289") == "big.txt (lines 524289-524289 of 524289)\ny"
    )
    assert "huge.txt has 9437184 bytes" in await refused(tools, box, "view huge.txt")
    new = "x" * (1 << 20)
    assert "1048577 bytes are too many" in await refused(
        tools, box, f"edit new\n<<<<<<<\n=======\n{new}\n>>>>>>>"
    )


async def test_an_edit_with_no_old_text_creates_a_file(tools: Toolbox, box: Box) -> None:
    assert await said(tools, box, edit("new/mod.py", "", "x = 1\ny = 2")) == "Created new/mod.py: lines 1-2."
    assert await box.read_file("project/new/mod.py") == b"x = 1\ny = 2\n"
    assert "new/mod.py exists" in await refused(tools, box, edit("new/mod.py", "", "x = 2"))
    assert "cannot be used" in await refused(tools, box, edit("calc.py/mod.py", "", "x"))
    assert await said(tools, box, edit("empty", "", "")) == "Created empty: empty."
    assert "nothing to change" in await refused(tools, box, edit("empty", "", ""))
    assert await said(tools, box, "chmod 700 empty") == "[exit code 0]"
    assert await said(tools, box, edit("empty", "", "x")) == "Created empty: lines 1-1."
    assert stat.S_IMODE((await box.stat("project/empty")).mode) == 0o700
    assert await said(tools, box, "undo") == "Undone: empty is as before that edit."
    assert await box.read_file("project/empty") == b""
    assert await said(tools, box, "undo") == "Undone: empty is gone, as before that edit."
    assert await said(tools, box, "undo") == "Undone: new/mod.py is gone, as before that edit."
    assert await said(tools, box, "view new") == "new (folder, 0 entries)"


async def test_undo_goes_back_edit_by_edit_also_after_a_restore(tools: Toolbox, box: Box) -> None:
    await said(tools, box, edit("calc.py", "a - b", "a * b"))
    await said(tools, box, edit("calc.py", "add(a, b)", "mul(a, b)"))
    later = Toolbox("project", TESTS)
    later.restore(tools.snapshot())
    await said(later, box, "undo")
    assert await box.read_file("project/calc.py") == SOURCE.replace(b"-", b"*")
    await said(later, box, "undo")
    assert await box.read_file("project/calc.py") == SOURCE
    assert "no edit to take back" in await refused(later, box, "undo")


async def test_an_undo_says_which_call_it_took_back(tools: Toolbox, box: Box) -> None:
    await said(tools, box, edit("calc.py", "a - b", "a * b"))
    await said(tools, box, "view calc.py")
    await said(tools, box, edit("calc.py", "add(a, b)", "mul(a, b)"))
    assert (await tools.act(box, "edit nonsense")).illegal
    assert (await tools.act(box, "undo")).info == {"undoes": 2}
    later = Toolbox("project", TESTS)
    later.restore(tools.snapshot())
    assert (await later.act(box, "undo")).info == {"undoes": 5}
    assert (await later.act(box, "undo")).info == {"tool_failed": True}


async def test_undo_leaves_what_was_changed_since_and_goes_on(tools: Toolbox, box: Box) -> None:
    await said(tools, box, edit("calc.py", "a - b", "a * b"))
    await said(tools, box, edit("test_calc.py", "T(", "TestAdd("))
    await said(tools, box, edit("gone.py", "", "x"))
    await said(tools, box, "echo '# more' >> test_calc.py; rm gone.py")
    assert "gone.py was changed since" in await refused(tools, box, "undo")
    assert "test_calc.py was changed since" in await refused(tools, box, "undo")
    assert (await box.read_file("project/test_calc.py")).endswith(b"# more\n")
    await said(tools, box, "undo")
    assert await box.read_file("project/calc.py") == SOURCE


async def test_what_can_be_taken_back_is_bounded(tools: Toolbox, box: Box) -> None:
    for number in range(60):
        await said(tools, box, edit("calc.py", f"a - {number or 'b'}", f"a - {number + 1}"))
    assert len(tools.snapshot()) < 10_000
    for _ in range(50):
        await said(tools, box, "undo")
    assert "no edit to take back" in await refused(tools, box, "undo")
    assert b"a - 10" in await box.read_file("project/calc.py")
    await box.write_file("project/long.txt", b"x" * 300_000)
    await said(tools, box, edit("long.txt", "x" * 300_000, "y"))
    assert len(tools.snapshot()) < 10_000


async def test_messages_that_are_no_calls_are_replies(tools: Toolbox, box: Box) -> None:
    for action in ("", "```\nls", "view", '{"tool": "ls"}', "submit now"):
        reply = await tools.act(box, action)
        assert reply.text.startswith("[not run] ")
        assert dict(reply.info) == {"illegal": True}


async def test_a_box_that_is_gone_raises(tools: Toolbox, tmp_path: Path) -> None:
    backend = ProcessBackend(root=tmp_path, isolation="none")
    box = await backend.create(SandboxSpec(), sandbox_id="box")
    await with_project(box)
    await box.close()
    for action in ("ls", "run_tests", "view calc.py", edit("calc.py", "a - b", "b")):
        with pytest.raises((InfraError, NotFound)):
            await tools.act(box, action)
    await backend.close()


async def test_a_full_disk_of_the_box_is_the_agents_to_clear(tools: Toolbox, tmp_path: Path) -> None:
    if why := why_not_isolated():
        pytest.skip(f"without namespaces a box has no disk of its own: {why}")
    backend = ProcessBackend(root=tmp_path, isolation="namespaces")
    small = SandboxSpec(resources=Resources(disk_bytes=4 << 20))
    box = await with_project(await backend.create(small, sandbox_id="box"))
    await said(tools, box, "head -c 8M /dev/zero > large; true")
    reply = await tools.act(box, edit("new.txt", "", "x" * 8000))
    assert reply.text.startswith("[failed] the box can hold no more files"), reply.text
    await said(tools, box, "rm large")
    await said(tools, box, edit("new.txt", "", "x" * 8000))
    await backend.close()


async def test_a_sandbox_that_was_deleted_raises(tools: Toolbox, server: EmbeddedServer) -> None:
    async with Client(server.address, credentials=Credentials()) as client:
        sandbox = await client.sandboxes.create()
        box = await with_project(RemoteBox(sandbox))
        await sandbox.delete()
        for action in ("ls", "run_tests", "view calc.py", edit("calc.py", "a - b", "b")):
            with pytest.raises((InfraError, NotFound)):
                await tools.act(box, action)
