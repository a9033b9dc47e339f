"""A rule that is not ALE's own, in a worker behind a fence: what it parses an answer with may do what the answer says.

Used by `rule`; `rule_host` runs in the worker. Where the machine allows no fence the worker has none, and that is logged.
What the worker says is read as the types below and bounded.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from types import TracebackType

import msgspec

from rock_env.env_workers.fencing import Fence, Fencing, how_it_ended
from rock_env.env_workers.starting import start_worker
from rock_env.env_workers.worker_view import WorkerView
from trainer.errors import ConfigError
from trainer.reward.base import Answer, NoAnswer, Sample

__all__ = ["FencedRule", "Said", "failure"]

_MEMORY_BYTES = 4 << 30
_MOST_SAID = 8 << 20


class Said(msgspec.Struct):
    """What a worker says of one sample: one of the two, or how the rule failed."""

    answer: Answer | None = None
    none: NoAnswer | None = None
    failed: str = ""
    stops: bool = False
    """`failed` is the rule's own word to the user."""


_read = msgspec.msgpack.Decoder(Said).decode


class _Worker:
    """One process; its end of a socket is asked from a thread."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection, fence: Fence | None) -> None:
        self.process, self.connection, self._fence = process, connection, fence

    def ask(self, sample: Sample) -> Said:
        """Raise `EOFError`, `OSError` or `MsgspecError` for a worker that gives no answer."""
        self.connection.send_bytes(pickle.dumps(sample))
        return _read(self.connection.recv_bytes(_MOST_SAID))

    def end(self) -> str:
        """Kill the process, unless it ended; say how it did."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return how_it_ended(code, self._fence)


class FencedRule:
    """A `RewardWorker` around one function of another process."""

    batch = 64
    alone = True

    def __init__(self, name: str) -> None:
        """Take the rule as `package.module:function`; it is known to be there."""
        self._name = name
        self._fencing = Fencing(partial(WorkerView, (), ()), "where possible")
        self._worker: _Worker | None = None

    async def __aenter__(self) -> FencedRule:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.process.kill()
            await asyncio.to_thread(self._worker.end)

    async def reward(self, samples: Sequence[Sample], attempt: int) -> list[Answer | NoAnswer]:
        """Apply the rule. Raise `ConfigError` for one that fails: it would fail again."""
        return [await self._judged(sample) for sample in samples]

    async def _judged(self, sample: Sample) -> Answer | NoAnswer:
        worker = self._worker = self._worker or await self._started()
        try:
            said = await asyncio.to_thread(worker.ask, sample)
        except (EOFError, OSError, msgspec.MsgspecError) as error:
            self._worker = None
            why = await asyncio.to_thread(worker.end)
            what = f"{type(error).__name__} {error}".strip()
            message = f"the process of the rule {self._name!r} gave no answer ({what}): {why}."
            return NoAnswer("reward_unanswered", message, again=False)
        except asyncio.CancelledError:  # at the time limit; the thread ends with the process
            self._worker = None
            worker.process.kill()
            await asyncio.shield(asyncio.to_thread(worker.end))
            raise
        if said.stops:
            raise ConfigError(said.failed)
        found = said.answer or said.none
        if found is None:
            raise ConfigError(failure(self._name, sample, said.failed))
        return found

    async def _started(self) -> _Worker:
        fence = await self._fencing.of()
        process, ours = start_worker("trainer.reward.rule_host", (), _MEMORY_BYTES, fence, os.environ)
        connection = Connection(ours.detach())
        connection.send_bytes(pickle.dumps((sys.path, self._name)))
        return _Worker(process, connection, fence)


def failure(name: str, sample: Sample, what: str) -> str:
    """Return what is said of a rule that failed."""
    return (
        f"the rule {name!r} failed on trajectory {sample.trajectory.id!r} of task {sample.task.id}: {what}. Fix the "
        "worker's rule; then continue with --resume."
    )
