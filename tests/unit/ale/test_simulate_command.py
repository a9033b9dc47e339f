"""`ale simulate`: what it says, in words and for programs, from a fleet's file or a run's records; its errors."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_runtime.store import segment_path, write_segment
from ale import config as configuration
from ale.cli import app, explained
from ale.training.simulating import measured
from trainer.config import TrainConfig
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, record_of, script_of

FLEET = """
reward_s = 1
[sampler]
tokens = 50
tokens_per_s = 1000
[environment]
turns = 1
step_s = 8
[learner]
step_s = 10
"""
SIZES = ["-s", "rollout.groups_per_step=2", "-s", "rollout.group_size=2", "-s", "steps=4"]


def told(*words: str) -> str:
    done = CliRunner().invoke(app, ["simulate", *words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "run.toml").write_text('env = "frozen_lake"\nseed = 3\n')
    return ["--config", str(tmp_path / "run.toml"), "--fleet", str(tmp_path / "fleet.toml"), *SIZES]


def test_it_says_a_sentence_for_each_finding(files: list[str]) -> None:
    assert told(*files).splitlines() == [
        "4 steps of 4 rollouts (rollout.mode=sync, rollout.staleness=0, rollout.batching=lockstep) take 80 s.",
        "A step takes 20 s on average, 20 s at the median and 20 s at the 99th percentile.",
        "Samplers are idle 95% of the time, environments 60%, the learner 50%.",
        "Rollouts are learned 0 versions behind on average, 0 at most.",
        "Bound by: learner 50%, environments 44%, samplers 6%.",
    ]


def test_the_page_shows_the_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text()
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert FleetTimes.model_validate(tomllib.loads(shown)) == FleetTimes()


def test_a_pipeline_takes_the_longer_of_both(files: list[str]) -> None:
    found = json.loads(told(*files, "--json", "-s", "rollout.mode=pipeline", "-s", "rollout.staleness=1"))
    assert list(found) == ["step_s", "idle", "lag", "bound"]
    assert found["step_s"]["p50"] == pytest.approx(10)
    assert found["lag"] == {"mean": 0.75, "most": 1, "too_old": 0}
    assert sum(found["bound"].values()) == pytest.approx(1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two steps whose rollouts took 3 to 6 s, one of them in two attempts, and whose learner took 2 s."""
    settings = {"groups_per_step": 2, "group_size": 2, "batching": "eager"}
    config = configuration.expand(TrainConfig(env="frozen_lake", steps=2, rollout=settings))
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "config.toml").write_text(configuration.render(config))
    lines = []
    for step in (1, 2):
        requests = Plans(config).plan(step).requests
        played = [record_of(each, script_of(each, FleetTimes()), step, {step - 1: 0}) for each in requests]
        timed = [
            replace(t, duration_s=3.0 + n, turns=(replace(t.turns[0], sampled_s=1.5),))
            for n, t in enumerate(played)
        ]
        again = replace(timed[3], id=f"{timed[3].id}-r1", duration_s=0.5)
        (folder / "trajectories").mkdir(exist_ok=True)
        write_segment(segment_path(folder, "step", step), [*timed[:3], again])
        write_segment(segment_path(folder, "set_aside", step), [timed[3]])
        times = {"rollout_s": 7.0, "learn_s": 2.0, "train_s": 100.0 + 10 * step}
        lines.append(json.dumps({"step": step, "kind": "train", **times}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_recorded_run_takes_what_it_took(run: Path) -> None:
    first, second = measured(run).recorded
    assert sorted(first.rollouts) == [(1, 1.5, 3), (1, 1.5, 4), (1, 1.5, 5), (2, 3, 6.5)]
    assert (first.beside_s, first.learn_s, first.other_s) == (0.5, 2, 0)
    assert second.other_s == pytest.approx(1)
    found = json.loads(told("--from", str(run), "--json"))
    assert found["step_s"]["mean"] == pytest.approx(9.5)
    pipelined = ["-s", "rollout.mode=pipeline", "-s", "rollout.staleness=1", "-s", "steps=100"]
    assert json.loads(told("--from", str(run), "--json", *pipelined))["step_s"]["mean"] == pytest.approx(
        7, abs=0.1
    )


def test_a_lag_is_compared_with_the_settings(files: list[str], run: Path) -> None:
    first, *_, last = told(*files, "--lag", "1").splitlines()
    assert "(rollout.mode=sync, rollout.staleness=0, rollout.batching=lockstep) take 80 s." in first
    assert last == "With --lag 1 the steps take 50 s instead of 80 s: 1.60 times as fast."
    lines = told(*files, "--lag", "1").splitlines()
    assert lines[5].startswith(
        "4 steps of 4 rollouts (rollout.mode=stream, rollout.staleness=1, rollout.batching=eager)"
    )
    assert lines[8].endswith("0.0% of their tokens are too old to be learned.")
    found = json.loads(told("--from", str(run), "--lag", "2", "--json", "-s", "steps=20"))
    assert list(found) == ["settings", "lag 2"]
    assert found["settings"] == json.loads(told("--from", str(run), "--json", "-s", "steps=20"))
    assert found["lag 2"]["step_s"]["mean"] < found["settings"]["step_s"]["mean"]
    same = json.loads(told("--from", str(run), "--lag", "0", "--json"))
    assert same["settings"] == same["lag 0"]


def test_a_recorded_stream_waited_for_no_plan(run: Path) -> None:
    assert [step.beside_s for step in measured(run, streamed=True).recorded] == [0, 0]
    text = (run / "config.toml").read_text()
    text = text.replace('mode = "sync"', 'mode = "stream"').replace("staleness = 0", "staleness = 1")
    (run / "config.toml").write_text(text)
    found = json.loads(told("--from", str(run), "--json", "-s", "steps=50"))
    assert found["lag"]["most"] == 1
    assert found["step_s"]["p50"] <= 6.5


def without_metrics(run: Path) -> None:
    (run / "metrics.jsonl").unlink()


def without_records(run: Path) -> None:
    for path in (run / "trajectories").iterdir():
        path.unlink()


def without_times(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"step": 1, "kind": "train"}\n')


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_metrics, "cannot read .*metrics.jsonl"),
        (without_records, "nothing was measured in"),
        (without_times, "step 1 has no rollout_s"),
    ],
)
def test_a_run_without_records_is_refused(run: Path, spoil: Callable[[Path], None], said: str) -> None:
    spoil(run)
    with pytest.raises(Exception, match=said) as refused:
        told("--from", str(run))
    assert explained(refused.value)[1] == 65


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ("reward_s = 'long'", r"bad 'reward_s' in .*: expected a number, .*, got 'long'"),
        ("[sampler]\nspeed = 1", "bad 'sampler.speed' in .*: Extra inputs"),
        ("[environment]\nstep_s = {median = 3}", r"bad 'environment.step_s.*p99' in .*: Field required"),
        ("[[", "fleet.toml"),
    ],
)
def test_a_wrong_fleet_is_one_clear_error(tmp_path: Path, fleet: str, said: str) -> None:
    (tmp_path / "fleet.toml").write_text(fleet)
    with pytest.raises(Exception, match=said) as refused:
        told("--fleet", str(tmp_path / "fleet.toml"))
    assert explained(refused.value)[1] == 2


def test_other_errors_are_clear(tmp_path: Path, files: list[str], run: Path) -> None:
    cases: dict[str, list[Any]] = {
        "brings the settings and times": ["--from", str(run), *files],
        "leaves nothing to simulate": [*files, "-s", "steps=0"],
        "unknown option": [*files, "-s", "rollout.mod=pipeline"],
        "expected at least 1": [*files, "-s", "rollout.mode=pipeline"],
        "no run in": ["--from", str(tmp_path / "nothing")],
        "cannot read the config file": ["--fleet", str(tmp_path / "nothing.toml")],
    }
    for said, words in cases.items():
        with pytest.raises(Exception, match=said):
            told(*words)
