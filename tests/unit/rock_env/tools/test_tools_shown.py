"""What replies show: as many lines as fit, how much is missing and how to see it, and nothing that differs by run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.sandbox import ExecResult, FileEntry
from rock_env.tools.calls import View
from rock_env.tools.edits import RefusedCall
from rock_env.tools.observation import cut_middle, tell_command
from rock_env.tools.viewing import show_file, show_folder


def ended(stdout: bytes = b"", **more: object) -> ExecResult:
    fields: dict[str, object] = {"exit_code": 0, "signal": None, "stderr": b"", "duration_s": 1.5} | more
    return ExecResult(stdout=stdout, **fields)  # type: ignore[arg-type]


def tell(result: ExecResult, max_chars: int = 100) -> str:
    return tell_command(result, timeout_s=2.5, max_chars=max_chars, how_to_see="use tail")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ended(b"a\nb\n"), "[exit code 0]\na\nb"),
        (ended(exit_code=3), "[exit code 3]"),
        (ended(exit_code=127, stderr=b"cannot run sh\n"), "[exit code 127]\ncannot run sh"),
        (ended(b"\xff\n"), "[exit code 0]\n\ufffd"),
        (
            ended(b"so far", exit_code=None, signal=9, timed_out=True),
            "[timed out after 2.5 s and was killed]\nso far",
        ),
        (ended(exit_code=None, signal=11), "[killed by signal 11]"),
        (ended(exit_code=None, signal=9, oom_killed=True), "[killed by signal 9; out of memory]"),
        (
            ended(b"abc", truncated=True),
            "[exit code 0; it printed more than 3 bytes, and the rest was dropped]\nabc",
        ),
        (ended(b"= 3 passed, 1 warning in 0.12s =\n"), "[exit code 0]\n= 3 passed, 1 warning ="),
        (ended(b"2 failed in 61.12s (0:01:01)\n"), "[exit code 0]\n2 failed"),
        (ended(b"no tests ran in 0.00s\n"), "[exit code 0]\nno tests ran"),
        (ended(b"Ran 3 tests in 0.001s\nOK\n"), "[exit code 0]\nRan 3 tests\nOK"),
        (ended(b"<function f at 0x7f12ab34cd56>\n"), "[exit code 0]\n<function f at 0x...>"),
        (ended(b"assert [<ring.buffer...7f2b0281d850>]\n"), "[exit code 0]\nassert [<ring.buffer...>]"),
        (ended(b"[<ring.Rin...x7f2b0281d850>, 1]\n"), "[exit code 0]\n[<ring.Rin...>, 1]"),
        (ended(b"[<a.B object at 0x7f2b02...ect at 0x7f0>]"), "[exit code 0]\n[<a.B object at 0x...>]"),
        (ended(b"[1, 2...t 0x7f0>]\n"), "[exit code 0]\n[1, 2...>]"),
        (
            ended(b"[<a.B obj...f0>, <a.B object at 0x7f2b0281d8>]"),
            "[exit code 0]\n[<a.B obj...>, <a.B object at 0x...>]",
        ),
        (
            ended(b"--level <1...100> for i in 0...5>3 <abc...def>"),
            "[exit code 0]\n--level <1...100> for i in 0...5>3 <abc...def>",
        ),
        (
            ended(b'File "/srv/state/boxes/sb-0a1b/files/work/x.py", line 1\n'),
            '[exit code 0]\nFile "/workspace/x.py", line 1',
        ),
        (ended(b"/a/boxes/sb-1/files/tmp/t:/a/boxes/sb-1/files/home\n"), "[exit code 0]\n/tmp/t:/home/agent"),
        (ended(b"/a/boxes/sb-1/files/workers\n"), "[exit code 0]\n/a/boxes/sb-1/files/workers"),
        (ended(b"mask 0xdeadbeef in 5s"), "[exit code 0]\nmask 0xdeadbeef in 5s"),
    ],
)
def test_a_command_is_told_by_its_end_and_output(result: ExecResult, text: str) -> None:
    assert tell(result) == text


def test_long_output_says_how_much_is_left_out_and_how_to_see_it() -> None:
    output = "\n".join(str(n) for n in range(1000))
    text = tell(ended(output.encode()), max_chars=20)
    assert text == (
        f"[exit code 0]\n{output[:10]}\n"
        f"[... {len(output) - 20} characters (992 line breaks) left out; use tail ...]\n{output[-10:]}"
    )


@given(st.text(max_size=60), st.integers(2, 40))
def test_a_cut_text_holds_its_beginning_and_end(text: str, most: int) -> None:
    cut = cut_middle(text, max_chars=most, how_to_see="look")
    half = most // 2
    assert cut == text if len(text) <= most else cut.startswith(text[:half]) and cut.endswith(text[-half:])


def show(
    content: bytes, first: int | None = None, last: int | None = None, most: int = 1000
) -> str | RefusedCall:
    return show_file(View("f", first, last), content, max_chars=most)


@pytest.mark.parametrize(
    ("content", "first", "last", "text"),
    [
        (b"a\n\tb\n\n", None, None, "f (lines 1-3 of 3)\na\n\tb\n"),
        (b"a\nb", None, None, "f (lines 1-2 of 2)\na\nb"),
        (b"a\r\nb\r\n", None, None, "f (lines 1-2 of 2)\na\nb"),
        (b"a\nb\nc\n", 2, 2, "f (lines 2-2 of 3)\nb"),
        (b"a\nb\nc\n", 2, None, "f (lines 2-3 of 3)\nb\nc"),
        (b"a\nb\nc\n", None, 2, "f (lines 1-2 of 3)\na\nb"),
        (b"a\nb\nc\n", 3, 99, "f (lines 3-3 of 3)\nc"),
        (b"\n", None, None, "f (lines 1-1 of 1)\n"),
        (b"a\x0cb\xe2\x80\xa8c\n", None, None, "f (lines 1-1 of 1)\na\x0cb\u2028c"),
        (b"\xff\n", None, None, "f (lines 1-1 of 1)\n\ufffd"),
        (b"", None, None, "f (empty)"),
    ],
)
def test_a_file_is_shown_as_it_is(content: bytes, first: int | None, last: int | None, text: str) -> None:
    assert show(content, first, last) == text


@pytest.mark.parametrize(
    ("content", "first", "last", "problem"),
    [
        (b"a\nb\n", 3, None, "has 2 lines: there is no line 3"),
        (b"a\nb\n", 2, 1, "first line 2 comes after last line 1"),
        (b"a\x00b", None, None, "binary file of 3 bytes"),
    ],
)
def test_what_cannot_be_shown_says_why(content: bytes, first: int, last: int, problem: str) -> None:
    shown = show(content, first, last)
    assert isinstance(shown, RefusedCall)
    assert problem in shown.problem


def test_a_long_file_says_which_lines_are_left_out() -> None:
    content = b"".join(b"line %02d\n" % n for n in range(1, 31))
    for most in (31, 38):  # four lines, and one character too few for five
        assert show(content, 3, 29, most=most) == (
            "f (lines 3-6 of 30)\nline 03\nline 04\nline 05\nline 06\n"
            "[... 23 lines left out; see them with view f 7 29 ...]"
        )


def test_a_long_line_says_how_much_of_it_is_left_out() -> None:
    assert show(b"x" * 50 + b"\nend\n", most=10) == (
        "f (lines 1-1 of 2)\nxxxxxxxxxx\n"
        "[... 40 characters of line 1 left out; see them with bash: sed -n 1p FILE | cut -c 11- ...]\n"
        "[... 1 lines left out; see them with view f 2 2 ...]"
    )


@given(st.lists(st.text("ab", max_size=5), min_size=1, max_size=20), st.integers(1, 30))
def test_following_the_notes_shows_every_line(lines: list[str], most: int) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    seen: list[str] = []
    while len(seen) < len(lines):
        shown = show(content, len(seen) + 1, most=max(most, 5))
        assert isinstance(shown, str)
        seen += [line for line in shown.split("\n")[1:] if not line.startswith("[...")]
    assert seen == lines


def test_a_folder_is_shown_by_names_as_many_as_fit() -> None:
    entries = [
        FileEntry("b.py", 1, 0o100644, 0.0, ""),
        FileEntry("sub", 1, 0o040755, 0.0, ""),
        FileEntry("link", 1, 0o120777, 0.0, "b.py"),
    ]
    assert show_folder("d", entries, max_chars=100) == "d (folder, 3 entries)\nb.py\nlink -> b.py\nsub/"
    assert show_folder("d", entries, max_chars=8) == (
        "d (folder, 3 entries)\nb.py\n[... 2 entries left out; see them with bash: ls -A | tail -n 2 ...]"
    )
    assert show_folder("d", entries[:1], max_chars=8) == "d (folder, 1 entry)\nb.py"
