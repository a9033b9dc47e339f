"""What of a session with side calls, sub-agents and several contexts is learned, and how its reward is shared out.

Pure. A turn whose label is not trained on becomes context of the turns that go on from it, so that algorithms, batches
and critics see the decisions that are learned and nothing else; the ledger names the label of its tokens.

A branch is a path from a root to a leaf; a compaction or a sub-agent begins a root of its own. The rules, with B branches:

    whole   each branch gets the whole reward: every turn weighs 1
    split   each branch gets 1/B of it: a turn weighs the share of the branches that run through it, so roots sum to 1
    leaf    only the branch that ended the session, that of its last main leaf, gets it: its turns weigh 1, all others 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import IntArray, Trajectory, Turn, TurnFault, TurnLabel
from trainer.data.batch import Credit
from trainer.errors import BatchError

__all__ = [
    "OTHER_BRANCH",
    "BranchRule",
    "branch_weights",
    "check_used",
    "share_credit",
    "trained_part",
]

BranchRule = Literal["whole", "split", "leaf"]

OTHER_BRANCH = "not on the last branch"
"""Reason of a turn that `leaf` gives no credit."""
_SLACK = 1e-9
_T = TypeVar("_T")


def trained_part(
    trajectory: Trajectory, labels: Collection[str] = (TurnLabel.MAIN,)
) -> tuple[Trajectory, Counter[str]]:
    """Return the trajectory with only the turns of these labels, and the sampled tokens left out, by ledger reason.

    Our own agents' summaries and memory calls (`Trajectory.internal_turns`) are decisions of the policy and always stay.
    Tokens stay as the engine saw them: what is left out stands in the `context_ids` of the turn that goes on from it.
    """
    left: Counter[str] = Counter()
    if not trajectory.is_session or all(label in labels for label in trajectory.turn_labels):
        return trajectory, left
    kept: list[Turn] = []
    before: list[
        tuple[int | None, list[IntArray]]
    ] = []  # per old turn: the kept one it continues, tokens since
    for turn, label in zip(trajectory.turns, trajectory.turn_labels, strict=True):
        parent, parts = (None, []) if turn.parent is None else before[turn.parent]
        context = [*parts, turn.context_ids]
        if label in labels:
            ids = np.concatenate(context) if parts else turn.context_ids
            before.append((len(kept), []))
            kept.append(replace(turn, index=len(kept), parent=parent, context_ids=ids))
        else:
            before.append((parent, [*context, turn.completion_ids]))
            left[f"label: {label.value}"] += len(turn.completion_ids)
    chosen = [index for index, label in enumerate(trajectory.turn_labels) if label in labels]
    faults = _of(trajectory.turn_faults, chosen)
    part = replace(
        trajectory,
        turns=tuple(kept),
        actions=_of(trajectory.actions, chosen),
        observations=_of(trajectory.observations, chosen),
        observation_hashes=_of(trajectory.observation_hashes, chosen),
        turn_rewards=_of(trajectory.turn_rewards, chosen),
        illegal_actions=sum(fault is TurnFault.ILLEGAL for fault in faults),
        turn_faults=faults,
        turn_labels=_of(trajectory.turn_labels, chosen),
    )
    return part, left


def branch_weights(trajectory: Trajectory, rule: BranchRule) -> NDArray[np.float64]:
    """Return what each turn's credit is multiplied by. Raise `BatchError` if the branches' shares do not add up."""
    turns = trajectory.turns
    weight_K = np.zeros(len(turns))
    leaves = sorted(
        {turn.index for turn in turns} - {turn.parent for turn in turns if turn.parent is not None}
    )
    if not turns or rule == "whole":
        return np.ones(len(turns))
    if rule == "split":
        weight_K[leaves] = 1 / max(len(leaves), 1)
    elif leaves:
        main = [leaf for leaf in leaves if trajectory.label(leaf) is TurnLabel.MAIN]
        weight_K[(main or leaves)[-1]] = 1
    for turn in reversed(turns):  # a parent comes before its children
        if turn.parent is not None:
            weight_K[turn.parent] += weight_K[turn.index]
    given = sum(weight_K[turn.index] for turn in turns if turn.parent is None)
    if abs(given - 1) > _SLACK or abs(weight_K[leaves].sum() - 1) > _SLACK:
        raise BatchError(
            f"the branches of trajectory {trajectory.id!r} share out {given!r} of its reward at their roots and "
            f"{weight_K[leaves].sum()!r} at their leaves, expected 1 ({rule}): its turns are no tree. Fix its record."
        )
    return weight_K


def share_credit(
    trajectories: Sequence[Trajectory], credits: Sequence[Credit], rule: BranchRule
) -> list[Credit]:
    """Return the credits with each turn's advantage weighed by its branches; chat loops' trajectories are left alone."""
    return [
        credit
        if rule == "whole" or not trajectory.is_session or credit.dropped or trajectory.is_expert
        else _weighed(credit, branch_weights(trajectory, rule))
        for trajectory, credit in zip(trajectories, credits, strict=True)
    ]


def check_used(trajectories: Sequence[Trajectory], labels: Collection[str], rule: BranchRule) -> None:
    """Raise `BatchError` where options of sessions are set, but no rollout of the step is one."""
    told = tuple(labels) != (TurnLabel.MAIN.value,) or rule != "whole"
    acted = [t for t in trajectories if t.turns and t.has_reward and not t.is_expert]
    if told and acted and not any(t.is_session for t in acted):
        raise BatchError(
            f"rollout.train_labels={tuple(labels)!r} and rollout.branch_credit={rule!r} act on agents with calls of several "
            f"kinds: got {len(acted)} rollouts of our own agents, all of whose turns are learned. Leave both out."
        )


def _of(values: tuple[_T, ...], chosen: Sequence[int]) -> tuple[_T, ...]:
    return tuple(values[index] for index in chosen) if values else ()


def _weighed(credit: Credit, weight_K: NDArray[np.float64]) -> Credit:
    others = {int(turn): OTHER_BRANCH for turn in np.flatnonzero((weight_K == 0) & (credit.advantage_K != 0))}
    return replace(credit, advantage_K=credit.advantage_K * weight_K, masked={**credit.masked, **others})
