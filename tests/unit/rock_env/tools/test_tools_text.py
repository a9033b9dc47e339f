"""The text face: what agents write is read as they mean it, and every call survives being written and read."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rock_env.tools import Bash, Edit, Malformed, RunTests, Submit, ToolCall, Undo, View
from rock_env.tools.text import parse_call, render_call

EDIT = "edit {path}\n<<<<<<<\n{old}\n=======\n{new}\n>>>>>>>"


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("bash ls -l", Bash("ls -l")),
        ("ls -l", Bash("ls -l")),
        ("  ls -l\n\n", Bash("ls -l")),
        ("bash\ncd /tmp\nls", Bash("cd /tmp\nls")),
        ("for f in *; do\n  echo $f\ndone", Bash("for f in *; do\n  echo $f\ndone")),
        ("bash -c 'ls'", Bash("bash -c 'ls'")),
        ("bashful", Bash("bashful")),
        ("views.py --help", Bash("views.py --help")),
        ("{ echo a; echo b; }", Bash("{ echo a; echo b; }")),
        ('{ "tool" x; }', Bash('{ "tool" x; }')),
        ("echo '```'", Bash("echo '```'")),
        ("bash cat > a.md <<'E'\n```\ncode\n```\nE", Bash("cat > a.md <<'E'\n```\ncode\n```\nE")),
        ("view a.py", View("a.py")),
        ("view a.py 3 17", View("a.py", 3, 17)),
        ("view a.py 3", View("a.py", 3)),
        ("view my notes.txt 3 17", View("my notes.txt", 3, 17)),
        ("view  7", View("7")),
        ("view a v1.2", View("a v1.2")),
        (EDIT.format(path="a.py", old="x = 1", new="x = 2"), Edit("a.py", "x = 1", "x = 2")),
        ("edit a.py\n<<<<<<<\n=======\n>>>>>>>", Edit("a.py", "", "")),
        (EDIT.format(path="a.py", old="", new=""), Edit("a.py", "", "")),
        (EDIT.format(path="a b.py", old="\n  x\n", new="\n\n"), Edit("a b.py", "\n  x\n", "\n\n")),
        ("edit a\n<<<<<<<  \nx\n=======\t\ny\n>>>>>>> \n", Edit("a", "x", "y")),
        ("edit a\n<<<<<<<\r\nx\n=======\r\ny\n>>>>>>>\r\n", Edit("a", "x", "y")),
        ("edit a\n<<<<<<<<\n=======\n========\n>>>>>>>\n>>>>>>>>", Edit("a", "=======", ">>>>>>>")),
        ("edit a\n<<<<<<<\n```\nx\n```\n=======\ny\n>>>>>>>", Edit("a", "```\nx\n```", "y")),
        ("undo", Undo()),
        ("run_tests", RunTests()),
        ("run_tests  tests/test_a.py -k 'a or b' ", RunTests("tests/test_a.py -k 'a or b'")),
        ("submit\n", Submit()),
        ("I look at it.\n```\nview a.py 1 5\n```\nThen I go on.", View("a.py", 1, 5)),
        ("```\nls\n```", Bash("ls")),
        ("```bash\nview a.py\n```", Bash("view a.py")),
        ("```sh\nls\n```", Bash("ls")),
        ("Look:\n```shell\nls\n```", Bash("ls")),
        ('```json\n{"tool": "undo"}\n```', Undo()),
        ('```\n{"tool": "undo"}\n```', Undo()),
        ("````\nedit a.md\n<<<<<<<\n```\n=======\n~~~\n>>>>>>>\n````", Edit("a.md", "```", "~~~")),
        ('{"tool": "view", "args": {"path": "a.py", "first": 2}}', View("a.py", 2)),
    ],
)
def test_a_message_is_the_call_it_looks_like(message: str, call: ToolCall) -> None:
    assert parse_call(message) == call


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("", "needs a command"),
        ("bash", "needs a command"),
        ("```\n\n```", "needs a command"),
        ("ls\0", "NUL"),
        ("view", "needs a path"),
        ("view a\0", "NUL"),
        ("view a 0 5", "from 1"),
        ("view a\nls", "one line"),
        ("undo 2", "takes nothing"),
        ("submit it", "takes nothing"),
        ("run_tests a\nb", "one line"),
        ("run_tests \0", "NUL"),
        ("edit", "needs a path"),
        ("edit a\0\n<<<<<<<", "NUL"),
        ("edit a.py", "needs <<<<<<<"),
        ("edit a.py\nx\n=======\ny\n>>>>>>>", "needs <<<<<<<"),
        ("edit a.py\n<<<<<<\nx\n======\ny\n>>>>>>", "needs <<<<<<<"),
        ("edit a.py\n<<<<<<<\nx\n>>>>>>>", "one line =======, got 0"),
        ("edit a.py\n<<<<<<<\nx\n=======\ny", "one line >>>>>>>, got 0"),
        ("edit a.py\n<<<<<<<\nx\n=======\ny\n=======\n>>>>>>>", "one line =======, got 2"),
        ("edit a.py\n<<<<<<<\nx\n>>>>>>>\n=======\ny", "must end with >>>>>>>"),
        ("edit a.py\n<<<<<<<\nx\n=======\ny\n>>>>>>>\nrun_tests", "must end with >>>>>>>"),
        ("Now:\n```\nls", "not closed"),
        ("```\nls\n```\nand\n```\npwd\n```", "several code blocks"),
        ("```python\nprint()\n```", "```python block"),
        ("ls \ud800", "surrogate"),
        ('{"tool": "viw"}', "bash, view, edit, undo, run_tests, submit"),
    ],
)
def test_a_message_that_is_no_call_says_what_is_wrong(message: str, what: str) -> None:
    read = parse_call(message)
    assert isinstance(read, Malformed)
    assert what in read.problem


@given(st.text(st.characters()))
def test_any_message_is_a_call_or_malformed(message: str) -> None:
    assert isinstance(parse_call(message), Bash | View | Edit | Undo | RunTests | Submit | Malformed)


# Texts made of what the faces give a meaning to, as well as any text.
MARKS = ["<", "=", ">", "<<<<<<<", "=======", ">>>>>>>", "```"]
WORDS = ["bash", "view", "edit a", "undo", "submit", "{", '"', "\\", "1", "0", "-", "x", "é"]
BLANKS = ["\n", "\r\n", "\r", " ", "\t", "\u2028", "\x1c"]
PIECES = st.sampled_from([*MARKS, *WORDS, *BLANKS])
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join))
NAMES = TEXTS.filter(lambda text: bool(text.strip()) and "\0" not in text)
LINES = st.none() | st.integers(1, 10**9 - 1)
CALLS = st.one_of(
    NAMES.map(Bash),
    st.builds(View, NAMES, LINES, LINES),
    st.builds(Edit, NAMES, TEXTS, TEXTS),
    TEXTS.filter(lambda text: "\0" not in text).map(RunTests),
    st.just(Undo()),
    st.just(Submit()),
)


@given(CALLS)
@example(Edit("a", "<<<<<<<\nx\n=======\n========", ">>>>>>> \n========\t"))
@example(Edit("a", "\n", "\n"))
@example(Edit("a", "", "\r"))
@example(View("a 1"))
@example(View("a", None, 5))
@example(Bash("-c ls"))
@example(Bash("bash -c ls"))
@example(Bash(" ls "))
@example(RunTests("a\nb"))
def test_what_is_written_is_read_as_the_same_call(call: ToolCall) -> None:
    assert parse_call(render_call(call)) == call


def test_longer_markers_are_for_text_that_has_markers() -> None:
    call = Edit("a", "x\n=======", ">>>>>>>> ")
    assert render_call(call) == "edit a\n<<<<<<<<<\nx\n=======\n=========\n>>>>>>>> \n>>>>>>>>>"


@given(st.text("<=>\n x", max_size=40), st.text("<=>\n x", max_size=40))
def test_an_edit_of_plain_lines_is_written_in_the_text_face(old: str, new: str) -> None:
    assert render_call(Edit("a.py", old, new)).startswith("edit a.py\n<<<<<<<")
