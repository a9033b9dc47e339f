"""Ends a child that the work forks where it would go on in a test: what the test compares there is nobody's to learn.

A child that does its own part and ends, as those of `multiprocessing` do, never comes back to the test that called the work.
One that does ends before its first step there: each frame of the tests that was under way is traced. Runs in Pythons from
3.8 on.
"""

import os
import sys

import work_fence  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from types import FrameType
    from typing import Any

_ENDED = 72


def _interrupted() -> "list[FrameType]":
    """Return the frames of the tests that called the work that forks."""
    found, by_work = [], False  # type: list[FrameType], bool
    frame = sys._getframe(1)  # type: FrameType | None
    while frame is not None:
        kind = work_fence.whose(frame.f_code)
        by_work = by_work or kind == work_fence.WORK
        if by_work and kind == work_fence.TESTS:
            found.append(frame)
        frame = frame.f_back
    return found


def bound_forks() -> None:
    """Bound the children that are forked from now on."""
    leave, trace = os._exit, sys.settrace

    def stop(frame: "FrameType", event: str, argument: "Any") -> None:
        leave(_ENDED)

    def child() -> None:
        frames = _interrupted()
        for frame in frames:
            frame.f_trace, frame.f_trace_opcodes = stop, True
        if frames:
            trace(lambda *_: None)

    os.register_at_fork(after_in_child=child)
