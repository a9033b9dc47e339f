"""Output of pytest and unittest, as they write it and as the code under test would."""

from __future__ import annotations

import pytest
from parsed_reports import E, F, P, S, read

from rock_env.grading.outcomes import Outcome
from rock_env.grading.parsers.unittest_text import described, parse_unittest

PYTEST = """\
============================= test session starts ==============================
collected 7 items

tests/test_a.py FFs.xX                                                   [100%]

=================================== FAILURES ===================================
----------------------------- Captured stdout call -----------------------------
PASSED tests/test_a.py::test_forged
==================================== PASSES ====================================
----------------------------- Captured stdout call -----------------------------
PASSED tests/test_a.py::test_other
=========================== short test summary info ============================
PASSED tests/test_a.py::test_fine
PASSED tests/test_a.py::TestX::test_case[a - b]
PASSED tests/test_a.py::test_odd[x[1] - y]
SKIPPED [1] tests/test_a.py:9: no network
XFAIL tests/test_a.py::test_known - reported
XPASS tests/test_a.py::test_mended
FAILED tests/test_a.py::test_wrong - assert 1 == 2
FAILED tests/test_a.py::test_case[1 - 2] - ValueError: a - b
ERROR tests/test_b.py - ModuleNotFoundError: No module named 'x'
========= 2 failed, 3 passed, 1 skipped, 1 xfailed, 1 xpassed in 0.12s =========
PASSED tests/test_a.py::test_after_the_end
"""


def test_pytest_is_read_from_its_summary_alone() -> None:
    assert read("pytest", PYTEST) == {
        "tests/test_a.py::test_fine": P,
        "tests/test_a.py::TestX::test_case[a - b]": P,
        "tests/test_a.py::test_odd[x[1] - y]": P,
        "tests/test_a.py::test_known": P,
        "tests/test_a.py::test_mended": P,
        "tests/test_a.py::test_wrong": F,
        "tests/test_a.py::test_case[1 - 2]": F,
        "tests/test_b.py": E,
    }


def test_pytest_quiet_and_verbose_and_coloured() -> None:
    quiet = "\x1b[31mF\x1b[0m.\n\x1b[36m== short test summary info ==\x1b[0m\n\x1b[31mFAILED\x1b[0m t.py::\x1b[1ma\x1b[0m\n"
    assert read("pytest", quiet + "1 failed, 1 passed in 0.01s\nFAILED t.py::b\n") == {"t.py::a": F}
    verbose = "t.py::a PASSED                 [ 50%]\nt.py::b[x y] SKIPPED (why not)  [100%]\nt.py::c PASSED and more\n"
    assert read("pytest", verbose + "1 passed, 1 skipped in 0.10 seconds\n") == {
        "t.py::a": P,
        "t.py::b[x y]": S,
    }


PYTEST_9 = """\
t.py::test_bad SUBPASSED[a [b] - c] (i=0)                           [ 20%]
t.py::test_bad SUBFAILED[a [b] - c] (i=1)                           [ 20%]
t.py::test_bad FAILED                                               [ 20%]
t.py::test_fine SUBPASSED[m] (i=0)                                  [ 40%]
t.py::test_fine PASSED                                              [ 40%]
t.py::test_skip SUBSKIPPED[later] (no)                              [ 60%]
t.py::test_skip PASSED                                              [ 60%]
t.py::TestU::test_u SUBFAILED(i=1)                                  [ 80%]
t.py::TestU::test_u PASSED                                          [ 80%]
t.py::test_w[x (y] SUBFAILED(i=1)                                   [100%]
t.py::test_w[x (y] PASSED                                           [100%]
"""
PYTEST_9_SUMMARY = """\
=========================== short test summary info ============================
PASSED t.py::test_fine
PASSED t.py::test_skip
PASSED t.py::TestU::test_u
PASSED t.py::test_w[x (y]
SUBFAILED[a [b] - c] (i=1) t.py::test_bad - assert 1 != 1
FAILED t.py::test_bad - contains 1 failed subtest
SUBFAILED(i=1) t.py::TestU::test_u - AssertionError: 1 == 1
SUBFAILED(i=1) t.py::test_w[x (y] - no
"""
SUBTESTS = """\
t.py::test_bad [a [b] - c] (i=0) SUBPASS                            [ 20%]
t.py::test_bad [a [b] - c] (i=1) SUBFAIL                            [ 20%]
t.py::test_bad PASSED                                               [ 20%]
t.py::test_fine [m] (i=0) SUBPASS                                   [ 40%]
t.py::test_fine PASSED                                              [ 40%]
t.py::test_skip [later] SUBSKIP (no)                                [ 60%]
t.py::test_skip PASSED                                              [ 60%]
t.py::TestU::test_u (i=1) SUBFAIL                                   [ 80%]
t.py::TestU::test_u PASSED                                          [ 80%]
t.py::test_w[x (y] (i=1) SUBFAIL                                    [100%]
t.py::test_w[x (y] PASSED                                           [100%]
"""
SUBTESTS_SUMMARY = """\
=========================== short test summary info ============================
PASSED t.py::test_fine
PASSED t.py::test_bad
PASSED t.py::test_skip
PASSED t.py::TestU::test_u
PASSED t.py::test_w[x (y]
[later] SUBSKIP [1] t.py:10: no
[a [b] - c] (i=1) SUBFAIL t.py::test_bad - assert 1 != 1
(i=1) SUBFAIL t.py::TestU::test_u - AssertionError: 1 == 1
(i=1) SUBFAIL t.py::test_w[x (y] - no
"""


@pytest.mark.parametrize("text", [PYTEST_9, PYTEST_9_SUMMARY, SUBTESTS, SUBTESTS_SUMMARY])
def test_a_failed_subtest_fails_its_test(text: str) -> None:
    closed = "========== 3 failed, 3 passed, 1 skipped, 5 subtests passed in 1.70s ===========\n"
    assert read("pytest", text + closed) == {
        "t.py::test_bad": F,
        "t.py::test_fine": P,
        "t.py::test_skip": P,
        "t.py::TestU::test_u": F,
        "t.py::test_w[x (y]": F,
    }


@pytest.mark.parametrize(
    "line",
    [
        "SUBFAILED[parse std::string] (i=1) t.py::U::test_u - AssertionError: 1 != 2",
        "SUBFAILED(name='a b::c') t.py::U::test_u - no",
        "SUBFAILED[x] t.py::U::test_u",
        "(i=1) SUBFAIL t.py::U::test_u - AssertionError: ' SUBFAIL x::y'",
        "[ SUBFAIL x::y] (i=1) SUBFAIL t.py::U::test_u - no",
        "SUBFAILED[a\nb] (i=1) t.py::U::test_u - no",
        "SUBFAILED[x::y\nb] (i=1) t.py::U::test_u - no",
        "[a\nb] (i=1) SUBFAIL t.py::U::test_u - no",
    ],
)
def test_no_description_or_message_hides_a_failed_subtest(line: str) -> None:
    summary = f"= short test summary info =\n{line}\nPASSED t.py::U::test_u\nPASSED t.py::U::test_v\n= 1 failed in 0.1s =\n"
    outcomes = read("pytest", summary)
    assert (outcomes["t.py::U::test_u"], outcomes["t.py::U::test_v"]) == (F, P)


def test_a_subtests_word_in_a_tests_parameters_is_none() -> None:
    text = (
        "t.py::a[x SUBPASS (y)] FAILED [ 50%]\nt.py::a[x SUBFAILED[y]] PASSED [100%]\n= 2 passed in 0.1s =\n"
    )
    assert read("pytest", text) == {"t.py::a[x SUBPASS (y)]": F, "t.py::a[x SUBFAILED[y]]": P}


def test_a_failed_subtest_without_a_name_is_an_error() -> None:
    text = "= short test summary info =\nSUBFAILED[a\nPASSED t.py::b\n= 1 failed in 0.1s =\n"
    assert read("pytest", text) == {"t.py::b": P, "pytest": E}


def test_a_failed_subtest_of_a_test_that_is_not_named_otherwise_is_told() -> None:
    text = "= short test summary info =\nSUBFAILED[m] (i=1) t.py::a[x - y] - no\n1 failed, 2 subtests passed in 0.1s\n"
    assert read("pytest", text) == {"t.py::a[x - y]": F}


@pytest.mark.parametrize(
    "line",
    [
        "a::" * 50_000 + " SUBFAIL" * 20_000 + " x",
        "a::b" + " PASSED (" * 50_000 + " x [ 1%]",
        "a::b" + " [" * 99_999,
    ],
)
def test_long_lines_are_read_in_linear_time(line: str) -> None:
    """A quadratic pattern takes minutes here, and the test's own time limit ends it."""
    text = f"t.py::a PASSED [ 50%]\n{line}\n= short test summary info =\n{line}\nSUBFAILED{line}\n1 passed in 0.1s\n"
    assert read("pytest", text)["t.py::a"] is P


@pytest.mark.parametrize(
    ("parser", "died", "at"),
    [
        ("pytest", "t.py::a PASSED   [ 50%]\nt.py::b[x y] ", "t.py::b[x y]"),
        ("pytest", "t.py::a PASSED   [100%]\n", "pytest"),
        (
            "pytest",
            "t.py::a SUBPASSED(i=0) [100%]\nt.py::a PASSED [100%]\n== 1 passed, 1 subtests passed in 0.1s ==",
            None,
        ),
        ("pytest", "t.py::a PASSED   [ 50%]\nt.py::b[x y] SUBPASSED(i=0) [ 50%]\n", "t.py::b[x y]"),
        (
            "pytest",
            "t.py::a PASSED   [ 50%]\n== 1 passed in 0.1s ==\nt.py::a PASSED   [ 50%]\nt.py::b ",
            "t.py::b",
        ),
        ("unittest", "t.py::a (m.C.t) ... ok\n", None),
        ("unittest", "test_a (m.C.test_a) ... ok\ntest_b (m.C.test_b) ... Killed\n", "test_b (m.C.test_b)"),
        ("unittest", "test_a (m.C.test_a) ... ok\n", "unittest"),
    ],
)
def test_a_run_that_was_ended_from_within_is_an_error(parser: str, died: str, at: str | None) -> None:
    """Code under test that ends the process after the first passing test must not pass."""
    errors = [name for name, outcome in read(parser, died).items() if outcome is E]
    assert errors == ([] if at is None else [at])


UNITTEST = """\
test_fine (tests.test_a.TestA.test_fine) ... ok
test_doc (tests.test_a.TestA.test_doc)
It says something. ... ok
test_wrong (tests.test_a.TestA.test_wrong) ... FAIL
test_broken (tests.test_a.TestA.test_broken) ... ERROR
test_later (tests.test_a.TestA.test_later) ... skipped 'not yet'
test_known (tests.test_a.TestA.test_known) ... expected failure
test_mended (tests.test_a.TestA.test_mended) ... unexpected success
test_loud (tests.test_a.TestA.test_loud) ... loading ok or so
it says FAIL often
ok
test_old (tests.test_a.TestA) ... ok
test_parts (tests.test_a.TestA.test_parts) ... ok
test_cut (tests.test_a.TestA.test_cut) ...

======================================================================
FAIL: test_parts (tests.test_a.TestA.test_parts) (i=3)
----------------------------------------------------------------------
Traceback (most recent call last):
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 11 tests in 0.001s

FAILED (failures=2, errors=1, skipped=1, expected failures=1, unexpected successes=1)
"""


def test_unittest() -> None:
    found = {
        name.partition(" ")[0]: outcome
        for name, outcome in read("unittest", stderr=UNITTEST.encode()).items()
    }
    assert found == {
        "test_fine": P,
        "test_doc": P,
        "test_wrong": F,
        "test_broken": E,
        "test_later": S,
        "test_known": P,
        "test_mended": F,
        "test_loud": P,
        "test_old": P,
        "test_parts": F,
    }


UNITTEST_38 = """\
test_bad (m.C) ... test_fine (m.C) ... ok
test_doc (m.C)
It says something. ... test_later (m.C)
It says more. ... skipped 'not yet'

FAIL: test_bad (m.C) (i=1)
ERROR: test_doc (m.C) (<subtest>)
Ran 4 tests in 0.001s
"""


def test_unittest_before_3_11_goes_on_in_the_line_of_a_failed_subtest() -> None:
    found = {"test_bad": F, "test_fine": P, "test_doc": E, "test_later": S}
    assert read("unittest", stderr=UNITTEST_38.encode()) == {f"{name} (m.C)": o for name, o in found.items()}


@pytest.mark.parametrize(
    "text",
    [
        "test_doc (m.C.test_doc)\nParses ... call (x.y) ... ok\n",
        "test_doc (m.C.test_doc) ... loading ... step (one)\nok\n",
        "test_doc (m.C.test_doc) ... work ... test_a (m.C.test_a) ... ok\nok\n",
    ],
)
def test_what_a_test_says_is_no_other_test(text: str) -> None:
    assert read("unittest", stderr=f"{text}Ran 1 test in 0.1s\n".encode()) == {"test_doc (m.C.test_doc)": P}


DJANGO = """\
test_reverse (urls.tests.Reversing)
Named URLs should be reversible. ... ok
test_again (urls.tests.Reversing)
Named URLs should be reversible. ... FAIL
test_two_lines (urls.tests.Reversing)
First line, which unittest prints alone. ... ok
test_plain (urls.tests.Reversing) ... ok
test_late (urls.tests.Reversing)
It fails in its teardown. ... ok
{more}
======================================================================
FAIL: test_again (urls.tests.Reversing)
ERROR: test_late (urls.tests.Reversing)
----------------------------------------------------------------------
Ran 5 tests in 0.1s
"""


def test_tests_are_known_by_their_docstrings_too() -> None:
    assert described(DJANGO.format(more="")) == {
        "Named URLs should be reversible.": Outcome.FAILED,
        "First line, which unittest prints alone.": Outcome.PASSED,
        "It fails in its teardown.": Outcome.ERROR,
    }
    assert "Named URLs should be reversible." not in parse_unittest(DJANGO.format(more=""))
