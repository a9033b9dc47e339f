"""From what a verifier showed to a reward: all or nothing, shares, its own rewards, and what is no grade at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rock_env.errors import InfraError
from rock_env.grading import Outcome, Report, steers_tests, verdict_of
from rock_env.grading.model import Verifier

P, F, S, E = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.ERROR
VERIFIER = Verifier(command=("true",), parser="pytest", must_pass=("a", "b"), keep_passing=("k",))
PARTIAL = replace(VERIFIER, partial=True)
ALL = Verifier(command=("true",), parser="pytest")


@pytest.mark.parametrize(
    ("outcomes", "reward", "share"),
    [
        ({"a": P, "b": P, "k": P}, 1.0, 1.0),
        ({"a": P, "b": P, "k": P, "other": F}, 1.0, 1.0),
        ({"a": P, "b": F, "k": P}, 0.0, 0.5),
        ({"a": P, "b": S, "k": P}, 0.0, 0.5),
        ({"a": P, "k": P}, 0.0, 0.5),
        ({"a": P, "b": P, "k": E}, 0.0, 0.0),
        ({"a": P, "b": P}, 0.0, 0.0),
        ({}, 0.0, 0.0),
    ],
)
def test_required_tests(outcomes: dict[str, Outcome], reward: float, share: float) -> None:
    verdict = verdict_of(Report(outcomes), VERIFIER)
    assert (verdict.reward, verdict.passed) == (reward, reward == 1.0)
    verdict = verdict_of(Report(outcomes), PARTIAL)
    assert (verdict.reward, verdict.passed) == (share, reward == 1.0)


@pytest.mark.parametrize(
    ("outcomes", "reward", "share"),
    [
        ({"a": P, "b": P}, 1.0, 1.0),
        ({"a": P, "b": S}, 1.0, 1.0),
        ({"a": P, "b": E}, 0.0, 0.5),
        ({"a": S}, 0.0, 0.0),
    ],
)
def test_every_test_where_none_is_named(outcomes: dict[str, Outcome], reward: float, share: float) -> None:
    assert verdict_of(Report(outcomes), ALL).reward == reward
    assert verdict_of(Report(outcomes), replace(ALL, partial=True)).reward == share


def test_tests_that_only_have_to_go_on_passing() -> None:
    verifier = Verifier(command=("true",), parser="pytest", keep_passing=("k",), partial=True)
    assert verdict_of(Report({"k": P}), verifier).reward == 1.0
    assert verdict_of(Report({"k": F, "x": P}), verifier).reward == 0.0


@pytest.mark.parametrize(
    ("outcomes", "reward"),
    [
        ({"t::a[x y]": P, "t::b": P}, 1.0),
        ({"t::a[x y]": F, "t::b": P}, 0.0),
        ({"t::a[x y]": P, "t::a[x z]": P, "t::b": P}, 1.0),
        ({"t::a[x y]": P, "t::a[x z]": F, "t::b": P}, 0.0),
        ({"t::a[xy]": P, "t::b": P}, 0.0),
        ({"t::a[x y]": P, "t::b more": F, "t::b": P}, 1.0),
    ],
)
def test_names_that_end_at_their_first_space(outcomes: dict[str, Outcome], reward: float) -> None:
    verifier = Verifier(command=("true",), parser="pytest", must_pass=("t::a[x", "t::b"), cut_at_space=True)
    verdict = verdict_of(Report(outcomes), verifier)
    assert verdict.reward == reward
    assert ("1 by names that end at a space" in verdict.details) is ("t::a[x y]" in outcomes)
    assert verdict_of(Report(outcomes), replace(verifier, cut_at_space=False)).reward == 0.0


@pytest.mark.parametrize(
    ("outcomes", "described", "reward"),
    [
        ({"a.py::test_x": P}, {"It adds.": P}, 1.0),
        ({"a.py::T::test_x": P}, {"It adds.": P}, 1.0),
        ({"a.py::test_x": F}, {"It adds.": P}, 0.0),
        ({"a.py::test_x": P, "b.py::test_x": F}, {"It adds.": P}, 0.0),
        ({"a.py::test_x": P}, {"It adds.": F}, 0.0),
        ({"a.py::test_x": P}, {}, 0.0),
        ({"a.py::test_xy": P}, {"It adds.": P}, 0.0),
        ({"test_x": F, "a.py::test_x": P}, {"It adds.": P}, 0.0),
        ({"a.py::test_x": P, "It adds.": P}, {"It adds.": F}, 1.0),
    ],
)
def test_names_that_are_docstrings_or_lack_the_file(
    outcomes: dict[str, Outcome], described: dict[str, Outcome], reward: float
) -> None:
    verifier = Verifier(command=("true",), parser="pytest", must_pass=("test_x",), keep_passing=("It adds.",))
    verdict = verdict_of(Report(outcomes, described=described), verifier)
    assert verdict.reward == reward
    if reward and "It adds." not in outcomes:
        assert "2 by docstrings or names without a file or folders" in verdict.details


@pytest.mark.parametrize(
    ("outcomes", "reward"),
    [
        ({"u.py::test_p[/testbed/tests/a.py]": P}, 1.0),
        ({"u.py::test_p[/testbed/tests/a.py]": P, "u.py::test_p[/srv/a.py]": F}, 0.0),
        ({"u.py::test_p[/testbed/tests/b.py]": P}, 0.0),
        ({"u.py::test_p[//testbed/tests/a.py]": P}, 0.0),
        ({"u.py::test_p[x/tests/a.py]": P}, 0.0),
    ],
)
def test_names_that_lack_the_folders_of_a_path(outcomes: dict[str, Outcome], reward: float) -> None:
    verifier = Verifier(command=("true",), parser="pytest", must_pass=("u.py::test_p[/a.py]",))
    assert verdict_of(Report(outcomes), verifier).reward == reward


def test_a_verifiers_own_reward_is_taken_as_it_is() -> None:
    for reward, passed in ((1.0, True), (0.3, False), (-1.0, False), (2.0, True)):
        verdict = verdict_of(Report(reward=reward, exit_code=1), VERIFIER)
        assert (verdict.reward, verdict.passed) == (reward, passed)
    with pytest.raises(InfraError, match="not a finite number"):
        verdict_of(Report(reward=float("nan")), VERIFIER)


def test_what_showed_nothing_is_no_grade_and_what_took_too_long_is_zero() -> None:
    with pytest.raises(InfraError, match=r"it reported no test.*last words: no such file"):
        verdict_of(Report(problem="it reported no test", tail="no such file"), VERIFIER)
    verdict = verdict_of(Report(timed_out=True), VERIFIER)
    assert (verdict.reward, verdict.details) == (0.0, "the verifier did not finish within 120 s")


def test_a_failure_names_the_network_that_its_tests_miss() -> None:
    verifier = replace(VERIFIER, download="/tests/run-tests.sh line 2: uvx pytest")
    said = "fetch something (/tests/run-tests.sh line 2: uvx pytest), and the box has no network"
    with pytest.raises(InfraError, match="it cannot be run") as raised:
        verdict_of(Report(problem="it cannot be run (exit code 127)"), verifier)
    assert said in raised.value.message
    assert said in verdict_of(Report({"a": F}), verifier).details
    assert said in verdict_of(Report(reward=0.0), verifier).details
    assert said not in verdict_of(Report({"a": P, "b": P, "k": P}), verifier).details


def test_details_name_what_failed() -> None:
    many = replace(VERIFIER, must_pass=tuple(f"t{number}" for number in range(9)))
    assert verdict_of(Report({"t0": P}), many).details == (
        "1 of 9 tests passed; not: t1, t2, t3, t4, t5 and 3 more; broken: k"
    )


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py",
        "a/conftest.py",
        "tests/data.txt",
        "pkg/test_x.py",
        "pkg/x_test.go",
        "src/a.test.tsx",
        "jest.config.mjs",
        "evil.pth",
        "a/__pycache__/x.cpython-311.pyc",
        "x.so",
        "x.dist-info/entry_points.txt",
        ".git/config",
        "pyproject.toml",
        "sitecustomize.py",
    ],
)
def test_what_steers_tests(path: str) -> None:
    assert steers_tests(path)


@pytest.mark.parametrize("path", ["pkg/core.py", "pkg/testing.py", "contest.py", "src/latest/a.go", "a.pthx"])
def test_what_is_work(path: str) -> None:
    assert not steers_tests(path)
