"""What perfect knowledge of every duration would make of a run: schedules that it could have, and bounds for all of them.

Of a stream, with G groups of which each step learns B, lag L, n slots and a learner of c seconds a step; w is the time of a
rollout and d that of a group's longest one. No schedule of these groups under the stream's admission ends before

    max( sum of all w / n + c,                                   every rollout needs a slot, and the last step its learner
         B-th smallest d + steps * c,                            no step learns before its groups are in
         max d + c,
         (sum of (d + c) + B * c * L * (L + 1) / 2) / ((L + 1) * B) )

The last line is what the lag forbids. Admission lets in (version + 1 + L) * B groups, so that there are (L + 1) * B seats; a
group has one until the step that learns it ends, d + c at least. While the last L steps are learned seats stand empty, for
no group is left to take them: B of them in the first, L * B in the last, for c seconds each.

`stream_s` is a schedule, not a bound: what a stream takes that knows every duration and brings its groups in the best of a
few orders. Other schedules may beat it, and none beats the bound.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Rule", "longest_first_s", "plans_s", "stream_bound_s", "stream_s"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a stream has: `batch` groups are learned a step, in `learn_s` seconds; `slots` play rollouts."""

    batch: int
    lag: int
    slots: int
    learn_s: float


Groups = Sequence[Sequence[float]]
"""Of each group the seconds of its rollouts."""


def longest_first_s(durations: Sequence[float], slots: int) -> float:
    """Return when rollouts are done that start longest first, each in the slot that is free first."""
    free = [0.0] * slots
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def plans_s(plans: Sequence[Sequence[float]], slots: int, ahead: int, learn_s: float) -> float:
    """Return when a run ends whose plans are played longest first, one after the other, each at most `ahead` + 1 versions
    after the newest."""
    played, learned = 0.0, [0.0]
    for step, durations in enumerate(plans, start=1):
        begin = max(played, learned[max(0, step - 1 - ahead)])
        played = begin + longest_first_s(durations, slots)
        learned.append(max(played, learned[-1]) + learn_s)
    return learned[-1]


def stream_bound_s(groups: Groups, rule: Rule, *, ends: bool = True) -> float:
    """Return what no stream that learns these groups takes less than; no seat is taken after the run `ends`."""
    batch, lag, learn_s = rule.batch, rule.lag, rule.learn_s
    longest = sorted(map(max, groups))
    empty = batch * learn_s * lag * (lag + 1) / 2 if ends else 0.0
    seated = sum(longest) + len(groups) * learn_s + empty
    return max(
        sum(map(sum, groups)) / rule.slots + learn_s,
        longest[batch - 1] + len(groups) // batch * learn_s,
        longest[-1] + learn_s,
        seated / ((lag + 1) * batch),
    )


def stream_s(groups: Groups, rule: Rule) -> float:
    """Return the best of what a stream takes that lets the groups in as drawn, longest first or shortest first, and starts
    their rollouts group by group or longest first."""
    orders = [list(groups), sorted(groups, key=max, reverse=True), sorted(groups, key=max)]
    return min(_played_s(order, rule, longest_first) for order in orders for longest_first in (False, True))


def _played_s(groups: Groups, rule: Rule, longest_first: bool) -> float:
    """Let the groups in, in this order, as the admission of a stream does; return when the last step is learned."""
    left, version, now, free, in_groups = [len(group) for group in groups], 0, 0.0, rule.slots, 0
    outside, learning = deque(range(len(groups))), False
    waiting: list[tuple[float, int, float]] = []
    running: list[tuple[float, int]] = []
    batch = rule.batch
    while version * batch < len(groups):
        while outside and len(groups) - len(outside) < (version + 1 + rule.lag) * batch:
            for entry in _entries(outside.popleft(), groups, longest_first):
                heapq.heappush(waiting, entry)
        while free and waiting:
            _, group, duration = heapq.heappop(waiting)
            heapq.heappush(running, (now + duration, group))
            free -= 1
        if not learning and in_groups >= batch:
            learning, in_groups = True, in_groups - batch
            heapq.heappush(running, (now + rule.learn_s, -1))
        now, group = heapq.heappop(running)
        if group < 0:
            version, learning = version + 1, False
            continue
        free += 1
        left[group] -= 1
        in_groups += not left[group]
    return now


def _entries(group: int, groups: Groups, longest_first: bool) -> Iterator[tuple[float, int, float]]:
    for duration in sorted(groups[group], reverse=True):
        yield (-duration if longest_first else group), group, duration
