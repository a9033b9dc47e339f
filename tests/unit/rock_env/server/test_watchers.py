"""Pushing changes to listeners of whom one may be slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rock_env.errors import ResourceExhausted, Unavailable
from rock_env.lifecycle import SandboxRecord, born
from rock_env.server.sandboxes.watchers import Watcher, Watchers
from rock_env.spec import SandboxSpec


def record(revision: int, **fields: object) -> SandboxRecord:
    return replace(born("sb-1", SandboxSpec(), backend="process", at=0.0), revision=revision, **fields)


async def heard(watcher: Watcher, count: int) -> list[int]:
    changes = aiter(watcher)
    return [(await anext(changes)).revision for _ in range(count)]


async def test_a_listener_that_is_behind_is_told_where_to_go_on_and_holds_up_nobody() -> None:
    watchers = Watchers(limit=3)
    slow, other = watchers.add("", {}), watchers.add("", {})
    for revision in range(1, 4):
        watchers.publish(record(revision))
    assert await heard(other, 3) == [1, 2, 3]
    for revision in range(4, 7):
        watchers.publish(record(revision))
    assert await heard(other, 3) == [4, 5, 6]
    changes = aiter(slow)
    assert [(await anext(changes)).revision for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ResourceExhausted, match=r"3 changes behind.*after_revision=3"):
        await anext(changes)


async def test_a_listener_hears_what_it_asked_for_and_not_what_it_knows() -> None:
    watchers = Watchers()
    watcher = watchers.add("a", {"x": "1"})
    watcher.skip(2)
    for revision in (1, 2, 3):
        watchers.publish(record(revision, tenant="a", labels={"x": "1", "y": "2"}))
    watchers.publish(record(4, tenant="a", labels={"x": "2"}))
    watchers.publish(record(5, tenant="b", labels={"x": "1"}))
    watchers.publish(record(6, tenant="a", labels={"x": "1"}))
    assert await heard(watcher, 2) == [3, 6]


async def test_the_end_comes_after_what_is_queued_and_to_latecomers() -> None:
    watchers = Watchers()
    watcher = watchers.add("", {})
    watchers.publish(record(1))
    watchers.end()
    changes = aiter(watcher)
    assert (await anext(changes)).revision == 1
    with pytest.raises(Unavailable, match="stopping"):
        await anext(changes)
    with pytest.raises(Unavailable, match="stopping"):
        await anext(aiter(watchers.add("", {})))
