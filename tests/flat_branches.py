"""A branch of a trajectory's turns as flat arrays, to compare with what a model was given and what is learned from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import Branch, FloatArray, IntArray


def token_arrays(branch: Branch) -> tuple[IntArray, NDArray[np.bool_], FloatArray]:
    """Return (ids, trains, logprobs) of a branch, one entry per token of the sequence the engine saw.

    `trains` is True on completion tokens (an expert's included) of turns that no earlier branch holds, so
    that over all branches of a trajectory each completion token is True exactly once. `logprobs` is 0 on
    context.
    """
    parts: list[IntArray] = []
    lengths: list[int] = []
    for turn in branch.turns:
        parts += (turn.context_ids, turn.completion_ids)
        lengths += (len(turn.context_ids), len(turn.completion_ids))
    completion_flags = np.tile(np.array([False, True]), len(branch.turns))
    sampled = np.repeat(completion_flags, lengths)
    logprobs = np.zeros(len(sampled), np.float32)
    logprobs[sampled] = np.concatenate([turn.logprobs for turn in branch.turns])
    completion_flags[: 2 * branch.shared] = False
    return np.concatenate(parts), np.repeat(completion_flags, lengths), logprobs
