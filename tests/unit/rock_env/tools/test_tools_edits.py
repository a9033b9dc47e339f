"""Edits: one place changes, nothing else does, and undoing gives the same bytes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.tools.calls import Edit
from rock_env.tools.edits import Applied, RefusedCall, apply_edit, take_back


def edit(content: bytes, old: str, new: str) -> Applied | RefusedCall:
    return apply_edit(content, Edit("a.py", old, new))


@pytest.mark.parametrize(
    ("content", "old", "new", "after", "said"),
    [
        (b"a\nb\nc\n", "b", "B", b"a\nB\nc\n", "Edited a.py: lines 2-2."),
        (b"a\nb\nc\n", "b\nc", "x\ny\nz", b"a\nx\ny\nz\n", "Edited a.py: lines 2-4."),
        (b"a\nb\nc\n", "b\n", "x\ny\n", b"a\nx\ny\nc\n", "Edited a.py: lines 2-3."),
        (b"x = f(1)\n", "f(", "g(", b"x = g(1)\n", "Edited a.py: lines 1-1."),
        (b"a\nb\nc\n", "b", "", b"a\nc\n", "Edited a.py: removed lines 2-2."),
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n", "Edited a.py: removed lines 2-2."),
        (b"a\nb\nc\n", "a\nb", "", b"c\n", "Edited a.py: removed lines 1-2."),
        (b"a b c\n", "b ", "", b"a c\n", "Edited a.py: removed lines 1-1."),
        (b"a\n  b\n", "b", "", b"a\n  \n", "Edited a.py: removed lines 2-2."),
        (b"a\nb", "b", "c\nd", b"a\nc\nd", "Edited a.py: lines 2-3."),
        (b"a\nb", "b", "", b"a\n", "Edited a.py: removed lines 2-2."),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n", "Edited a.py: lines 1-3."),
        (b"a\r\nb\r\nc\r\n", "b", "", b"a\r\nc\r\n", "Edited a.py: removed lines 2-2."),
        (b"a\r\nb\r\n", "a\r\nb", "c\r\nd", b"c\r\nd\r\n", "Edited a.py: lines 1-2."),
        (b"a\r\nb", "b", "c\nd", b"a\r\nc\r\nd", "Edited a.py: lines 2-3."),
        (b"a\r\nb\nc\n", "b", "x\ny", b"a\r\nx\ny\nc\n", "Edited a.py: lines 2-3."),
        (b"a\r\nb\nc\n", "a", "x\ny", b"x\r\ny\r\nb\nc\n", "Edited a.py: lines 1-2."),
        (b"\xff\xfe x\n\xe9", "x", "y", b"\xff\xfe y\n\xe9", "Edited a.py: lines 1-1."),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n", "Edited a.py: lines 1-1."),
        ("é = 1\nü = 2\n".encode(), "ü", "ö", "é = 1\nö = 2\n".encode(), "Edited a.py: lines 2-2."),
    ],
)
def test_one_place_changes(content: bytes, old: str, new: str, after: bytes, said: str) -> None:
    done = edit(content, old, new)
    assert isinstance(done, Applied)
    assert (done.content, done.said) == (after, said)
    assert take_back(after, done.undoing) == content


@pytest.mark.parametrize(
    ("content", "old", "problem"),
    [
        (b"a\nb\na\nb\n", "a\nb", "2 matches in a.py (at lines 1, 3)"),
        (b"aaa\n", "aa", "2 matches in a.py (at lines 1, 1)"),
        (b"x\n" * 20, "x", "20 matches in a.py (at lines 1, 2, 3, 4, 5, 6, 7, 8, ...)"),
        (b"a\x00b", "a", "binary"),
        (b"a\n\nb\n", "a\nb", "not one after another"),
        (b"def f():\n\treturn 1\n", "    return 1", r"other blanks than line 2, '\treturn 1'"),
        (b"alpha\nvalue = total + 1\n", "value = total - 1", "closest is line 2, 'value = total + 1'"),
        (b"alpha\n", "something else", "no line is like its line 'something else'"),
        (b"", "x", "no line is like"),
        (b"a\n", "a", "the same"),
    ],
)
def test_a_refusal_says_how_many_matches_and_what_to_do(content: bytes, old: str, problem: str) -> None:
    done = edit(content, old, "a")
    assert isinstance(done, RefusedCall)
    assert problem in done.problem


def test_a_refusal_of_long_lines_is_short() -> None:
    done = edit(b"y" * 100_000, "x" * 100_000, "")
    assert isinstance(done, RefusedCall)
    assert len(done.problem) < 1000


def test_what_was_changed_since_is_not_taken_back() -> None:
    done = edit(b"a\nb\n", "a", "c")
    assert isinstance(done, Applied)
    assert take_back(b"c\nB\n", done.undoing) is None


CONTENTS = st.one_of(st.binary(max_size=60), st.text("ab \n\r\u00e9", max_size=30).map(str.encode))
SMALL = st.text("ab \n\r\u00e9", max_size=6)


@given(CONTENTS, SMALL.filter(bool), SMALL)
def test_undoing_restores_the_bytes(content: bytes, old: str, new: str) -> None:
    done = edit(content, old, new)
    if isinstance(done, Applied):
        assert done.content != content
        assert take_back(done.content, done.undoing) == content


@given(st.text("ab \n", max_size=30), st.text("ab \n", min_size=1, max_size=5), st.text("ab \n", max_size=5))
def test_an_edit_is_what_replacing_the_one_match_is(text: str, old: str, new: str) -> None:
    count = sum(text.startswith(old, at) for at in range(len(text)))
    done = edit(text.encode(), old, new)
    assert isinstance(done, Applied) == (count == 1 and old != new)
    if isinstance(done, Applied) and new:
        assert done.content.decode() == text.replace(old, new)
    elif isinstance(done, Applied):
        whole = f"\n{text}".replace(f"\n{old}\n", "\n")[1:]
        assert done.content.decode() in (text.replace(old, ""), whole)


@given(st.text("ab\n", max_size=30), st.text("ab\n", min_size=1, max_size=5), st.text("ab\n", max_size=5))
def test_a_file_with_crlf_is_edited_as_one_without(text: str, old: str, new: str) -> None:
    plain, crlf = edit(text.encode(), old, new), edit(text.replace("\n", "\r\n").encode(), old, new)
    assert type(plain) is type(crlf)
    if isinstance(plain, Applied) and isinstance(crlf, Applied):
        assert crlf.said == plain.said
        if "\n" in text:
            assert crlf.content == plain.content.replace(b"\n", b"\r\n")
