"""What algorithms with a critic share: advantages over its values, turn by turn, and what it learns from.

The estimates are NumPy, as all credit is; the loss is torch. Pure. The state of a turn is everything before its first
token, so a turn has one value, and only the position of its first token teaches it.

Shapes: K turns of one trajectory, L = K + 1 states of it, the one after the last turn included; B rows, T tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from trainer.algo.base import Metric
from trainer.algo.terms.loss import keep, mean_metric
from trainer.algo.terms.returns import Floats
from trainer.data.batch import TrainBatch

__all__ = ["critic_loss", "gae"]


def gae(rewards_K: Floats, values_L: Floats, *, gamma: float, trace: float) -> Floats:
    """Return the advantage of each turn: generalised advantage estimation (arXiv 1506.02438, Eqs. 11 and 16).

        delta_k = r_k + gamma V(s_(k+1)) - V(s_k)
        A_k     = delta_k + gamma trace A_(k+1)

    `values_L` ends with V of the state after the last turn: 0 where the task ended there. NaN marks a turn that decided
    nothing (no token): it is looked through, its reward and its discount going to the decision before, and has advantage 0.
    """
    advantages_K = np.zeros(len(rewards_K))
    ahead, following = 0.0, float(values_L[-1])
    for k in reversed(range(len(rewards_K))):
        following = rewards_K[k] + gamma * following
        if np.isnan(values_L[k]):
            ahead = gamma * ahead
            continue
        ahead = following - values_L[k] + gamma * trace * ahead
        advantages_K[k], following = ahead, float(values_L[k])
    return advantages_K


def critic_loss(batch: TrainBatch, clip: float) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Return the mean over the batch's turns of the clipped squared error, and its metrics; 0 where no turn has a target.

        1/2 max( (V - G)^2, (V_old + clip(V - V_old, -clip, clip) - G)^2 )

    Source: OpenAI Baselines' PPO2, as in arXiv 2005.12729, section 3. V_old is V as the batch's updates began, so that
    nothing is clipped in the first of them; `inf` never clips. A turn whose first token is too old has no part in it. The
    divisor counts the turns of the whole batch.
    """
    targets_BT, old_BT, opens_BT = batch.returns_BT, batch.old_values_BT, batch.opens_turn_BT
    if targets_BT is None or old_BT is None or opens_BT is None:
        return torch.zeros(()), {}
    mask_BT = (opens_BT >= 0) & batch.loss_mask_BT
    old_BT, targets_BT = keep(old_BT, mask_BT), keep(targets_BT, mask_BT)
    values_BT = old_BT if batch.values_BT is None else keep(batch.values_BT, mask_BT)
    free_BT = (values_BT - targets_BT).square()
    bound_BT = (old_BT + (values_BT - old_BT).clamp(-clip, clip) - targets_BT).square()
    error_BT = torch.maximum(free_BT, bound_BT) / 2
    clipped_BT = (bound_BT > free_BT).to(error_BT.dtype)
    return error_BT.sum() / max(batch.counts.turns, 1), {
        "critic/loss": mean_metric(error_BT, mask_BT),
        "critic/clipped_turns": mean_metric(clipped_BT, mask_BT),
    }
