"""From what a step asks for to a full batch, and to an account in which no sampled token is missing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from algo_reference import CONTEXT, tables, trajectory
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_cases import Given, batches
from sync_oracle import fill

from agent_runtime.store import decode, encode
from agent_runtime.types import RewardSource, RolloutFailure, RolloutRequest, Trajectory, TurnFault
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.config import FilterOptions, RolloutOptions, TrainConfig
from trainer.data.build import build_batch
from trainer.data.screen import screened_credits
from trainer.errors import Halted, LedgerError
from trainer.reward.router import Rewarded
from trainer.rollout.filling import Rollouts, account, filter_metrics
from trainer.rollout.filtering import ILLEGAL, attempts, rejection
from trainer.rollout.report import sampled_tokens
from trainer.rollout.tasks import train_requests

MU = tables()[0]
Rule = Callable[[RolloutRequest], tuple[float, str]]
"""What becomes of a request: its reward, and the code it fails with ("" if it does not)."""
Judge = Callable[[Trajectory], float]
"""The reward that stands in the environment's place."""


class Ruled:
    """A fleet whose rollouts end as a rule says; `attempts` decides what is sampled again, as in a rollout worker."""

    server_end = ""
    slots = (2, 3)

    def __init__(self, config: TrainConfig, rule: Rule, judging: Judge | None = None) -> None:
        self.config, self.rule, self.judging = config, rule, judging
        self.asked: list[str] = []

    async def serve(self, version: int) -> int:
        return version

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        async def one(request: RolloutRequest) -> Trajectory:
            self.asked.append(request.id)
            reward, code = self.rule(request)
            tokens = 1 + request.seed % 3
            made = trajectory(
                request.id, [tokens, 1], reward, ids=count(CONTEXT), group=request.group_id, mu=MU
            )
            failure = RolloutFailure(code, "as asked", 0) if code else None
            lost = 2 if code else 0
            return replace(
                made, failure=failure, task_id=request.task_id, index=request.index, lost_tokens=lost
            )

        tries = [await attempts(each, one, self.config.filter) for each in requests]
        return [[encode(t) for t in each] for each in tries]

    def play(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[list[bytes]]:
        return asyncio.run(self.play_at(0, requests, policy_step))

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        return self.reward(encoded, run_folder)

    def reward(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Judge every rollout that did not fail, where there is a judge, and say what it cost."""
        if self.judging is None:
            return Rewarded(list(encoded))
        judged = [self.judged(decode(data)) for data in encoded]
        done = [t for t in judged if t.failure is None]
        metrics = {"reward/judged": len(done), "reward/asked": len(done), "reward_s": 1.0}
        metrics |= {"reward/latency_mean_s": len(done), "reward/latency_max_s": len(done)}
        return Rewarded([encode(t) for t in judged], {name: float(value) for name, value in metrics.items()})

    def judged(self, t: Trajectory) -> Trajectory:
        assert self.judging is not None
        if t.failure is not None:
            return t
        source = RewardSource("toy", "1", "", "", 0.0, 0, 0, t.reward, t.turn_rewards)
        return replace(t, reward=self.judging(t), reward_source=source)


def config_of(groups: int = 3, size: int = 2, limit: float = 1.0, **options: object) -> TrainConfig:
    return TrainConfig(
        algo="ipa",
        rollout=RolloutOptions(groups_per_step=groups, group_size=size, max_failure_rate=limit),
        filter=FilterOptions.model_validate(options),
    )


def filled(
    config: TrainConfig,
    rule: Rule,
    *,
    anchored: frozenset[str] = frozenset(),
    judge: Judge | None = None,
    oracle: bool = False,
) -> tuple[Rollouts, Ruled]:
    fleet = Ruled(config, rule, judge)
    groups = config.rollout.groups_per_step

    def more(first: int, envs: Sequence[str], used: Collection[tuple[str, str]]) -> list[RolloutRequest]:
        tasks = [f"train/{100 + first + n}" for n in range(len(envs))]
        before = (*range(groups), *range(100, 100 + first))
        assert set(used) == {(config.env, f"train/{n}") for n in before}
        return train_requests(config, "{}", 1, tasks=tasks, first=groups + first)

    asked = train_requests(config, "{}", 1, tasks=[f"train/{n}" for n in range(groups)])
    if oracle:
        return fill(fleet, Path(), asked, 1, config=config, anchored=anchored, more=more), fleet
    source = Given(lambda step: asked, more, anchored)
    with TemporaryDirectory() as folder:
        (batch,) = batches(fleet, source, Path(folder), config=config)
    return batch.rollouts, fleet


def group(number: int) -> str:
    return f"000001-{number:04d}"


def by_group(won: dict[int, tuple[float, ...]], code: str = "") -> Rule:
    """Give each member of a group the reward that is listed for it; groups not listed have all won."""

    def rule(request: RolloutRequest) -> tuple[float, str]:
        rewards = won.get(int(request.group_id[-4:]))
        return (rewards[request.index] if rewards else 1.0), code

    return rule


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.6]), st.integers(0, 3), st.sampled_from(["on", "off"])
)
def test_batches_stay_full_and_every_token_is_accounted_for(seed, failing, resamples, dynamic):
    """Whatever fails and whatever does not vary: counted here from what the rule gave out."""
    drawn: dict[str, str] = {}

    def rule(request: RolloutRequest) -> tuple[float, str]:
        rng = random.Random(f"{seed} {request.id}")
        drawn[request.id] = "env_lost" if rng.random() < failing else ""
        return float(rng.random() < 0.5), drawn[request.id]

    config = config_of(groups=4, size=3, resamples=resamples, dynamic=dynamic)
    try:
        found, fleet = filled(config, rule)
    except Halted:
        assert all(drawn.values())
        return
    wanted, _ = filled(config, rule, oracle=True)
    assert compared(found) == compared(wanted)
    assert len(fleet.asked) == len(set(fleet.asked))
    assert sorted(t.id for t in found.played) == sorted(fleet.asked)
    assert len(found.trajectories) == 12
    assert all(size == 3 for size in Counter(t.group_id for t in found.trajectories).values())
    assert found.encoded == [encode(t) for t in found.trajectories]
    assert found.tokens == sampled_tokens(found.played)
    if not failing:
        assert not found.rejected

    algorithm = Ipa(IPAOptions())
    credits = screened_credits(found.trajectories, algorithm.credit)
    _, ledger = build_batch(found.trajectories, credits, token_budget=9)
    totals: dict[str, int] = {}
    metrics = ledger.metrics()
    metrics = account(totals, metrics, found, config, 1)
    parts = [
        v
        for n, v in metrics.items()
        if n.startswith("tokens/") and n not in ("tokens/total", "tokens/experts", "tokens/reused")
    ]
    assert sum(parts) == metrics["tokens/total"] == found.tokens
    assert {f"tokens/{name}": float(n) for name, n in totals.items()} == {
        name: value for name, value in metrics.items() if name.startswith("tokens/")
    }
    lost = [t for t in found.played if t.failure]
    assert metrics.get("tokens/dropped/failed/env_lost", 0) == sampled_tokens(lost)
    assert metrics.get("trajectories/dropped/failed/env_lost", 0) == len(lost)
    told = filter_metrics(found, config)
    assert told.get("filter/rejected/failed/env_lost", 0) == len(lost)
    assert told.get("filter/resampled/failed/env_lost", 0) == len(found.rejected)
    assert told["filter/played"] == len(fleet.asked)
    troubled = {t.id.partition("-r")[0] for t in lost}
    asked = {name.partition("-r")[0] for name in fleet.asked}
    assert told["filter/troubled_share"] == pytest.approx(len(troubled) / len(asked))
    assert told["filter/placeholders"] == sum(t.failure is not None for t in found.trajectories)


def compared(found: Rollouts) -> list[object]:
    """Return all that two ways to the same rollouts must agree in."""
    aside = [[played.encoded for played in each] for each in (found.rejected, found.flat)]
    told = (found.flat_groups, found.extra_groups, found.troubled_share, found.tokens, found.reward_metrics)
    return [found.encoded, [t.id for t in found.trajectories], aside, told]


def dropped(found: Rollouts, config: TrainConfig) -> dict[str, float]:
    """Return how many of the rollouts that the learner does not see are dropped for which reason."""
    learned = {
        "tokens/total": float(sampled_tokens(found.trajectories)),
        "tokens/experts": 0.0,
        "tokens/reused": 0.0,
    }
    told = account({}, learned, found, config, 1)
    head = "trajectories/dropped/"
    return {name.removeprefix(head): count for name, count in told.items() if name.startswith(head)}


def test_a_group_without_variance_gives_its_place_to_one_that_varies():
    config = config_of(dynamic="on", dynamic_extra=1.0)
    found, fleet = filled(config, by_group({1: (0, 1), 2: (0, 0), 4: (1, 0)}))
    # 0 and 2 are flat; 3 is drawn and flat, 4 is drawn and takes the first place; 5 is the last allowed, and flat.
    assert [t.group_id for t in found.trajectories] == [group(n) for n in (4, 4, 1, 1, 2, 2)]
    assert [sample.trajectory.group_id for sample in found.flat] == [group(n) for n in (3, 3, 0, 0, 5, 5)]
    assert (found.flat_groups, found.extra_groups) == (4, 3)
    assert dropped(found, config) == {"group_without_variance": 6}
    assert len(fleet.asked) == 12
    assert not found.rejected


def test_groups_are_compared_by_the_rewards_that_are_learned():
    """The environment says that all won; the judge tells the rollouts of groups 1, 2 and 4 apart."""

    def judge(t: Trajectory) -> float:
        return 0.25 * t.index if int(t.group_id[-4:]) in (1, 2, 4) else 0.5

    config = config_of(dynamic="on")
    found, _ = filled(config, by_group({}), judge=judge)
    assert [t.group_id for t in found.trajectories] == [group(n) for n in (4, 4, 1, 1, 2, 2)]
    assert [t.reward for t in found.trajectories] == [0, 0.25] * 3
    assert found.encoded == [encode(t) for t in found.trajectories]
    # Waves of 3 groups, 1 and 1: 6, 2 and 2 rollouts, of which 4 are as far as .5 from the 1 given, and 3 each 1 and .75.
    assert found.reward_metrics == {
        "reward/judged": 10,
        "reward/asked": 10,
        "reward_s": 3,
        "reward/latency_mean_s": pytest.approx(4.4),
        "reward/latency_max_s": 6,
        "reward/env_distance": pytest.approx((4 * 0.5 + 3 * 1 + 3 * 0.75) / 10),
        "reward/turn_mean": 0,
    }


def test_no_group_is_drawn_where_all_vary_or_nobody_asked():
    varied = by_group({0: (0, 1), 1: (0, 1), 2: (1, 0)})
    assert filled(config_of(dynamic="on"), varied)[0].extra_groups == 0
    found, _ = filled(config_of(dynamic="algorithm"), by_group({}))
    assert (found.flat_groups, found.extra_groups, len(found.flat)) == (3, 0, 0)
    assert filled(config_of(dynamic="on", dynamic_extra=0.4), by_group({}))[0].extra_groups == 1


def test_dapo_asks_for_it_by_itself():
    config = config_of(dynamic="algorithm").model_copy(update={"algo": "dapo"})
    assert filled(config, by_group({}))[0].extra_groups == 3


def test_groups_at_an_anchor_are_left_to_their_scheduler():
    rule = by_group({3: (0, 1)})
    found, _ = filled(config_of(dynamic="on"), rule, anchored=frozenset({group(0), group(1)}))
    assert [t.group_id for t in found.trajectories] == [group(n) for n in (0, 0, 1, 1, 3, 3)]


def test_a_wave_is_judged_together_with_those_before_it():
    """The only group of a wave fails whole: 2 of 8 rollouts, far from the limit."""
    config = config_of(dynamic="on", dynamic_extra=0.34, resamples=0, limit=0.25)

    def rule(request: RolloutRequest) -> tuple[float, str]:
        number = int(request.group_id[-4:])
        return float(request.index if number else 0), "env_lost" if number == 3 else ""

    found, _ = filled(config, rule)
    assert found.extra_groups == 1
    assert dropped(found, config) == {"failed/env_lost": 2}
    with pytest.raises(Halted, match="2 of 8 rollouts were rejected"):
        filled(config_of(dynamic="on", dynamic_extra=0.34, resamples=0, limit=0.24), rule)


def test_rejected_rollouts_count_for_the_limit_also_when_they_were_replaced():
    def rule(request: RolloutRequest) -> tuple[float, str]:
        return 1.0, "" if request.id.endswith("-r1") else "infra"

    found, _ = filled(config_of(limit=1.0), rule)
    assert (len(found.rejected), len(found.trajectories)) == (6, 6)
    assert all(t.failure is None for t in found.trajectories)
    with pytest.raises(
        Halted,
        match=r"6 of 6 rollouts were rejected .* 0 of them have no replacement; attempts: 6 failed: infra",
    ):
        filled(config_of(limit=0.99), rule)


def test_a_start_that_never_works_counts_once_for_the_limit_however_often_it_is_tried():
    rule = by_group({0: (0, 1), 1: (0, 1), 2: (0, 1)})

    def broken(request: RolloutRequest) -> tuple[float, str]:
        return rule(request)[0], "reset_divergence" if request.group_id == group(2) else ""

    found, fleet = filled(config_of(limit=0.34, resamples=5), broken)
    assert len(fleet.asked) == 4 + 2 * 6
    assert found.troubled_share == pytest.approx(1 / 3)
    with pytest.raises(
        Halted, match=r"2 of 6 rollouts were rejected .* attempts: 12 failed: reset_divergence"
    ):
        filled(config_of(limit=0.33, resamples=5), broken)


def test_a_rollout_that_goes_missing_stops_the_run():
    config = config_of(dynamic="on")
    found, _ = filled(config, by_group({}))
    learned = {
        "tokens/total": float(sampled_tokens(found.trajectories)),
        "tokens/experts": 0.0,
        "tokens/reused": 0.0,
    }
    account({}, learned, found, config, 1)
    with pytest.raises(LedgerError, match="Rollouts were lost or changed on their way to the learner"):
        account({}, {**learned, "tokens/total": learned["tokens/total"] - 1}, found, config, 1)
    found.flat.pop()
    with pytest.raises(LedgerError, match="A rollout was lost between the fleet and the learner"):
        account({}, learned, found, config, 1)


def test_a_placeholder_moves_no_baseline_and_still_counts_in_the_constant_divisor():
    options = FilterOptions(illegal_turns=2)
    ids = count(CONTEXT)
    group = [trajectory(f"t{n}", [2, 1], float(n == 0), ids=ids, mu=MU) for n in range(4)]
    group[3] = replace(group[3], reward=9.0, turn_faults=(TurnFault.ILLEGAL, TurnFault.ILLEGAL))
    algorithm = Ipa(IPAOptions(baseline="group_mean", gamma=1.0))
    credits = screened_credits(group, algorithm.credit, partial(rejection, options=options))
    alone = algorithm.credit(group[:3])
    assert [c.advantage_K.tolist() for c in credits[:3]] == [c.advantage_K.tolist() for c in alone]
    assert credits[3].dropped == ILLEGAL
    batch, ledger = build_batch(group, credits, token_budget=10)
    assert batch.normalizer == 40
    assert ledger.dropped == {ILLEGAL: 3}
    assert ledger.dropped_trajectories == {ILLEGAL: 1}
    without = screened_credits(group, algorithm.credit)
    assert not any(credit.dropped for credit in without)
