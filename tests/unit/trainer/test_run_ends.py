"""How a run ends: with a summary that anyone can read, and without losing what was learned to a failed measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from local_fleet import Change, Listening, LocalFleet, config_of, decode, local_run, lost

from agent_runtime.store import encode, read_segment
from agent_runtime.types import RolloutRequest
from ale.training.plots import success_curve
from trainer import checkpoint, loop
from trainer.config import TrainConfig
from trainer.errors import Halted
from trainer.run import Run


def test_a_run_on_tasks_that_nobody_can_solve_has_a_summary_without_a_share(tmp_path: Path) -> None:
    """One turn never reaches the goal of a lake: the optimum is 0, and a share of it is no number."""
    config = config_of(steps=0, env_args={"max_turns": 1}, warmup={"trajectories": 0, "held_out": 0.0})
    local_run(tmp_path, config)
    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes())
    assert (summary["optimum"], summary["success_final"]) == (0, 0)
    assert (summary["share_warmup"], summary["share_final"]) == (None, None)
    for line in (tmp_path / "metrics.jsonl").read_bytes().splitlines():
        record = msgspec.json.decode(line)
        assert (record["optimum"], "share_of_optimum" in record) == (0, False)
        assert json.loads(line) == record
    assert success_curve(tmp_path) is not None


class LostAtTheEnd(LocalFleet):
    """A fleet whose server dies in the last evaluation."""

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        if policy_step == 2:
            raise Halted("the server died")
        return super().run(requests, policy_step)


def test_a_last_evaluation_that_fails_costs_no_step(tmp_path: Path) -> None:
    config = config_of(checkpoint={"every": 100})
    with pytest.raises(Halted, match="the server died"):
        local_run(tmp_path, config, kind=LostAtTheEnd)
    saved = checkpoint.latest(tmp_path / "checkpoints")
    assert saved is not None
    assert saved.name == "step-000002"


def test_a_run_that_was_killed_in_its_last_evaluation_records_one(tmp_path: Path) -> None:
    config = config_of(steps=1)
    fleet, _ = local_run(tmp_path, config)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    with Run(config, tmp_path, fleet, Listening(), resume=True) as run:  # type: ignore[arg-type]
        assert list(run.remaining_steps()) == []
        run.finish()
    again = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert again[:-1] == lines[:-1]
    first, second = json.loads(lines[-1]), json.loads(again[-1])
    assert (second["kind"], second["step"], second["success"]) == ("eval", 1, first["success"])


class LostAtFirst(LocalFleet):
    """A fleet whose server dies in the first evaluation that it is asked for, with what the loop asks of one."""

    dies = True
    imitated = 0

    def __init__(self, config: TrainConfig, ray_address: str | None, artifacts: Path) -> None:
        super().__init__(config)
        learn = self.imitate

        def imitate(**how: Any) -> dict[str, float]:
            LostAtFirst.imitated += 1
            return learn(**how)

        self.imitate = imitate

    def __enter__(self) -> LostAtFirst:
        return self

    def __exit__(self, *error: object) -> None: ...

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        if LostAtFirst.dies:
            LostAtFirst.dies = False
            raise Halted("the server died")
        return super().run(requests, policy_step)


def test_a_warm_up_whose_evaluation_fails_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Fleet", LostAtFirst)
    monkeypatch.setattr(LostAtFirst, "dies", True)
    monkeypatch.setattr(LostAtFirst, "imitated", 0)
    config = config_of(steps=1, warmup={"epochs": 2})
    with pytest.raises(Halted, match="the server died"):
        loop.train(config, tmp_path / "lost", observer=Listening())
    first = loop.train(config, tmp_path / "lost", observer=Listening(), resume=True)
    assert LostAtFirst.imitated == 2, "one warm-up"
    whole = loop.train(config, tmp_path / "whole", observer=Listening())
    assert first is not None
    assert whole is not None
    assert (first.success_warmup, first.model_digest) == (whole.success_warmup, whole.model_digest)
    for measured, again in ((first.eval_warmup, whole.eval_warmup), (first.eval_final, whole.eval_final)):
        assert measured["success_low"] <= measured["success"] <= measured["success_high"]
        assert {**measured, "train_s": 0} == {**again, "train_s": 0}
    assert first.eval_final["turn_tokens_growth"] > 0
    told = [
        [
            (r["kind"], r["step"])
            for r in map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        ]
        for name in ("lost", "whole")
    ]
    assert told[0] == told[1]


class StopsAfterOne(Listening):
    """Somebody who stops a run after its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_requested = False

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        self.stop_requested = True


def test_a_resumed_run_compares_its_evaluations_with_its_own_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Fleet", LostAtFirst)
    monkeypatch.setattr(LostAtFirst, "dies", False)
    config = config_of(steps=2, eval={"every": 1, "samples": 2})
    whole = loop.train(config, tmp_path / "whole", observer=Listening())
    assert loop.train(config, tmp_path / "stopped", observer=StopsAfterOne()) is None
    resumed = loop.train(config, tmp_path / "stopped", observer=Listening(), resume=True)
    assert whole is not None
    assert resumed is not None
    assert resumed.model_digest == whole.model_digest
    for again, first in ((resumed.eval_warmup, whole.eval_warmup), (resumed.eval_final, whole.eval_final)):
        assert {**again, "train_s": 0} == {**first, "train_s": 0}
    assert {"turn_tokens_growth", "pass@1_low", "pass@2"} <= resumed.eval_final.keys()
    assert "turn_tokens_growth" not in resumed.eval_warmup


class Losing(LocalFleet):
    """A fleet that loses every environment of one kind of round."""

    def __init__(self, config: TrainConfig, *, round: str) -> None:
        super().__init__(config)
        if round == "play":
            self.change = lost
            return
        play = getattr(self, round)
        setattr(self, round, lambda *asked: [encode(lost(decode(each))) for each in play(*asked)])

    change: Change = staticmethod(lambda t: t)

    async def play_at(self, *asked: Any) -> list[list[bytes]]:
        played = await super().play_at(*asked)
        return [[encode(self.change(decode(each))) for each in tries] for tries in played]


@pytest.mark.parametrize(("round", "played"), [("record", 3), ("play", 12), ("run", 2)])
def test_what_was_played_is_kept_where_it_halts_the_run_until_it_does_not(
    round: str, played: int, tmp_path: Path
) -> None:
    """Of experts, of a step and of an evaluation: the failed rollouts are the way to the cause."""
    config, kept = config_of(steps=1), tmp_path / "trajectories" / "halted.rollouts"
    with pytest.raises(Halted, match=rf"What was played: `ale replay show {kept}`\."):
        local_run(tmp_path, config, kind=Losing, round=round)
    assert [t.failure is not None for t in read_segment(kept)] == [True] * played
    local_run(tmp_path, config)
    assert not kept.exists()
