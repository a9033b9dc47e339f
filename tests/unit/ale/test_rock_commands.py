"""The words of `ale rock`: spans of time, pairs, paths in sandboxes, exit codes, and what a census means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ale.rock.boxes import age, pairs
from ale.rock.copy import remote
from ale.rock.doctor import census_findings, environment_findings
from ale.rock.exec import exit_code
from rock_env.errors import InvalidArgument
from rock_env.inventory import BackendCensus
from rock_env.sandbox import ExecResult


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0s"),
        (0.4, "0s"),
        (59, "59s"),
        (60, "1m 0s"),
        (3599, "59m 59s"),
        (7260, "2h 1m"),
        (90_000, "1d 1h"),
    ],
)
def test_ages_have_two_units(seconds: float, said: str) -> None:
    assert age(seconds) == said


def test_pairs_are_read_or_refused() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--env") == {"a": "1", "b": "x=y", "c": ""}
    for bad in ("a", "=1"):
        with pytest.raises(InvalidArgument, match="bad --env"):
            pairs([bad], "--env")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sb-1:/etc/hosts", ("sb-1", "/etc/hosts")),
        ("12ab:", ("12ab", ".")),
        ("12ab:a:b", ("12ab", "a:b")),
        ("./12ab:x", None),
        ("/a:b", None),
        (":x", None),
        ("plain", None),
    ],
)
def test_a_colon_before_any_slash_names_a_sandbox(word: str, expected: tuple[str, str] | None) -> None:
    assert remote(word) == expected


def test_exit_codes_tell_ends_apart() -> None:
    end = ExecResult(exit_code=0, signal=None, stdout=b"", stderr=b"", duration_s=0.0)
    assert exit_code(end) == 0
    assert exit_code(replace(end, exit_code=7)) == 7
    assert exit_code(replace(end, exit_code=None, signal=15)) == 143
    assert exit_code(replace(end, exit_code=None, signal=9, timed_out=True)) == 124
    assert exit_code(replace(end, exit_code=None, infra_error="gone")) == 69


def test_a_census_is_judged() -> None:
    clean = BackendCensus(
        backend="docker",
        boxes=2,
        records=2,
        orphans={},
        ghosts={},
        layers=1,
        stray_layers=(),
        missing_layers=(),
        stock=0,
        error="",
    )
    dirty = replace(
        clean,
        orphans={f"sb-{i}": f"container {i}" for i in range(7)},
        ghosts={"sb-x": "sb-x"},
        stray_layers=("l1",),
    )
    half = replace(dirty, backend="h", error="no layers")
    found = dict(
        census_findings(
            [clean, replace(dirty, backend="process"), replace(clean, backend="b", error="no"), half]
        )
    )
    assert found["census docker"].status == "ok"
    assert found["census docker"].found == "2 boxes for 2 sandboxes, 1 layers"
    bad = found["census process"]
    assert bad.status == "fail"
    assert "7 orphaned: sb-0 (container 0)" in bad.found
    assert "and 2 more" in bad.found
    assert "1 recorded but gone: sb-x" in bad.found
    assert "1 stray layers: l1" in bad.found
    assert "ale rock gc" in bad.remedy
    assert found["census b"].status == "warn"
    assert found["census h"].status == "fail", "what is known is told, though not all is"
    assert "7 orphaned" in found["census h"].found
    assert "no layers" in found["census h"].found


def test_each_check_of_this_machine_answers_with_a_remedy_unless_it_is_well() -> None:
    found = environment_findings()
    assert [name for name, _ in found] == ["namespaces", "cgroups", "docker", "disk", "open files"]
    for name, finding in found:
        assert finding.found, name
        assert bool(finding.remedy) == (finding.status != "ok"), name
