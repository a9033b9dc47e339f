"""Reports of test runners, as they write them and as an attacker would, read into outcomes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed_reports import E, F, P, S, read

from rock_env.grading import EXIT_CODE, PARSERS, Outcome, Unreadable
from rock_env.grading.outcomes import worst
from rock_env.grading.parsers import Left


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


@pytest.mark.parametrize(
    ("results", "outcome"),
    [(["PASSED"], P), (["FAILED"], F), (["PASSED", "FAILED"], F), (["FAILED", "PASSED"], F)],
)
def test_the_result_of_the_adapter_of_swe_bench(results: list[str], outcome: Outcome) -> None:
    marks = "SWEBench results starts here\n{}\nSWEBench results ends here\n"
    assert read("swebench", "noise\n" + "".join(map(marks.format, results))) == {"tests": outcome}


@pytest.mark.parametrize(
    "text", ["", "PASSED\n", "SWEBench results starts here\nmaybe\nSWEBench results ends here\n"]
)
def test_no_result_of_the_adapter_is_no_outcome(text: str) -> None:
    with pytest.raises(Unreadable):
        read("swebench", text)


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
