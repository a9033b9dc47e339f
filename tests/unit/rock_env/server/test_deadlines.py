"""Many deadlines, one timer."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from rock_env.server.sandboxes.deadlines import DeadlineHeap, DeadlineTimer

KEYS = st.sampled_from("abcd")
TIMES = st.integers(0, 20).map(float)


@given(st.lists(st.tuples(KEYS, TIMES) | KEYS | TIMES, max_size=200))
def test_a_heap_pops_what_is_due_and_nothing_else(acts: list[tuple[str, float] | str | float]) -> None:
    heap, model = DeadlineHeap(), dict[str, float]()
    for act in acts:
        if isinstance(act, tuple):
            heap.set(*act)
            model[act[0]] = act[1]
        elif isinstance(act, str):
            heap.discard(act)
            model.pop(act, None)
        else:
            due = sorted((at, key) for key, at in model.items() if at <= act)
            assert heap.pop_due(act) == [key for _, key in due]
            for _, key in due:
                del model[key]
        assert heap.next_at() == min(model.values(), default=None)


def test_moving_one_deadline_for_ever_keeps_the_heap_small() -> None:
    heap = DeadlineHeap()
    heap.set("first", 0.0)  # stays on top, so nothing is popped
    for number in range(10_000):
        heap.set("renewed", number + 1.0)
    assert len(heap._heap) < 100
    assert heap.pop_due(1e9) == ["first", "renewed"]


async def test_the_timer_calls_in_order_and_not_for_what_was_moved_or_discarded() -> None:
    called: list[str] = []
    done = asyncio.Event()

    def expire(key: str) -> None:
        called.append(key)
        if key == "last":
            done.set()

    timer, now = DeadlineTimer(expire), asyncio.get_running_loop().time()
    timer.set("moved", now + 0.01)
    timer.set("last", now + 0.08)
    timer.set("second", now + 0.04)
    timer.set("dropped", now + 0.03)
    timer.set("first", now - 1.0)
    timer.set("moved", now + 0.06)
    timer.discard("dropped")
    await done.wait()
    assert called == ["first", "second", "moved", "last"]
    timer.set("never", now + 0.1)
    timer.close()
    await asyncio.sleep(0.15)
    assert called[-1] == "last"
