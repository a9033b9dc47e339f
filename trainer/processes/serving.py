"""The samplers of a run: which version of the weights each holds, and what happens where one is lost.

One event loop on a thread of its own keeps all of it. The thread that learns and the one that schedules both only ask it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self, TypeVar

from agent_runtime.policy import Completion, SampleRequest
from trainer.errors import Lost
from trainer.live.events import RunEvent
from trainer.processes.asked import BACK_S, AskedEngine
from trainer.processes.ray_errors import answer_of
from trainer.samplers.arrival import check_arrival
from trainer.samplers.proof import Digests

__all__ = ["Published", "Replacing", "Serving"]

_Said = TypeVar("_Said")

_TRIES = 3
"""How often a lost sampler may die again before it is back."""


@dataclass(slots=True, eq=False)
class Published:
    """Weights that the learner gave away."""

    weights: Any
    """Where they are in Ray's store; None once nobody asks for them again."""
    version: int
    sent: Digests


@dataclass(frozen=True, slots=True)
class Replacing:
    """How a run goes on that loses a sampler. A run without ends there."""

    start: Callable[[int], Awaitable[Any]]
    """Ends the process of the sampler with this number, from 0; returns another one that is ready. Raises `Lost`."""
    introduce: Callable[[int, Any], Awaitable[None]]
    """Has rollouts ask the process that took a sampler's place."""
    load_s: float = 120.0
    """Longest that a sampler may take to answer a load, from the call on."""
    back_s: float = BACK_S
    """Longest that is waited where no sampler is left and one may come back."""


@dataclass(slots=True)
class _Sampler:
    actor: Any
    holds: int = -1
    """The version that it was shown to have; -1 for none."""
    is_up: bool = True
    replacing: asyncio.Task[None] | None = None
    """What starts it again, or did."""


def _is_coming(sampler: _Sampler) -> bool:
    return sampler.replacing is not None and not sampler.replacing.done()


class Serving:
    """Brings published weights to samplers. A context manager; all methods but `close` may be called from any thread."""

    def __init__(self, actors: Sequence[Any], *, kept: int, replacing: Replacing | None = None) -> None:
        """`kept` is how many versions samplers may ask for, the newest included."""
        self._samplers = [_Sampler(actor) for actor in actors]
        self._kept, self._replacing = kept, replacing
        self._published: dict[int, Published] = {}
        self._wanted: Published | None = None
        """What the samplers were to have last."""
        self._turn = asyncio.Lock()
        self._watching: set[asyncio.Task[None]] = set()
        self._news: deque[RunEvent] = deque()
        self._lost = self._back = 0
        self._ended = asyncio.Event()
        """Something that should bring a sampler back has come to its end."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="serving", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.asked(self._watch_all()).result()
        return self

    def __exit__(self, *_: object) -> None:
        self.asked(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def asked(self, work: Coroutine[Any, Any, _Said]) -> Future[_Said]:
        """Return what a method of this class will give, which runs where the state is."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def news(self) -> list[RunEvent]:
        """Return what happened to samplers since this was asked last."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def counts(self) -> dict[str, float]:
        """Return how many samplers were lost and came back so far, and how many there are now; empty where none may be."""
        if not self._replacing:
            return {}
        up = sum(sampler.is_up for sampler in self._samplers)
        return {
            "samplers/lost": float(self._lost),
            "samplers/back": float(self._back),
            "samplers/up": float(up),
        }

    def holding(self) -> list[int]:
        """Return the version that each sampler holds, -1 for one that holds none or takes another."""
        return [sampler.holds for sampler in self._samplers]

    # -- on the loop ------------------------------------------------------------------------------------------

    async def keep(self, published: Published) -> None:
        """Keep a version, beside so many before it as samplers may be behind."""
        self._published[published.version] = published
        self._forget_held(published.version)
        for old in sorted(self._published)[: -self._kept]:
            del self._published[old]

    async def serve(self, version: int) -> int:
        """Have every sampler hold a version, or of those that are kept the oldest after it; return which.

        Raise `Halted` where it did not arrive, or where no sampler is left.
        """
        published = self._published[min(each for each in self._published if each >= version)]
        await self.bring(published)
        if self._kept == 1 and not self._replacing:  # nobody asks again: the store need not keep it
            published.weights = None
        return published.version

    async def bring(self, published: Published, *, anew: bool = False) -> None:
        """Load weights into every sampler that has others, side by side; with `anew`, also where they are called the same.

        Return when each of them has shown that they arrived, or was taken out.
        """
        async with self._turn:
            self._wanted = published
            if anew:
                self._forget_held(published.version)
            self._raise_failed()
            behind = [
                number
                for number, each in enumerate(self._samplers)
                if each.is_up and each.holds != published.version
            ]
            loads = [self._load(number, published) for number in behind]
            for error in await asyncio.gather(*loads, return_exceptions=True):
                if error is not None:
                    raise error
            await self._one_up()

    async def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer single prompts, in order, each sampler its part. Raise `PolicyError`, or `Halted` where none is left."""
        await self._one_up()
        actors = {number: sampler.actor for number, sampler in enumerate(self._samplers)}
        count = len(actors)
        engines = [
            AskedEngine(actors if self._replacing else {number: actor}, number)
            for number, actor in actors.items()
        ]
        asked = [engine.sample(requests[number::count]) for number, engine in enumerate(engines)]
        parts = await asyncio.gather(*asked)
        return [parts[position % count][position // count] for position in range(len(requests))]

    async def fails(self) -> NoReturn:
        """Raise `Halted` as soon as no sampler is left and none is coming, or why one cannot come back."""
        while True:
            await self._ended.wait()
            self._ended.clear()
            self._raise_failed()
            if not any(each.is_up or _is_coming(each) for each in self._samplers):
                raise self._none_left()

    # -- inside -----------------------------------------------------------------------------------------------

    def _forget_held(self, version: int) -> None:
        """Have samplers that hold a version take it again: other weights are called so now."""
        for sampler in self._samplers:
            if sampler.holds == version:
                sampler.holds = -1

    def _raise_failed(self) -> None:
        """Raise what a sampler that should come back met, where it was not lost again."""
        for sampler in self._samplers:
            if sampler.replacing and sampler.replacing.done():
                sampler.replacing.result()

    async def _load(self, number: int, published: Published) -> None:
        sampler = self._samplers[number]
        sampler.holds, actor = -1, sampler.actor
        try:
            await self._prove(number, actor, published)
        except (Lost, TimeoutError) as error:
            if not self._replacing:
                raise
            self._lose(number, actor, error)
        else:
            if sampler.is_up and sampler.actor is actor:  # it may have died since
                sampler.holds = published.version

    async def _prove(self, number: int, actor: Any, published: Published) -> None:
        """Load weights into one sampler, and compare what it then has with what was sent."""
        async with asyncio.timeout(self._replacing.load_s if self._replacing else None):
            arrived = await answer_of(actor.load.remote(published.weights, published.version))
        found = [arrived if each == number else None for each in range(len(self._samplers))]
        check_arrival(published.sent, found, published.version)

    def _lose(self, number: int, actor: Any, error: Exception) -> None:
        """Start another process in place of one that is lost."""
        sampler = self._samplers[number]
        if not self._replacing or not sampler.is_up or sampler.actor is not actor:
            return  # it was noticed before
        if isinstance(error, TimeoutError):
            why = f"it did not answer a load within {self._replacing.load_s:g} s"
        else:
            why = str(error).partition(". ")[0]
        self._lost += 1
        self._say(
            number,
            "fault",
            f"was lost: {why}. Its rollouts go on with the others, and another process is started in its place",
        )
        sampler.is_up, sampler.holds = False, -1
        sampler.replacing = self._loop.create_task(self._replace(number, self._replacing))
        sampler.replacing.add_done_callback(lambda _: self._ended.set())

    async def _replace(self, number: int, how: Replacing) -> None:
        sampler = self._samplers[number]
        for _ in range(_TRIES):
            try:
                actor = await how.start(number)
                wanted = None
                while self._wanted and wanted is not self._wanted:  # newer ones may have come meanwhile
                    wanted = self._wanted
                    await self._prove(number, actor, wanted)
            except (Lost, TimeoutError):
                continue
            sampler.actor, sampler.is_up, sampler.holds = actor, True, wanted.version if wanted else -1
            self._watch(number)
            await how.introduce(number, actor)
            self._back += 1
            self._say(number, "recovery", f"is back and holds version {sampler.holds}")
            return
        said = f"is gone: it was lost {_TRIES} times before it was back. The run goes on without it"
        self._say(number, "fault", said)

    async def _one_up(self) -> None:
        """Return as soon as a sampler is there. Raise `Halted` where none will be."""
        if not self._replacing:
            return
        try:
            async with asyncio.timeout(self._replacing.back_s):
                while not any(sampler.is_up for sampler in self._samplers):
                    coming = [
                        each.replacing for each in self._samplers if each.replacing and _is_coming(each)
                    ]
                    self._raise_failed()
                    if not coming:
                        raise TimeoutError
                    await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            raise self._none_left() from error

    def _none_left(self) -> Lost:
        return Lost(
            f"no sampler is left: all {len(self._samplers)} were lost, and none came back. What was saved before is "
            "intact. Look for the reason in Ray's logs (/tmp/ray/session_latest/logs), and continue with --resume."
        )

    async def _watch_all(self) -> None:
        for number in range(len(self._samplers)):
            self._watch(number)

    def _watch(self, number: int) -> None:
        """Notice at once that a sampler's process ends, where it can be waited for."""
        actor = self._samplers[number].actor
        if self._replacing and hasattr(actor, "outlive"):
            task = self._loop.create_task(self._outlive(number, actor))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)

    async def _outlive(self, number: int, actor: Any) -> None:
        try:
            await answer_of(actor.outlive.remote())
        except Lost as error:
            self._lose(number, actor, error)

    def _say(self, number: int, kind: Literal["fault", "recovery"], what: str) -> None:
        self._news.append(RunEvent(kind, f"sampler {number + 1} of {len(self._samplers)} {what}"))

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
