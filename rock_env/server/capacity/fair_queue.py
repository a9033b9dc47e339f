"""Who gets a box next: a pure scheduler over tenants, quotas, one node's capacity and requests of one or many boxes.

No clock, no tasks. Weighted dominant resource fairness (Ghodsi et al., NSDI 2011): the tenant whose largest share of
any resource, divided by its weight, is least is served first. A request is granted whole or not at all and holds
nothing while it waits, so two gangs cannot block each other.

Departures from the paper: a request that does not fit lets smaller ones pass (backfilling), but only so often
(`PATIENCE`); then what is released is kept for it. Who is above its fair share gets no such reservation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice

from rock_env.errors import InvalidArgument
from rock_env.inventory import Amount, Limits
from rock_env.server.capacity.quotas import Quota

__all__ = ["PATIENCE", "FairQueue", "Waiting"]

PATIENCE = 8
"""How often the oldest request of a tenant may be passed: by younger ones of its own tenant, and, times the
tenants' weights over its own, by anybody."""
_WINDOW = 64
"""How many of a tenant's waiting requests are looked at: bounds the work of one release."""


@dataclass(eq=False, slots=True)
class Waiting:
    """One request in the queue."""

    tenant: str
    amount: Amount
    number: int
    """Order of arrival over all tenants."""
    passed_by_own: int = 0
    passed_by_any: int = 0


@dataclass(slots=True)
class _Tenant:
    used: Amount = field(default_factory=Amount)
    queue: OrderedDict[int, Waiting] = field(default_factory=OrderedDict)
    """By number, which is the order of arrival. Ordered: the first of a plain dict is slow to find behind removed ones."""

    @property
    def oldest(self) -> Waiting | None:
        return next(iter(self.queue.values()), None)


class FairQueue:
    """The requests that wait and the amounts that are taken. `quota(tenant)` may change between calls."""

    def __init__(self, capacity: Limits, quota: Callable[[str], Quota]) -> None:
        self.capacity = capacity
        self.used = Amount()
        self._quota = quota
        self._tenants: dict[str, _Tenant] = {}
        self._numbers = count()

    def check(self, tenant: str, amount: Amount) -> None:
        """Raise `InvalidArgument` for a request that could not be granted even if nothing else were held."""
        for whose, limits in (
            ("the quota of its tenant", self._quota(tenant).limits),
            ("this server's capacity", self.capacity),
        ):
            for name, asked, bound in limits.pairs(amount):
                if asked > bound:
                    scale = 1000 if name == "cpus" else 1
                    raise InvalidArgument(
                        f"the request can never be granted: it takes {asked / scale:g} {name}, and {whose} is "
                        f"{bound / scale:g}. Ask for less, or have the limit raised."
                    )

    def submit(self, tenant: str, amount: Amount) -> Waiting:
        """Queue a request; `grant` says when it is its turn."""
        waiting = Waiting(tenant, amount, next(self._numbers))
        self._tenants.setdefault(tenant, _Tenant()).queue[waiting.number] = waiting
        return waiting

    def cancel(self, waiting: Waiting) -> None:
        """Forget a request that still waits."""
        self._tenants[waiting.tenant].queue.pop(waiting.number, None)
        self._tidy(waiting.tenant)

    def take(self, tenant: str, amount: Amount) -> None:
        """Count an amount that is held already, whatever the limits say (a box found alive after a restart)."""
        state = self._tenants.setdefault(tenant, _Tenant())
        state.used += amount
        self.used += amount

    def release(self, tenant: str, amount: Amount) -> None:
        """Give back what was granted or taken."""
        self._tenants[tenant].used -= amount
        self.used -= amount
        self._tidy(tenant)

    def grant(self) -> Iterator[Waiting]:
        """Grant whatever can be granted now, in order; each is out of the queue and counted when it is yielded."""
        while (chosen := self._choose()) is not None:
            self._count_passes(chosen)
            del self._tenants[chosen.tenant].queue[chosen.number]
            self.take(chosen.tenant, chosen.amount)
            yield chosen

    def used_by(self, tenant: str) -> Amount:
        """Return what the tenant holds."""
        state = self._tenants.get(tenant)
        return Amount() if state is None else state.used

    def queued(self, tenant: str) -> list[Waiting]:
        """Return the tenant's requests that wait, oldest first."""
        return list(self._tenants[tenant].queue.values()) if tenant in self._tenants else []

    def length(self, tenant: str | None = None) -> int:
        """Return how many requests wait, of one tenant or of all."""
        if tenant is None:
            return sum(len(state.queue) for state in self._tenants.values())
        return len(self._tenants[tenant].queue) if tenant in self._tenants else 0

    def tenants(self) -> list[str]:
        """Return the tenants that hold or want something."""
        return sorted(self._tenants)

    def fair_shares(self) -> dict[str, float]:
        """Return each tenant's part of the node by weight, among those that hold or want something."""
        weights = {name: self._quota(name).weight for name in self._tenants}
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    # -- the choice

    def _choose(self) -> Waiting | None:
        reserved = min(self._reserved(), key=lambda waiting: waiting.number, default=None)
        if reserved is not None:
            return reserved if self._fits(reserved) else None
        if not self.capacity.hold(self.used + Amount(boxes=1)):
            return None
        too_large: set[Amount] = set()  # most requests are alike
        for tenant in sorted((name for name, state in self._tenants.items() if state.queue), key=self._rank):
            beyond: set[Amount] = set()  # the tenant's quota
            for waiting in islice(self._tenants[tenant].queue.values(), _WINDOW):
                if waiting.amount not in too_large and waiting.amount not in beyond:
                    if not self._fits(waiting):
                        too_large.add(waiting.amount)
                    elif self._within_quota(waiting):
                        return waiting
                    else:
                        beyond.add(waiting.amount)
                if waiting.passed_by_own >= PATIENCE:
                    break
        return None

    def _rank(self, tenant: str) -> tuple[float, int]:
        state = self._tenants[tenant]
        share = self.capacity.dominant_share(state.used) / self._quota(tenant).weight
        return share, next(iter(state.queue))

    def _fits(self, waiting: Waiting) -> bool:
        return self.capacity.hold(self.used + waiting.amount)

    def _within_quota(self, waiting: Waiting) -> bool:
        held = self._tenants[waiting.tenant].used
        return self._quota(waiting.tenant).limits.hold(held + waiting.amount)

    def _reserved(self) -> list[Waiting]:
        """Return the requests that were passed often enough: what is released is theirs."""
        passed = [oldest for oldest in self._oldest() if oldest.passed_by_any >= PATIENCE]
        shares = self.fair_shares() if passed else {}
        return [
            waiting
            for waiting in passed
            if waiting.passed_by_any >= PATIENCE / shares[waiting.tenant] and self._within_quota(waiting)
        ]

    def _oldest(self) -> list[Waiting]:
        return [oldest for state in self._tenants.values() if (oldest := state.oldest) is not None]

    def _count_passes(self, chosen: Waiting) -> None:
        """Note for each tenant's oldest request that another one went first."""
        passed = [oldest for oldest in self._oldest() if oldest is not chosen]
        shares = self.fair_shares() if passed else {}
        for oldest in passed:
            if oldest.tenant == chosen.tenant:
                oldest.passed_by_own += 1
            held = self.capacity.dominant_share(self._tenants[oldest.tenant].used)
            if held <= shares[oldest.tenant] and self._within_quota(oldest):
                oldest.passed_by_any += 1

    def _tidy(self, tenant: str) -> None:
        state = self._tenants[tenant]
        if not state.queue and state.used == Amount():
            del self._tenants[tenant]
