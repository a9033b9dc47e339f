"""What a sampler is timed at: the third turn of a growing chat, and a short request beside a long one. Needs torch only.

Ratios, so that they mean the same on a busy machine. `SampleRequest`s are of random ids; nothing ends an answer but its
length, where the sampler's end id is never drawn.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from benchmarks.scaffold import seconds
from trainer.protocols.token_sampler import TokenSampler
from trainer.samplers.threaded import ThreadedSampler


@dataclass(frozen=True)
class Sizes:
    """Tokens of the scenarios."""

    history: int = 1500
    new: int = 100
    answer: int = 48
    short_prompt: int = 48
    short_answer: int = 24
    long_prompt: int = 600
    long_answer: int = 400


@dataclass
class Scenario:
    """A sampler under test. `ids(count, seed)` gives that many ids of a prompt that it can answer."""

    sampler: TokenSampler
    ids: Callable[[int, int], np.ndarray]
    sizes: Sizes
    repeats: int = 3
    number: int = 0

    def request(self, prompt: np.ndarray, answer: int, *, session: str = "") -> SampleRequest:
        self.number += 1
        return SampleRequest(
            session or f"s{self.number}",
            0,
            prompt.astype(np.int32),
            SamplingParams(max_tokens=answer),
            self.number,
        )

    async def timed(self, request: SampleRequest) -> float:
        return await seconds(lambda: self.sampler.sample(request))

    async def turn3_over_new_tokens(self) -> dict[str, float]:
        """Time the third turn of a chat, against its new tokens as a prompt of their own."""
        sizes, third, alone, cached = self.sizes, [], [], 0
        for repeat in range(self.repeats + 1):
            session, history = f"chat{repeat}", self.ids(sizes.history, 100 + repeat)
            for turn in range(3):
                request = self.request(history, sizes.answer, session=session)
                start = time.perf_counter()
                sampled = await self.sampler.sample(request)
                spent, cached = time.perf_counter() - start, sampled.cached_tokens
                new = self.ids(sizes.new, 1000 + 10 * repeat + turn)
                history = np.concatenate((history, sampled.ids, new))
            own = await self.timed(self.request(self.ids(sizes.new, 2000 + repeat), sizes.answer))
            if repeat:  # the first warms up
                third.append(spent)
                alone.append(own)
        turn3_s, alone_s = statistics.median(third), statistics.median(alone)
        return {
            "turn3_over_new_tokens": round(turn3_s / alone_s, 3),
            "turn3_ms": round(1e3 * turn3_s, 1),
            "new_tokens_alone_ms": round(1e3 * alone_s, 1),
            "cached_tokens": cached,
        }

    async def short_beside_long(self) -> dict[str, float | None]:
        """Time a short request that is sent when a third of a long one is over, over the short one alone (None: never)."""
        beside, alone = [], []
        await self.timed(self._long(0))  # warms up
        long_s = await self.timed(self._long(1))
        for repeat in range(self.repeats + 1):
            running = asyncio.ensure_future(self.sampler.sample(self._long(repeat + 2)))
            await asyncio.sleep(long_s / 3)
            is_beside = not running.done()
            short = await self.timed(self._short(repeat))
            await running
            own = await self.timed(self._short(repeat + 50))
            if repeat and is_beside:
                beside.append(short)
                alone.append(own)
        if not beside:
            return {"short_beside_long": None}
        beside_s, alone_s = statistics.median(beside), statistics.median(alone)
        return {
            "short_beside_long": round(beside_s / alone_s, 3),
            "short_beside_ms": round(1e3 * beside_s, 1),
            "short_alone_ms": round(1e3 * alone_s, 1),
            "long_alone_ms": round(1e3 * long_s, 1),
        }

    def _long(self, seed: int) -> SampleRequest:
        return self.request(self.ids(self.sizes.long_prompt, 3000 + seed), self.sizes.long_answer)

    def _short(self, seed: int) -> SampleRequest:
        return self.request(self.ids(self.sizes.short_prompt, 4000 + seed), self.sizes.short_answer)


async def both_scenarios(
    sampler: ThreadedSampler, ids: Callable[[int, int], np.ndarray], sizes: Sizes, repeats: int
) -> dict[str, float | None]:
    """Time both, and close the sampler."""
    scenario = Scenario(sampler, ids, sizes, repeats=repeats)
    try:
        return {**await scenario.turn3_over_new_tokens(), **await scenario.short_beside_long()}
    finally:
        await sampler.close()
