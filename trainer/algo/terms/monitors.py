"""What a step's updates looked like, measured the same way for every algorithm. Defined in docs/metrics.md.

Wrapped around the algorithm's loss by the learner: `Monitors.watch(loss)` sees every part of the batch exactly once, with
the log-probabilities of that moment, and what the loss says it left out. It changes no number of the update. Its counts
also close the token ledger.

Ratios are geometric means over a token, a chunk or a whole trajectory ("sequence"):

    rho = exp mean (log pi_theta - log mu)     how far off-policy the update is
    w   = exp mean (log pi_prox - log mu)      the part that was there as the step's updates began: mismatch and staleness

Where the batch has no pi_prox the policy of the step's first update is pi_prox; tokens of later updates then have no w.

and, where the learner keeps the weights that sampled, the two factors of w, for tokens whose version is not gone:

    exp mean (log pi_prox - log pi_old)        staleness
    exp mean (log pi_old - log mu)             what the engines disagree on

Shapes: B rows, T tokens, N trained tokens, U units (tokens, chunks or trajectories), K turns of all trajectories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.types import Trajectory
from trainer.algo.base import Credit, LossOutput
from trainer.data.batch import TrainBatch
from trainer.data.ledger import TOO_OLD, Ledger

__all__ = ["LOG_RATIO_BOUND", "Monitors", "Watched", "critic_metrics", "lag_metrics", "outcome_metrics"]

Loss = Callable[[TrainBatch, torch.Tensor], LossOutput]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TINY = float(np.finfo(np.float64).tiny)

LOG_RATIO_BOUND = 20.0
"""A log-ratio beyond it counts as an overflow and is measured as this: exp(20) is 5e8, far outside any clip."""


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """The tokens of the RL term in one part of the batch, or in all of them."""

    log_rho_N: Floats
    log_w_N: Floats
    """log pi_prox - log mu; NaN where pi_prox is not known."""
    log_stale_N: Floats
    """log pi_prox - log pi_old; NaN where pi_old is not known."""
    left_out_N: NDArray[np.bool_]
    chunk_N: Ints
    trajectory_N: Ints
    version_N: Ints

    @staticmethod
    def joined(parts: Sequence[_Seen]) -> _Seen:
        columns = ([getattr(part, name) for part in parts] for name in _Seen.__slots__)
        return _Seen(*(np.concatenate(column) for column in columns))


class Watched:
    """The loss of one update under an account. Where `loss` runs in another process, `saw` accounts for what it said."""

    def __init__(self, account: Monitors, loss: Loss, *, is_first: bool) -> None:
        self.loss = loss
        self._account = account
        self._is_first = is_first

    def __call__(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return what the loss says of a part."""
        output = self.loss(batch, logprobs_BT)
        self.saw(batch, logprobs_BT.detach(), output)
        return output

    def saw(self, batch: TrainBatch, logprobs_BT: torch.Tensor, output: LossOutput) -> None:
        """Account for what the loss said of a part."""
        now_BT = logprobs_BT if self._is_first else torch.full_like(logprobs_BT, torch.nan)
        prox_BT = now_BT if batch.prox_logprobs_BT is None else batch.prox_logprobs_BT
        self._account.observe(batch, logprobs_BT, prox_BT, output)


class Monitors:
    """The account of one step's updates: `watch` their loss, then ask for `metrics`."""

    def __init__(self, *, skip_zero_credit: bool = True) -> None:
        """`skip_zero_credit` as the batch was built with: whether tokens with advantage 0 have no gradient."""
        self._skips = skip_zero_credit
        self._parts: list[_Seen] = []
        self._updates = 0
        self.trained = 0
        """Tokens that the losses gave a gradient so far."""
        self.imitated = 0
        self.masked: Counter[str] = Counter()
        """Tokens that the losses left out, by reason."""

    def watch(self, loss: Loss) -> Watched:
        """Return the loss of one update, which tells this account what it was given and what it left out."""
        self._updates += 1
        return Watched(self, loss, is_first=self._updates == 1)

    def gap(self, version: int) -> Floats:
        """Return log pi_prox - log mu of the tokens that this version sampled, as far as pi_prox is known."""
        seen = [(part.log_w_N, part.version_N == version) for part in self._parts]
        gap_N: Floats = np.concatenate([np.zeros(0), *(log_w_N[own_N] for log_w_N, own_N in seen)])
        known_N: Floats = gap_N[~np.isnan(gap_N)]
        return known_N

    def metrics(self) -> dict[str, float]:
        """Return ratios, divergences and masks over everything seen; nothing where no token was of the RL term."""
        if not any(len(part.log_rho_N) for part in self._parts):
            return {}
        seen = _Seen.joined(self._parts)
        chunks, chunk_N = np.unique(seen.chunk_N, return_inverse=True)
        kept = np.unique(chunk_N[~seen.left_out_N])
        bounded_N = np.clip(seen.log_rho_N, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        units = {"token": np.arange(len(chunk_N)), "chunk": chunk_N, "sequence": seen.trajectory_N}
        found: dict[str, float] = {}
        for unit, index_N in units.items():
            rho_U = _ratios(seen.log_rho_N, index_N)
            found |= {
                f"ratio/{unit}_mean": float(rho_U.mean()),
                f"ratio/{unit}_max": float(rho_U.max()),
                f"ratio/{unit}_ess": float(rho_U.sum() ** 2 / (len(rho_U) * np.square(rho_U).sum())),
            }
        factors = {
            "mismatch": seen.log_w_N,
            "staleness": seen.log_stale_N,
            "engines": seen.log_w_N - seen.log_stale_N,
        }
        for name, logs_N in factors.items():
            known_N = ~np.isnan(logs_N)
            for unit, index_N in units.items() if known_N.any() else ():
                ratio_U = _ratios(logs_N[known_N], index_N[known_N])
                found |= {
                    f"{name}/{unit}_mean": float(ratio_U.mean()),
                    f"{name}/{unit}_max": float(ratio_U.max()),
                }
        if (known_N := ~np.isnan(seen.log_w_N)).any():
            found["mismatch/token_abs"] = float(np.abs(seen.log_w_N[known_N]).mean())
        return found | {
            "ratio/token_overflow": float((bounded_N != seen.log_rho_N).mean()),
            "kl/k1": float(-seen.log_rho_N.mean()),
            "kl/k3": float((np.exp(bounded_N) - 1 - bounded_N).mean()),
            "mask/token_share": float(seen.left_out_N.mean()),
            "mask/chunk_share": 1 - len(kept) / len(chunks),
        }

    def observe(
        self, batch: TrainBatch, logprobs_BT: torch.Tensor, prox_BT: torch.Tensor, output: LossOutput
    ) -> None:
        """Count one part of an update; `prox_BT` is log pi_prox, NaN where it is not known."""
        mask_BT = batch.loss_mask_BT
        # What weighs nothing is in the ledger already, under the reason that its credit has.
        weighs_BT = mask_BT & (batch.advantages_BT != 0) if self._skips else mask_BT
        left_BT = torch.zeros_like(mask_BT)
        for reason, masked_BT in output.masked.items():
            self.masked[reason] += int((masked_BT & weighs_BT & ~left_BT).sum())
            left_BT = left_BT | masked_BT
        self.trained += int((weighs_BT & ~left_BT).sum())
        self.imitated += int((batch.imitation_BT != 0).sum())
        mu_N = batch.rollout_logprobs_BT[mask_BT].double()
        old_BT = (
            torch.full_like(logprobs_BT, torch.nan)
            if batch.old_logprobs_BT is None
            else batch.old_logprobs_BT
        )
        rows_N = mask_BT.nonzero()[:, 0]
        self._parts.append(
            _Seen(
                log_rho_N=(logprobs_BT[mask_BT] - mu_N).cpu().numpy(),
                log_w_N=(prox_BT[mask_BT] - mu_N).cpu().numpy(),
                log_stale_N=(prox_BT[mask_BT].double() - old_BT[mask_BT].double()).cpu().numpy(),
                left_out_N=left_BT[mask_BT].cpu().numpy(),
                chunk_N=batch.chunk_index_BT[mask_BT].cpu().numpy(),
                trajectory_N=batch.trajectory_index_B[rows_N].cpu().numpy(),
                version_N=batch.policy_version_BT[mask_BT].cpu().numpy(),
            )
        )


def _ratios(logs_N: Floats, index_N: Ints) -> Floats:
    """Return the geometric mean ratio of every unit that `index_N` names."""
    count = np.bincount(index_N)
    means = np.bincount(index_N, logs_N)[count > 0] / count[count > 0]
    ratios: Floats = np.exp(np.clip(means, -LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    return ratios


def lag_metrics(batch: TrainBatch, version: int, ledger: Ledger | None = None) -> dict[str, float]:
    """Return how many versions lie between what sampled the RL tokens and `version`, which learns; nothing without any.

    With the batch's ledger, too, how many tokens have each lag, and which share of the sampled was too old.
    """
    lag_N = version - batch.policy_version_BT[batch.loss_mask_BT]
    found = {"lag/mean": float(lag_N.double().mean()), "lag/max": float(lag_N.max())} if len(lag_N) else {}
    if ledger is None:
        return found
    lags, tokens = np.unique(lag_N.cpu().numpy(), return_counts=True)
    spread = {f"lag/tokens/{lag}": float(n) for lag, n in zip(lags.tolist(), tokens.tolist(), strict=True)}
    return {**found, **spread, "lag/too_old_share": ledger.masked_share(TOO_OLD)}


def critic_metrics(trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> dict[str, float]:
    """Return how well the critic knew the step's returns, over turns with a token; nothing without a critic."""
    pairs = [
        (credit.value_K[k], credit.return_K[k])
        for t, credit in zip(trajectories, credits, strict=True)
        if not credit.dropped and credit.value_K is not None and credit.return_K is not None
        for k, turn in enumerate(t.turns)
        if len(turn.completion_ids)
    ]
    if not pairs:
        return {}
    value_K, return_K = np.array(pairs).T
    found = {"critic/value_mean": float(value_K.mean()), "critic/return_mean": float(return_K.mean())}
    taught_K = return_K.astype(np.float32)  # what rounding leaves of (G - V) + V in float64 is no variance
    if taught_K.min() < taught_K.max():
        found["critic/explained_variance"] = float(1 - (return_K - value_K).var() / return_K.var())
    return found


def outcome_metrics(trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> dict[str, float]:
    """Return what the step's credit is made of: shares of successes and of signs, how long failures are, who has any."""
    learners = [
        (trajectory, credit)
        for trajectory, credit in zip(trajectories, credits, strict=True)
        if not credit.dropped and not trajectory.is_expert
    ]
    if not learners:
        return {}
    length_K = np.array([len(turn.completion_ids) for t, _ in learners for turn in t.turns])
    advantage_K = np.concatenate([credit.advantage_K for _, credit in learners])
    tokens = max(int(length_K.sum()), 1)
    found = {
        "outcome/positive_share": float(np.mean([credit.positive for _, credit in learners])),
        "advantage/positive_share": float(length_K[advantage_K > 0].sum() / tokens),
        "advantage/negative_share": float(length_K[advantage_K < 0].sum() / tokens),
        "credit/tokens": float(length_K[advantage_K != 0].sum()),
    }
    weights: dict[str, float] = {}
    for t, credit in learners:
        own_K = [len(turn.completion_ids) for turn in t.turns]
        weights[t.group_id] = weights.get(t.group_id, 0.0) + float(np.abs(credit.advantage_K) @ own_K)
    weight_G = np.array(list(weights.values()))
    found["credit/groups"] = float((weight_G > 0).sum())
    found["credit/effective_groups"] = float(weight_G.sum() ** 2 / max(np.square(weight_G).sum(), _TINY))
    if positives := [t.sampled_tokens for t, credit in learners if credit.positive]:
        found["outcome/positive_tokens"] = float(np.mean(positives))
    if negatives := [t.sampled_tokens for t, credit in learners if not credit.positive]:
        found["outcome/negative_tokens"] = float(np.mean(negatives))
        found["outcome/negative_tokens_max"] = float(max(negatives))
    return found
