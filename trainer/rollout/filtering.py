"""Which rollouts are no sample of the policy, and what is asked for in their place (docs/ipa.md section 6).

Pure decisions: the rollout worker asks while its other rollouts go on, the run asks when a step's are in, the learner asks
of what reached it. All come to the same answer, because it is a function of the record and the options alone. A rollout
that failed says nothing about the policy and is never a reward of 0; one that is sampled again has the same task, anchor
and group, and seeds derived from those of the one it replaces.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from agent_runtime.types import RolloutRequest, Trajectory, TurnFault, TurnLabel
from rock_env.errors import Unavailable
from trainer.config import FilterOptions, TrainConfig
from trainer.errors import Halted
from trainer.rollout.failures import check_server
from trainer.seeds import derive

__all__ = [
    "ILLEGAL",
    "again",
    "attempts",
    "check_learned",
    "check_share",
    "most_extra_groups",
    "nothing_learned",
    "rejection",
    "varies",
]

ILLEGAL = "repeated illegal calls"
"""Reason of a rollout in which `filter.illegal_turns` turns in a row were no action."""

_FUTILE = frozenset(
    {"invalid_argument", "permission_denied", "unauthenticated", "unimplemented", "unknown_name"}
)
"""Failures that say no to the request itself: the same request would fail the same way."""


def rejection(trajectory: Trajectory, options: FilterOptions) -> str:
    """Return why a rollout is no sample of the policy, as a reason for the token ledger; "" for one that is."""
    if reason := trajectory.why_no_reward:
        return reason
    if options.illegal_turns and _longest_illegal(trajectory) >= options.illegal_turns:
        return ILLEGAL
    return ""


def _longest_illegal(trajectory: Trajectory) -> int:
    faults = enumerate(trajectory.turn_faults)
    acts = (
        fault
        for turn, fault in faults
        if trajectory.label(turn) not in (TurnLabel.SUMMARY, TurnLabel.THOUGHT)
    )
    runs = groupby(fault is TurnFault.ILLEGAL for fault in acts)
    return max((len(list(run)) for illegal, run in runs if illegal), default=0)


def again(request: RolloutRequest, attempt: int) -> RolloutRequest:
    """Return the request that takes the place of a rejected one: the same start, freshly seeded; `attempt` counts from 1.

    A prefix is replayed under its expert's seed, so what is seeded anew from an anchor is what follows it.
    """
    seed = derive(request.seed, "again", attempt)
    start, fresh = request.start, derive(seed, "start")
    anew = replace(start, env_seed=fresh) if start.resume_seed is None else replace(start, resume_seed=fresh)
    return replace(request, id=f"{request.id}-r{attempt}", seed=seed, start=anew)


async def attempts(
    request: RolloutRequest,
    play: Callable[[RolloutRequest], Awaitable[Trajectory]],
    options: FilterOptions,
    *,
    waits: bool = False,
) -> list[Trajectory]:
    """Play a request until a rollout is accepted, or cannot be any more; return all, the one that counts last.

    `waits` says that whoever asked waits for a server that is away (`trainer.scheduler.outages`): here nobody does then.
    """
    futile = _FUTILE | {Unavailable.code} if waits else _FUTILE
    played = [await play(request)]
    while len(played) <= options.resamples and _is_worth_another(played[-1], options, futile):
        played.append(await play(again(request, len(played))))
    return played


def _is_worth_another(trajectory: Trajectory, options: FilterOptions, futile: Container[str]) -> bool:
    failure = trajectory.failure
    return bool(rejection(trajectory, options)) and (failure is None or failure.code not in futile)


def varies(group: Sequence[Trajectory], options: FilterOptions) -> bool:
    """Return whether the outcomes of a group's accepted rollouts differ; of less than two none do."""
    return len({t.reward for t in group if not rejection(t, options)}) > 1


def most_extra_groups(config: TrainConfig, *, wanted_by_algorithm: bool) -> int:
    """Return how many groups a step may draw in place of groups without variance."""
    mode = config.filter.dynamic
    if mode == "off" or (mode == "algorithm" and not wanted_by_algorithm) or config.rollout.group_size == 1:
        return 0
    return math.floor(config.filter.dynamic_extra * config.rollout.groups_per_step)


def check_share(
    rejected: Sequence[Trajectory],
    *,
    troubled: int,
    lost: int,
    asked: int,
    config: TrainConfig,
    server_end: str,
) -> None:
    """Raise `Halted` where more than `rollout.max_failure_rate` of what was asked for was rejected, or nothing is left.

    `rejected` are all rejected attempts: at `troubled` of the `asked` rollouts, of which `lost` have no replacement. A
    start that never works thus counts once, however often it is tried. `server_end` says how the embedded ROCK server
    ended, if it did.
    """
    limit = config.rollout.max_failure_rate
    if not rejected or (troubled <= limit * asked and lost < asked):
        return
    reasons = Counter(rejection(t, config.filter) for t in rejected)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    count = f"{troubled} of {asked} rollouts were rejected"
    check_server(server_end, count)
    first = next((t.failure.message for t in rejected if t.failure is not None), "")
    raise Halted(
        f"{count} (limit: rollout.max_failure_rate, a share of {limit:g}), {lost} of them have no replacement; attempts: "
        f"{told}.{f' The first failure: {first}' if first else ''} Rejected rollouts are never trained on as rewards; after "
        "mending the cause continue with --resume."
    )


def nothing_learned(step: int, metrics: Mapping[str, float]) -> str:
    """Say what became of the tokens of a step that taught nothing, by the reasons of its ledger."""
    fates = [
        name for name in metrics if name.startswith(("tokens/masked/", "tokens/dropped/")) and metrics[name]
    ]
    told = ", ".join(f"{metrics[name]:.0f} {name.removeprefix('tokens/')}" for name in sorted(fates))
    return f"step {step}: no token has a gradient, so nothing was learned ({told or 'none was sampled'})"


def check_learned(step: int, metrics: Mapping[str, float], empty_steps: int, options: FilterOptions) -> None:
    """Raise `Halted` where `empty_steps`, the steps in a row that taught nothing, reach `filter.empty_steps`."""
    if not options.empty_steps or empty_steps < options.empty_steps:
        return
    raise Halted(
        f"{nothing_learned(step, metrics)}: {empty_steps} such steps in a row, where groups were expected whose outcomes "
        f"differ (limit: filter.empty_steps={options.empty_steps}). Start another run with larger or more groups "
        "(rollout.group_size, rollout.groups_per_step, filter.dynamic_extra), with starts or tasks of other difficulty "
        "(anchors.scheduler, curriculum.tasks), or with filter.empty_steps=0 to go on regardless."
    )
