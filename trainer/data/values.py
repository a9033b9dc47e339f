"""Which states a critic is asked about, and whose answers its values are.

A trajectory of K turns has K + 1 states: the history before each turn's first token, and the one after the last turn, which
nobody acted in and which is asked for only where the algorithm bootstraps. It never sees a value's meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.agents.conversation import Prompt
from agent_runtime.types import Trajectory, Turn
from trainer.data.batch import Credit, TrainBatch
from trainer.data.build import build_batch

__all__ = ["states_of", "values_per_turn", "with_next_state"]


def with_next_state(trajectory: Trajectory, prompt: Prompt) -> Trajectory:
    """Return the trajectory as if a further turn had sampled one token after `prompt`: its state can then be asked for."""
    turn = Turn(
        index=len(trajectory.turns),
        parent=prompt.parent,
        context_ids=prompt.context_ids,
        completion_ids=np.zeros(1, np.int32),  # stands for any token: a state does not depend on what follows
        logprobs=np.zeros(1, np.float32),
        finish_reason="length",
        policy_version=0,
    )
    return replace(trajectory, turns=(*trajectory.turns, turn))


def states_of(trajectories: Sequence[Trajectory]) -> TrainBatch:
    """Return a batch whose trained tokens open the turns of those that learn: not of experts, nor of what failed."""
    credits = []
    for trajectory in trajectories:
        zeros = np.zeros(len(trajectory.turns))
        learns = trajectory.has_reward and not trajectory.is_expert
        credits.append(Credit(zeros, False, zeros, "" if learns else "learns nothing", every_token=True))
    batch, _ = build_batch(trajectories, credits, token_budget=1)
    assert batch.opens_turn_BT is not None
    return replace(batch, loss_mask_BT=batch.opens_turn_BT >= 0)


def values_per_turn(
    turns: Sequence[int], batch: TrainBatch, values_BT: torch.Tensor
) -> list[NDArray[np.float64]]:
    """Return the values of `states_of` in float64, K + 1 for a trajectory of `turns` K; NaN where none was asked for."""
    assert batch.opens_turn_BT is not None
    asked_BT = batch.opens_turn_BT >= 0
    first = np.cumsum([0, *(count + 1 for count in turns)])
    flat = np.full(first[-1], np.nan)
    owner_N = batch.trajectory_index_B[asked_BT.nonzero()[:, 0]].numpy()
    flat[first[owner_N] + batch.opens_turn_BT[asked_BT].numpy()] = values_BT.cpu()[asked_BT].double().numpy()
    return np.split(flat, first[1:-1])
