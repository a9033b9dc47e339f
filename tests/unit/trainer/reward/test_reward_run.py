"""A run on `math` whose rewards come from a rule and a judge: they reach the loss, and what has none is dropped by name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import judge_server as judge
import pytest
from judge_server import JudgeServer
from local_fleet import config_of, local_run

from agent_runtime.store import read_segment, segment_path
from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.errors import Halted


def letters(action: str) -> float:
    """Score an action by what it is, so that the rollouts of a group differ."""
    return sum(map(ord, action)) % 5 / 4


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with judge.judge_server() as serving:
        serving.then = judge.scores_turns(letters)
        yield serving


def config(server: JudgeServer, *, turn_weight: float = 1.0, max_failure_rate: float = 0.2) -> TrainConfig:
    """Return a run that no expert helps: it succeeds nowhere. Sums go to the judge, differences to the rule."""
    routes: list[dict[str, Any]] = [
        {
            "worker": "judge",
            "match": {"symbols": "*+*", "split": "train"},
            "turn_weight": turn_weight,
            "options": {"url": server.url, "model": "m", "gives": "turns"},
        },
        {"worker": "rule", "options": {"check": "final_answer"}},
    ]
    small = config_of(
        env="math",
        algo="step_reinforce",
        algo_options={"turn_rewards": True},
        steps=1,
        sampling={"max_tokens": 3},
        rollout={"groups_per_step": 6, "token_budget": 3, "max_failure_rate": max_failure_rate},
        warmup={"trajectories": 0, "held_out": 0.0},
        anchors={"scheduler": "none", "inject": 0},
        reward={"routes": routes, "attempts": 1},
    )
    easy = {"style": "symbols", "families": "arithmetic", "max_level": 1}
    return small.model_copy(update={"env_args": easy})


def step_of(folder: Path) -> tuple[dict[str, float], list[Trajectory]]:
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    (record,) = (record for record in records if record["kind"] == "train")
    return record, list(read_segment(segment_path(folder, "step", 1)))


def test_what_a_judge_says_of_each_turn_is_what_is_learned(server: JudgeServer, tmp_path: Path) -> None:
    local_run(tmp_path / "judged", config(server))
    record, rollouts = step_of(tmp_path / "judged")
    workers = {t.reward_source.worker if t.reward_source else "" for t in rollouts}
    assert workers == {"judge", "rule"}
    for t in rollouts:
        assert t.reward_source is not None
        given = tuple(map(letters, t.actions)) if t.reward_source.worker == "judge" else (0.0,)
        assert (t.turn_rewards, t.reward, t.env_turn_rewards) == (given, 0.0, (0.0,))
    assert record["updates"] > 0
    assert record["tokens/trained"] > 0
    assert (record["reward/judged"], record["reward/failed"]) == (len(rollouts), 0)
    assert record["reward/turn_mean"] > 0

    local_run(tmp_path / "ignored", config(server, turn_weight=0.0))
    record, ignored = step_of(tmp_path / "ignored")
    assert [t.actions for t in ignored] == [t.actions for t in rollouts]
    assert record["updates"] == 0
    assert record["tokens/masked/zero_credit"] == record["tokens/total"]


def test_rollouts_without_a_verdict_are_dropped_by_name_and_the_rest_is_learned(
    server: JudgeServer, tmp_path: Path
) -> None:
    server.script = [judge.says("The whole is worth 1."), judge.status(500)]
    local_run(tmp_path, config(server, max_failure_rate=1.0))
    record, rollouts = step_of(tmp_path)
    failed = [t for t in rollouts if t.failure]  # rollouts that are alike share a question
    lost = Counter[str]()
    for t in failed:
        assert t.failure
        lost[t.failure.code] += t.sampled_tokens
    assert lost.keys() == {"reward_unreadable", "reward_unanswered"}
    for code, tokens in lost.items():
        assert record[f"tokens/dropped/failed/{code}"] == tokens
    fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
    assert sum(value for name, value in record.items() if name.startswith(fates)) == record["tokens/total"]
    assert record["failed"] == len(failed)
    assert record["reward/failed"] == len({(t.task_id, tuple(t.actions)) for t in failed})
    assert record["updates"] > 0


def test_a_judge_that_gives_no_verdicts_halts_the_run(server: JudgeServer, tmp_path: Path) -> None:
    server.then = judge.says("It is worth 1.")
    with pytest.raises(Halted, match=r"rollouts were rejected.*judge-7 gave no verdict"):
        local_run(tmp_path, config(server))
    assert not segment_path(tmp_path, "step", 1).exists()
