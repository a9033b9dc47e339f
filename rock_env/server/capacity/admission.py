"""The door of a node: every box is admitted here before it is made, and gives its place back when it is gone.

Which request is next is `fair_queue`'s to decide; here it waits, up to its caller's deadline, in a bounded queue. A
caller that may not wait longer is told its place in the queue and when to come back. It makes and destroys no box.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rock_env.errors import InvalidArgument, ResourceExhausted
from rock_env.inventory import Amount, Limits
from rock_env.server.capacity.fair_queue import FairQueue, Waiting
from rock_env.server.capacity.quotas import Ask, Quota, QuotaFile, Quotas
from rock_env.spec import Resources

__all__ = ["DEFAULT_WAIT_S", "Admission", "Grant"]

DEFAULT_WAIT_S = 60.0
"""How long a request waits whose caller named no deadline."""
_MAX_WAITING = 1000
"""Requests one tenant may have waiting: more would only wait for deadlines that pass."""
_REFUSAL_S = 0.006
"""What one refusal takes from the queue to the caller on a machine with three times the work it can do (2 ms alone)."""
_RELEASES = 64
"""How many of the last releases the release rate is taken from."""
_UNKNOWN_RETRY_S = 5.0
"""What is said of a node that has not released anything yet."""
_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.1, 300.0


class Grant:
    """A place for one or more boxes, held until `release`. `split` gives each box its own."""

    def __init__(self, tenant: str, asks: Sequence[Ask], give_back: Callable[[str, Amount], None]) -> None:
        self.tenant = tenant
        self.asks = tuple(asks)
        self._give_back = give_back
        self._held = True

    @property
    def held(self) -> bool:
        """Return whether it is not released yet."""
        return self._held

    def release(self) -> None:
        """Give the place back. Safe to call twice."""
        if self._held:
            self._held = False
            self._give_back(self.tenant, _sum(self.asks))

    def split(self) -> list[Grant]:
        """Return a grant for each box; this one holds nothing any more. Raise `RuntimeError` if it was released."""
        if not self._held:
            raise RuntimeError("a released grant has nothing to split")
        self._held = False
        return [Grant(self.tenant, [ask], self._give_back) for ask in self.asks]


class Admission:
    """The places of one node. Used on one event loop."""

    def __init__(
        self,
        quotas: QuotaFile | None = None,
        *,
        max_waiting: int = _MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`quotas` None is for a node without bounds."""
        quotas = QuotaFile(Quotas(Limits())) if quotas is None else quotas
        self._quotas = quotas
        self._queue = FairQueue(quotas.capacity, quotas.of)
        self._max_waiting = max_waiting
        self._turns: dict[Waiting, asyncio.Event] = {}
        self._clock = clock
        self._releases: deque[tuple[float, int]] = deque(maxlen=_RELEASES)
        self._on_release: list[Callable[[], None]] = []

    # -- places

    async def admit(self, tenant: str, asks: Sequence[Ask], *, timeout_s: float | None = None) -> Grant:
        """Wait for a place for all the boxes at once, or for none.

        Raise `InvalidArgument` at once for what could never be granted, and `ResourceExhausted`, with the place in the
        queue and a time to come back, when the queue is full or `timeout_s` (None: `DEFAULT_WAIT_S`) has passed, less some
        milliseconds for each request of the tenant that waits already.
        """
        amount = self._possible(tenant, asks)
        if self._queue.length(tenant) >= self._max_waiting:
            raise self._exhausted(tenant, amount, self._queue.queued(tenant), "its queue is full")
        ahead = self._queue.length(tenant)
        waiting, turn = self._submit(tenant, amount)
        try:
            async with asyncio.timeout(_patience_s(timeout_s, ahead)):
                if not turn.is_set():
                    await turn.wait()
        except BaseException as error:
            if turn.is_set():  # at the very moment its caller gave up
                if isinstance(error, TimeoutError):
                    return Grant(tenant, asks, self._give_back)
                self._give_back(tenant, amount)
                raise
            del self._turns[waiting]
            queued = self._queue.queued(tenant)
            self._queue.cancel(waiting)
            refusal = self._exhausted(
                tenant, amount, queued[: queued.index(waiting)], "no place came free in time"
            )
            self._serve()  # it may have been what others waited behind
            if isinstance(error, TimeoutError):
                raise refusal from None
            raise
        return Grant(tenant, asks, self._give_back)

    def admit_now(self, tenant: str, asks: Sequence[Ask]) -> Grant | None:
        """Return a place if there is one and nobody is to get it first. Raise `InvalidArgument` as `admit` does."""
        amount = self._possible(tenant, asks)
        waiting, turn = self._submit(tenant, amount)
        if turn.is_set():
            return Grant(tenant, asks, self._give_back)
        del self._turns[waiting]
        self._queue.cancel(waiting)
        return None

    def adopt(self, tenant: str, asks: Sequence[Ask]) -> Grant:
        """Return a grant for boxes that exist already, such as after a restart: it never waits and never refuses."""
        self._queue.take(tenant, _sum(asks))
        return Grant(tenant, asks, self._give_back)

    def has_room(self, extra: Sequence[Resources]) -> bool:
        """Return whether the node could hold these boxes too. For stock, which holds no place: who asks comes first."""
        return self.capacity.hold(self._queue.used + _sum([Ask.of(resources) for resources in extra]))

    def on_release(self, act: Callable[[], None]) -> None:
        """Call `act` after each release, once those who wait were served."""
        self._on_release.append(act)

    # -- what an operator sees and sets

    @property
    def capacity(self) -> Limits:
        """Return what the node can hold."""
        return self._queue.capacity

    @property
    def used(self) -> Amount:
        """Return what all tenants hold."""
        return self._queue.used

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return self._queue.length()

    def used_by(self, tenant: str) -> Amount:
        """Return what one tenant holds."""
        return self._queue.used_by(tenant)

    def waiting_of(self, tenant: str) -> int:
        """Return how many requests of one tenant wait."""
        return self._queue.length(tenant)

    def quota(self, tenant: str) -> Quota:
        """Return a tenant's quota."""
        return self._quotas.of(tenant)

    def tenants(self) -> list[str]:
        """Return the tenants with a quota of their own or something held or wanted."""
        return sorted({*self._quotas.named(), *self._queue.tenants()})

    def set_quota(self, tenant: str, quota: Quota) -> None:
        """Change a tenant's quota; it applies to those who wait already. Nobody loses what is held."""
        self._quotas.set(tenant, quota)
        self._serve()

    def kept_quotas(self) -> dict[str, Quota]:
        """Return the quotas that `set_quota` changed."""
        return self._quotas.kept

    def follow(self, changed: Mapping[str, Quota]) -> None:
        """Take over the quotas that were changed at any server of a store; they apply to those who wait already."""
        self._quotas.follow(changed)
        self._serve()

    def refusal(self, tenant: str, asks: Sequence[Ask], why: str) -> ResourceExhausted:
        """Return the error for a request that has a place on this node and none within its tenant's quota."""
        return self._exhausted(tenant, _sum(asks), self._queue.queued(tenant), why, full="its quota")

    # -- how it is done

    def _possible(self, tenant: str, asks: Sequence[Ask]) -> Amount:
        if not asks:
            raise InvalidArgument("a request must be for at least one box, got none")
        amount = _sum(asks)
        self._queue.check(tenant, amount)
        return amount

    def _submit(self, tenant: str, amount: Amount) -> tuple[Waiting, asyncio.Event]:
        waiting = self._queue.submit(tenant, amount)
        turn = self._turns[waiting] = asyncio.Event()
        self._serve()
        return waiting, turn

    def _give_back(self, tenant: str, amount: Amount) -> None:
        self._releases.append((self._clock(), amount.boxes))
        self._queue.release(tenant, amount)
        self._serve()
        for act in self._on_release:
            act()

    def _serve(self) -> None:
        for waiting in self._queue.grant():
            self._turns.pop(waiting).set()

    def _exhausted(
        self, tenant: str, amount: Amount, ahead: Sequence[Waiting], why: str, full: str = ""
    ) -> ResourceExhausted:
        wanted = amount.boxes + sum(other.amount.boxes for other in ahead)
        retry_after_s = self._retry_after_s(tenant, wanted)
        quota = self._quotas.of(tenant).limits
        if not full:
            full = "its quota" if not quota.hold(self.used_by(tenant) + amount) else "the server's capacity"
        error = ResourceExhausted(
            f"no place for {amount.boxes} sandbox{'es' if amount.boxes > 1 else ''} of tenant {tenant!r}: {why}. "
            f"Position {len(ahead) + 1} in its queue, {self._queue.length()} others waiting; {full} is used up. "
            f"Try again in {retry_after_s:.1f} s, or delete sandboxes that are not needed.",
            retry_after_s=retry_after_s,
        )
        error.queue_position = len(ahead) + 1
        return error

    def _retry_after_s(self, tenant: str, boxes: int) -> float:
        """Estimate from the last releases when so many boxes will have found a place."""
        released = sum(boxes for _, boxes in self._releases)
        if not released:
            return _UNKNOWN_RETRY_S
        rate = released / max(self._clock() - self._releases[0][0], 0.001)
        share = self._queue.fair_shares().get(tenant, 1.0)
        return min(max(boxes / (rate * share), _SHORTEST_RETRY_S), _LONGEST_RETRY_S)


def _patience_s(timeout_s: float | None, ahead: int) -> float:
    """Return how long to wait behind so many: the last give up first, so that a thousand refusals all come in time."""
    whole_s = DEFAULT_WAIT_S if timeout_s is None else timeout_s
    return whole_s - min(ahead * _REFUSAL_S, whole_s / 2)


def _sum(asks: Sequence[Ask]) -> Amount:
    return sum((ask.amount for ask in asks), Amount())
