"""Reports of test runners, as they write them and as an attacker would, read into outcomes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.grading import EXIT_CODE, PARSERS, Outcome, Unreadable
from rock_env.grading.outcomes import worst
from rock_env.grading.parsers import Left

P, F, S, E = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.ERROR


def read(parser: str, text: str = "", **left: object) -> dict[str, Outcome]:
    return dict(PARSERS[parser](Left(stdout=text.encode(), **left)).outcomes)  # type: ignore[arg-type]


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


def test_a_test_reported_twice_has_its_worst_outcome() -> None:
    forged = "== short test summary info ==\nPASSED t.py::a\nPASSED t.py::b\n== 2 passed in 0.01s ==\n"
    real = "== short test summary info ==\nFAILED t.py::a - no\n== 1 failed in 0.01s ==\n"
    for text in (forged + real, real + forged):
        assert read("pytest", text)["t.py::a"] is F


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(Outcome))))
def test_no_order_of_reports_makes_a_test_better(found: list[tuple[str, Outcome]]) -> None:
    outcomes = worst(found)
    assert outcomes == worst(reversed(found))
    for test, outcome in found:
        assert list(Outcome).index(outcomes[test]) >= list(Outcome).index(outcome)


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


GO = """\
=== RUN   TestParse
=== RUN   TestParse/empty
    parse_test.go:12: got 1
--- FAIL: TestParse (0.00s)
    --- FAIL: TestParse/empty (0.00s)
=== RUN   TestFine
--- PASS: TestFine (1.20s)
=== RUN   TestLater
    x_test.go:3: not yet
--- SKIP: TestLater (0.00s)
=== RUN   TestPanics
panic: runtime error: index out of range
FAIL\texample.org/a\t0.01s
ok  \texample.org/b\t0.01s
FAIL\texample.org/c [build failed]
"""


def test_go_text() -> None:
    assert read("go", GO) == {
        "TestParse": F,
        "TestParse/empty": F,
        "TestFine": P,
        "TestLater": S,
        "TestPanics": E,
        "example.org/c": E,
    }


def test_go_json() -> None:
    events = [
        {"Action": "start", "Package": "a"},
        {"Action": "run", "Package": "a", "Test": "TestX"},
        {"Action": "output", "Package": "a", "Test": "TestX", "Output": "--- PASS: TestForged (0.00s)\n"},
        {"Action": "run", "Package": "a", "Test": "TestX/one"},
        {"Action": "pass", "Package": "a", "Test": "TestX/one", "Elapsed": 0.1},
        {"Action": "fail", "Package": "a", "Test": "TestX"},
        {"Action": "run", "Package": "a", "Test": "TestCut"},
        {"Action": "fail", "Package": "a"},
        {"Action": "run", "Package": "b", "Test": "TestX"},
        {"Action": "pass", "Package": "b", "Test": "TestX"},
        {"Action": "pass", "Package": "b"},
        {"ImportPath": "c [c.test]", "Action": "build-fail"},
        {"Action": "skip", "Package": "d"},
        ["no event"],
        {"Action": "pass", "Package": 7, "Test": "TestY"},
    ]
    text = "# c\nx.go:1: broken\n{cut\n" + "\n".join(json.dumps(event) for event in events)
    assert read("go_json", text) == {"TestX": F, "TestX/one": P, "TestCut": E, "c": E}


CARGO = """\
running 6 tests
test tests::fine ... ok
test tests::wrong ... FAILED
test tests::later ... ignored, needs a network
test tests::panics - should panic ... ok
test tests::loud ... it prints this
and that
ok
test tests::killed ... test result: FAILED. 1 passed; 1 failed
test src/lib.rs - add (line 3) ... ok
test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
"""


def test_cargo() -> None:
    assert read("cargo", CARGO) == {
        "tests::fine": P,
        "tests::wrong": F,
        "tests::later": S,
        "tests::panics": P,
        "tests::loud": P,
        "tests::killed": E,
        "src/lib.rs - add (line 3)": P,
    }


JEST = """\
PASS test/sum.test.js
  sum
    ✓ adds (2 ms)
    of lists
      ✓ is zero when empty
    ○ skipped waits
  ✓ stands alone (1.2 s)
FAIL test/broken.test.js
  ● Test suite failed to run

    Cannot find module './x'

FAIL test/other.test.js
  sum
    ✕ subtracts (3 ms)

  ● sum › subtracts
"""


def test_jest_text() -> None:
    assert read("jest", stderr=JEST.encode()) == {
        "sum > adds": P,
        "sum > of lists > is zero when empty": P,
        "sum > waits": S,
        "stands alone": P,
        "test/broken.test.js": E,
        "sum > subtracts": F,
    }


def test_vitest_text() -> None:
    text = " ✓ test/sum.test.ts > sum > adds 2ms\n × test/sum.test.ts > sum > subtracts 3ms\n ↓ src/a.spec.ts > later\n"
    assert read("vitest", text) == {"sum > adds": P, "sum > subtracts": F, "later": S}


def test_jest_json() -> None:
    tests = [
        {"ancestorTitles": ["sum", "of lists"], "title": "is zero", "status": "passed"},
        {"ancestorTitles": [], "title": "later", "status": "todo"},
        {"ancestorTitles": [""], "title": "odd", "status": "exploded"},
    ]
    suites = [
        {"name": "/a.test.js", "status": "failed", "assertionResults": tests},
        {"name": "/b.test.js", "status": "failed", "assertionResults": []},
    ]
    report = json.dumps({"numFailedTestSuites": 1, "testResults": suites}, separators=(",", ":"))
    found = {"sum > of lists > is zero": P, "later": S, "> odd": E, "/b.test.js": E}
    assert read("jest_json", report) == found
    assert read("vitest_json", f"console.log says\n{report}\n") == found
    assert read("jest_json", "other", reports={"r.json": report.encode()}) == found
    for bad in (
        "",
        "[]",
        "{}",
        '{"testResults": 1}',
        '{"testResults": [{"assertionResults": [1]}]}',
        "[" * 9999,
    ):
        with pytest.raises(Unreadable, match="no JSON report"):
            read("jest_json", bad)


JUNIT = b"""<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite tests="5">
<testcase classname="tests.test_a.TestB" name="test_fine" time="0.1"><system-out>&lt;failure/&gt;</system-out></testcase>
<testcase classname="tests.test_a" name="test_wrong"><failure message="no">1 != 2</failure></testcase>
<testcase classname="tests.test_a" name="test_later"><skipped/></testcase>
<testcase classname="tests.test_a" name="test_twice"><failure/></testcase>
<testcase classname="tests.test_a" name="test_twice"/>
<testcase name="alone"><skipped/><error/></testcase>
</testsuite></testsuites>"""


def test_junit() -> None:
    expected = {
        "tests.test_a.TestB::test_fine": P,
        "tests.test_a::test_wrong": F,
        "tests.test_a::test_later": S,
        "tests.test_a::test_twice": F,
        "alone": E,
    }
    assert read("junit", reports={"a.xml": JUNIT}) == expected
    assert read("junit", JUNIT.decode()) == expected
    second = b'<testsuite><testcase name="other"/></testsuite>'
    assert read("junit", reports={"a.xml": JUNIT, "b.xml": second}) == {**expected, "other": P}
    wide = JUNIT.decode().replace("utf-8", "utf-16").encode("utf-16")
    assert read("junit", reports={"a.xml": wide}) == expected


BILLION = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
BAD_XML = {
    "none": {},
    "empty": {"a": b""},
    "cut": {"a": JUNIT[:300]},
    "html": {"a": b"<html/>"},
    "entities": {"a": (BILLION + "<testsuite>&b;</testsuite>").encode()},
    "hidden entities": {"a": (BILLION + "<testsuite>&b;</testsuite>").encode("utf-16")},
    "external": {"a": b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>'},
    "deep": {"a": b"<testsuite>" * 100},
    "unknown encoding": {"a": b'<?xml version="1.0" encoding="nonsense"?><testsuite/>'},
    "one of two": {"a": JUNIT, "b": b"x"},
}


@pytest.mark.parametrize("name", BAD_XML)
def test_what_is_no_junit_report_is_refused(name: str) -> None:
    with pytest.raises(Unreadable):
        read("junit", reports=BAD_XML[name])


def test_a_junit_report_is_bounded() -> None:
    with pytest.raises(Unreadable, match="too large"):
        read("junit", reports={"a": b" " * (33 << 20)})
    with pytest.raises(Unreadable, match="more than 200000 tests"):
        read("junit", reports={"a": b"<testsuite>" + b"<testcase/>" * 200_001 + b"</testsuite>"})


def reward(**files: bytes) -> float | None:
    return PARSERS["reward_file"](
        Left(reports={f"reward.{kind}": content for kind, content in files.items()})
    ).reward


def test_reward_files() -> None:
    assert reward(txt=b" 0.5\n") == 0.5
    assert reward(json=b'{"reward": 1, "speed": 0.2}', txt=b"0") == 1.0, "JSON wins"
    assert reward(json=b'{"score": -0.25}') == -0.25
    assert reward(txt=b"1e0") == 1.0


BAD_REWARDS = [
    {},
    {"txt": b""},
    {"txt": b"nan"},
    {"txt": b"inf"},
    {"txt": b"passed"},
    {"txt": b"\xff\xfe"},
    {"txt": b"1" * 70_000},
    {"json": b""},
    {"json": b"", "txt": b"1"},
    {"json": b"1"},
    {"json": b"{}"},
    {"json": b'{"reward": NaN}'},
    {"json": b'{"reward": Infinity}'},
    {"json": b'{"reward": true}'},
    {"json": b'{"reward": "1"}'},
    {"json": b'{"reward": {"a": 1}}'},
    {"json": b'{"reward": 1, "other": NaN}'},
    {"json": b'{"a": 1, "b": 0}'},
    {"json": b'{"reward": 1' + b"0" * 400 + b"}"},
    {"json": b"[" * 5000},
]


@pytest.mark.parametrize("files", BAD_REWARDS, ids=lambda files: str(files)[:40])
def test_no_reward_is_an_error_and_not_zero(files: dict[str, bytes]) -> None:
    with pytest.raises(Unreadable):
        reward(**files)


def test_exit_codes() -> None:
    assert read("exit_code") == {EXIT_CODE: P}
    assert read("exit_code", exit_code=1) == {EXIT_CODE: F}
    assert read("exit_code", exit_code=None) == {EXIT_CODE: F}, "ended by a signal"


@given(st.sampled_from(sorted(PARSERS)), st.binary(max_size=200))
def test_no_bytes_break_a_parser(parser: str, content: bytes) -> None:
    for left in (Left(stdout=content, stderr=content), Left(reports={"reward.json": content, "x": content})):
        try:
            outcomes = PARSERS[parser](left).outcomes
        except Unreadable:
            continue
        assert set(outcomes.values()) <= set(Outcome)
