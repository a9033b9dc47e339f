"""The sampler of a stream that answers batch after batch: its end is noticed beside whatever it computes.

Apart from the other actors, which a process without Ray uses as they are.
"""

from __future__ import annotations

import threading

import ray

from trainer.processes.samplers import InferenceActor

__all__ = ["WATCH", "WatchedActor"]

WATCH = "watch"
"""The concurrency group of a thread that does nothing but end with its process."""


class WatchedActor(InferenceActor):
    """An `InferenceActor` whose end is noticed at once."""

    @ray.method(concurrency_group=WATCH)
    def outlive(self) -> None:
        """Never return: who waits for it notices the end of the process."""
        threading.Event().wait()
