"""The account of every sampled token of a step: trained, imitated, masked or dropped, the last two with a reason.

Made by the batch builder from the credits, closed by the learner once the losses have said what they left out. It decides
nothing; it stops a run whose numbers do not add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainer.errors import LedgerError

__all__ = ["FLAT_GROUP", "TOO_OLD", "Ledger", "add_left_out", "add_step", "slug"]

FLAT_GROUP = "group without variance"
"""Reason of a group whose outcomes are all the same, given where it is replaced and where it is dropped."""
TOO_OLD = "too old"
"""Reason of a token of a version before its credit's `oldest`, and of a kept success beyond `reuse.max_lag`."""

_PREFIX = "tokens/"
_TRAJECTORIES = "trajectories/dropped/"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where every completion token of a step went. Raise `LedgerError` if the parts do not add up."""

    total: int
    """Tokens sampled, those lost with a failed step included, and those of experts and earlier successes that joined."""
    trained: int
    imitated: int
    masked: Mapping[str, int]
    """Tokens without weight in trajectories that take part, by reason."""
    dropped: Mapping[str, int]
    """Tokens of trajectories that take no part, by reason."""
    experts: int = 0
    """Tokens of experts within the total: nobody sampled them here."""
    reused: int = 0
    """Tokens of earlier steps' successes within the total: sampled, and accounted for a first time, then."""
    dropped_trajectories: Mapping[str, int] = field(default_factory=dict)
    """Trajectories that take no part, by reason; one may have no token at all."""

    def __post_init__(self) -> None:
        fates = [self.trained, self.imitated, *self.masked.values(), *self.dropped.values()]
        if sum(fates) != self.total or min(fates) < 0:
            raise LedgerError(
                f"the token ledger does not add up: {sum(fates)} tokens accounted for, {self.total} sampled "
                f"({self}). A token was trained twice or lost: a bug in the batch builder, in the train engine's "
                "`step`, in a loss's `masked` or in `Trajectory.branches`."
            )

    def with_reuse(self, tokens: int, left: Mapping[str, int]) -> Ledger:
        """Return the account of a step that `tokens` of earlier successes joined, and what of them `left`, by reason."""
        return replace(
            self, reused=tokens, dropped_trajectories=_present({**self.dropped_trajectories, **left})
        )

    def with_context(self, left: Mapping[str, int]) -> Ledger:
        """Return the account of a step in which sampled tokens are mere context, by reason: turns not trained on."""
        masked = {
            reason: self.masked.get(reason, 0) + left.get(reason, 0) for reason in {**self.masked, **left}
        }
        return replace(self, total=self.total + sum(left.values()), masked=_present(masked))

    def after_losses(self, *, trained: int, imitated: int, masked: Mapping[str, int]) -> Ledger:
        """Return the account with what the losses really saw, and left out for the reasons in `masked`.

        Raise `LedgerError` where that is not what the batch held: a part was lost or learned twice.
        """
        both = dict(self.masked)
        for reason, tokens in masked.items():
            both[reason] = both.get(reason, 0) + tokens
        return replace(self, trained=trained, imitated=imitated, masked=_present(both))

    def masked_share(self, reason: str) -> float:
        """Return the share of the tokens that the step's own rollouts sampled that are masked for a reason."""
        return self.masked.get(reason, 0) / max(self.total - self.experts - self.reused, 1)

    def metrics(self) -> dict[str, float]:
        """Return the account under the names of docs/metrics.md."""
        named = {
            f"{_PREFIX}total": self.total,
            f"{_PREFIX}experts": self.experts,
            f"{_PREFIX}reused": self.reused,
            f"{_PREFIX}trained": self.trained,
            f"{_PREFIX}imitated": self.imitated,
            **{f"{_PREFIX}masked/{slug(reason)}": tokens for reason, tokens in self.masked.items()},
            **{f"{_PREFIX}dropped/{slug(reason)}": tokens for reason, tokens in self.dropped.items()},
        }
        for reason, count in self.dropped_trajectories.items():
            named[f"{_TRAJECTORIES}{slug(reason)}"] = count
        return {name: float(value) for name, value in named.items()}


def add_step(totals: dict[str, int], metrics: Mapping[str, float], *, sampled: int) -> None:
    """Add a step's `Ledger.metrics` to the run's totals; `sampled` are the tokens that its rollouts sampled.

    Raise `LedgerError` where the learner's account is not of these rollouts.
    """
    tokens = {n.removeprefix(_PREFIX): int(v) for n, v in metrics.items() if n.startswith(_PREFIX)}
    accounted = _sampled_here(metrics)
    if accounted != sampled:
        raise LedgerError(
            f"the token ledger does not add up: the learner accounts for {accounted} sampled tokens, the step's rollouts "
            f"sampled {sampled}. Rollouts were lost or changed on their way to the learner."
        )
    for name, count in tokens.items():
        totals[name] = totals.get(name, 0) + count


def add_left_out(
    totals: dict[str, int], metrics: Mapping[str, float], tokens: Sequence[tuple[str, int]], *, sampled: int
) -> dict[str, float]:
    """Return a step's metrics with the trajectories that never reached the learner as dropped, and add them to `totals`.

    `tokens` has (reason, tokens) for each of them, `sampled` is what all rollouts of the step sampled. Raise `LedgerError`
    where that is not what the learner's account and these come to.
    """
    left_out, trajectories = Counter[str](), Counter[str]()
    for reason, count in tokens:
        trajectories[f"{_TRAJECTORIES}{slug(reason)}"] += 1
        if count:
            left_out.update({"total": count, f"dropped/{slug(reason)}": count})
    accounted = _sampled_here(metrics) + left_out["total"]
    if accounted != sampled:
        raise LedgerError(
            f"the token ledger does not add up: learner and rejected rollouts account for {accounted} sampled tokens, the "
            f"step's rollouts sampled {sampled}. A rollout was lost between the fleet and the learner."
        )
    for name, count in left_out.items():
        totals[name] = totals.get(name, 0) + count
    added = {**{f"{_PREFIX}{name}": count for name, count in left_out.items()}, **trajectories}
    return {**metrics, **{name: metrics.get(name, 0.0) + count for name, count in added.items()}}


def _sampled_here(metrics: Mapping[str, float]) -> int:
    """Return the tokens of the learner's account that this step's rollouts sampled."""
    return int(metrics[f"{_PREFIX}total"] - metrics[f"{_PREFIX}experts"] - metrics[f"{_PREFIX}reused"])


def slug(reason: str) -> str:
    """Return a reason as metrics are named by it."""
    return reason.replace(": ", "/").replace(" ", "_")


def _present(tokens: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in tokens.items() if count}
