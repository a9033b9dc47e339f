"""Which rollouts are sampled again, how, and when so many are rejected that the run halts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from algo_reference import CONTEXT, trajectory
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_runtime.types import PrefixTurn, RolloutFailure, RolloutRequest, Start, Trajectory, TurnFault
from trainer.config import FilterOptions, RolloutOptions, TrainConfig
from trainer.errors import Halted
from trainer.rollout.anchors import Anchor, Expert
from trainer.rollout.filtering import (
    ILLEGAL,
    again,
    attempts,
    check_learned,
    check_share,
    most_extra_groups,
    nothing_learned,
    rejection,
    varies,
)
from trainer.rollout.tasks import train_requests

EXPERT = Expert("e", "train/7", 5, "first", (PrefixTurn("a", "b"), PrefixTurn("c", "d")), origin="oracle")


def requests(*, anchored: bool = False) -> list[RolloutRequest]:
    config = TrainConfig(rollout=RolloutOptions(group_size=2))
    where = {"tasks": [], "anchors": [Anchor(EXPERT, 1)]} if anchored else {"tasks": ["train/7"]}
    return train_requests(config, "{}", 3, **where)


def rollout(reward: float = 0.0, *, code: str = "", faults: Sequence[TurnFault] = ()) -> Trajectory:
    one = trajectory("t", [1] * max(1, len(faults)), reward, ids=count(CONTEXT))
    failure = RolloutFailure(code, f"the {code} message", 0) if code else None
    return replace(one, failure=failure, turn_faults=tuple(faults))


@given(
    st.lists(st.sampled_from([TurnFault.NONE, TurnFault.ILLEGAL, TurnFault.TOOL_FAILED]), max_size=12),
    st.integers(0, 5),
)
def test_illegal_calls_in_a_row_reject_a_rollout(faults, limit):
    text = "".join("x" if fault is TurnFault.ILLEGAL else "." for fault in faults)
    expected = ILLEGAL if limit and "x" * limit in text else ""
    assert rejection(rollout(faults=faults), FilterOptions(illegal_turns=limit)) == expected


def test_a_failure_is_its_own_reason_and_a_poor_outcome_is_none():
    assert rejection(rollout(code="env_lost"), FilterOptions()) == "failed: env_lost"
    assert rejection(rollout(-1.0), FilterOptions()) == ""


@given(st.integers(1, 50), st.integers(1, 50), st.booleans())
def test_what_replaces_a_rollout_starts_where_it_started_with_seeds_of_its_own(one, other, anchored):
    request, neighbour = requests(anchored=anchored)
    retry = again(request, one)
    assert retry == again(request, one)
    seeds = {each.seed for each in (request, neighbour, retry)}
    ids = {each.id for each in (request, neighbour, retry)}
    if one != other:
        seeds.add(again(request, other).seed)
        ids.add(again(request, other).id)
    assert len(seeds) == len(ids) == 3 + (one != other)
    assert again(neighbour, one).seed != retry.seed
    kept = replace(retry, id=request.id, seed=request.seed, start=request.start)
    assert kept == request
    if anchored:
        assert retry.start.resume_seed not in (request.start.resume_seed, None)
        assert replace(retry.start, resume_seed=request.start.resume_seed) == request.start
    else:
        assert retry.start == Start(env_seed=retry.start.env_seed)
        assert retry.start.env_seed != request.start.env_seed


def played(codes: Sequence[str], options: FilterOptions) -> tuple[list[str], list[Trajectory]]:
    """Let the n-th attempt at a request fail with the n-th code, "" succeeding; return what was asked, and what came."""
    asked: list[str] = []

    async def play(request: RolloutRequest) -> Trajectory:
        asked.append(request.id)
        return rollout(code=codes[min(len(asked), len(codes)) - 1])

    return asked, asyncio.run(attempts(requests()[0], play, options))


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_rejected_rollout_is_sampled_again_until_one_is_accepted(failures):
    asked, found = played([*["env_lost"] * failures, ""], FilterOptions(resamples=2))
    name = requests()[0].id
    assert asked == [name, f"{name}-r1", f"{name}-r2"][: failures + 1]
    assert [t.failure is None for t in found] == [False] * failures + [True]


@pytest.mark.parametrize("resamples", [0, 1, 3])
def test_a_start_that_never_works_is_given_up_after_the_resamples_allowed(resamples):
    _, found = played(["infra"], FilterOptions(resamples=resamples))
    assert [t.failure.code for t in found] == ["infra"] * (1 + resamples)


def test_a_request_that_is_itself_wrong_is_not_repeated():
    assert len(played(["invalid_argument"], FilterOptions(resamples=3))[1]) == 1
    assert len(played(["unavailable", "unimplemented"], FilterOptions(resamples=3))[1]) == 2


def test_a_group_varies_by_the_outcomes_of_its_accepted_rollouts():
    options = FilterOptions(illegal_turns=1)
    illegal = rollout(1.0, faults=[TurnFault.ILLEGAL])
    assert varies([rollout(0.0), rollout(1.0)], options)
    assert not varies([rollout(1.0), rollout(1.0)], options)
    assert not varies([rollout(0.0), illegal, rollout(1.0, code="policy")], options)
    assert not varies([], options)


@pytest.mark.parametrize(
    ("mode", "algorithm", "size", "expected"),
    [
        ("algorithm", True, 2, 6),
        ("algorithm", False, 2, 0),
        ("on", False, 2, 6),
        ("off", True, 2, 0),
        ("algorithm", True, 1, 0),
    ],
)
def test_extra_groups_are_drawn_where_the_option_or_the_algorithm_says_so(mode, algorithm, size, expected):
    config = TrainConfig(
        rollout=RolloutOptions(groups_per_step=4, group_size=size),
        filter=FilterOptions(dynamic=mode, dynamic_extra=1.6),
    )
    assert most_extra_groups(config, wanted_by_algorithm=algorithm) == expected


def test_a_group_of_one_cannot_be_asked_to_vary():
    with pytest.raises(ValidationError, match=r"rollout\.group_size=1 leaves nothing to compare"):
        TrainConfig(rollout=RolloutOptions(group_size=1), filter=FilterOptions(dynamic="on"))


def check(rejected: list[Trajectory], *, limit: float = 0.5, server_end: str = "", **counts: int) -> None:
    config = TrainConfig(
        rollout=RolloutOptions(max_failure_rate=limit), filter=FilterOptions(illegal_turns=1)
    )
    check_share(rejected, config=config, server_end=server_end, **counts)


def test_a_share_of_rejected_rollouts_up_to_the_limit_is_allowed_and_no_more():
    some = [rollout(code="env_lost")] * 3 + [rollout(faults=[TurnFault.ILLEGAL])] * 2
    check(some, troubled=4, lost=0, asked=8)
    with pytest.raises(Halted) as caught:
        check(some, troubled=4, lost=1, asked=7)
    said = str(caught.value)
    assert "4 of 7 rollouts were rejected (limit: rollout.max_failure_rate, a share of 0.5)" in said
    assert "1 of them have no replacement; attempts: 3 failed: env_lost, 2 repeated illegal calls" in said
    assert "The first failure: the env_lost message" in said
    assert "continue with --resume" in said


def test_nothing_left_halts_whatever_the_limit():
    check([rollout(code="infra")] * 4, limit=1.0, troubled=3, lost=2, asked=3)
    with pytest.raises(Halted, match="2 of 2 rollouts were rejected"):
        check([rollout(code="infra")] * 4, limit=1.0, troubled=2, lost=2, asked=2)
    check([], limit=0.0, troubled=0, lost=0, asked=0)


def test_a_server_that_ended_is_the_cause_named():
    with pytest.raises(Halted, match=r"embedded ROCK server ended \(exit code 1\), so 1 of 1 rollouts"):
        check([rollout(code="unavailable")] * 2, troubled=1, lost=1, asked=1, server_end="exit code 1")


METRICS = {
    "tokens/total": 12.0,
    "tokens/masked/zero_credit": 7.0,
    "tokens/dropped/failed/infra": 5.0,
    "tokens/masked/chunk_mask": 0.0,
}


def test_a_step_that_teaches_nothing_says_what_became_of_its_tokens():
    said = "step 4: no token has a gradient, so nothing was learned"
    assert nothing_learned(4, METRICS) == f"{said} (5 dropped/failed/infra, 7 masked/zero_credit)"
    assert nothing_learned(4, {"tokens/total": 0.0}) == f"{said} (none was sampled)"


def test_steps_in_a_row_that_teach_nothing_halt_the_run_where_that_is_limited():
    check_learned(4, METRICS, 1000, FilterOptions())
    check_learned(4, METRICS, 2, FilterOptions(empty_steps=3))
    with pytest.raises(Halted) as caught:
        check_learned(4, METRICS, 3, FilterOptions(empty_steps=3))
    said = str(caught.value)
    assert said.startswith(nothing_learned(4, METRICS))
    assert "3 such steps in a row, where groups were expected whose outcomes differ" in said
    assert "filter.empty_steps=3" in said
    assert "Start another run with" in said
