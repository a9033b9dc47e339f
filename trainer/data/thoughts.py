"""Leave the thoughts of answers out of what is learned: they become context of their answers, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from agent_runtime.policy import Thought, held_spans, merged_spans, thought_tokens
from agent_runtime.types import Trajectory, Turn, VersionTokens

__all__ = ["without_thoughts"]


def without_thoughts(trajectories: Sequence[Trajectory], thought: Thought) -> tuple[list[Trajectory], int]:
    """Return the trajectories with sampled thoughts as context, and how many tokens that are. Experts stay as they are.

    Comes after the credits: an answer that is all thought stays a turn, without a token, and counts in its group's baseline.
    Every sequence of tokens stays as the engine saw it.
    """
    told: list[Trajectory] = []
    moved = 0
    for trajectory in trajectories:
        if not trajectory.is_expert:
            counts = [thought_tokens(trajectory, turn, thought) for turn in range(len(trajectory.turns))]
            turns = map(_after, trajectory.turns, counts)
            trajectory, moved = replace(trajectory, turns=tuple(turns)), moved + sum(counts)
        told.append(trajectory)
    return told, moved


def _after(turn: Turn, tokens: int) -> Turn:
    """Return the turn with its first sampled tokens as context."""
    if not tokens:
        return turn
    ends = list(accumulate(span.tokens for span in turn.spans))
    left = [
        VersionTokens(span.version, min(span.tokens, max(end - tokens, 0)))
        for span, end in zip(turn.spans, ends, strict=True)
    ]
    return replace(
        turn,
        context_ids=np.concatenate((turn.context_ids, turn.completion_ids[:tokens])),
        completion_ids=turn.completion_ids[tokens:],
        logprobs=turn.logprobs[tokens:],
        policy_version=merged_spans(held_spans(left)),
    )
