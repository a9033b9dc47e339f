"""Episodes that survive their server: an environment that was lost is made again and brought to where it was.

What was done is done again in a fresh environment, whose observations have to be the recorded ones, hash by hash. Where a
program works in the sandbox itself, nobody recorded what it did: the sandbox outlives the server, and an environment of
another server takes it over. What cannot be brought back is lost as before, and never a reward: an environment that does not
replay, a sandbox with a network whose actions would be repeated, a sandbox that is gone with a program's work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from agent_runtime.agents.cli_rollout import BoxedEnv
from agent_runtime.wrapped import WrappedBoxedEnv
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.env import Info, StepResult, Verdict, observation_hash
from rock_env.errors import EnvLost, NotFound, ResourceExhausted, RockError, Unavailable

__all__ = ["ReplayingEnv", "ReplayingRock", "Surviving"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_LOST = (EnvLost, NotFound, Unavailable)
MOST_LOSSES = 3
"""Of one action. One that takes its server along would otherwise do so for ever."""
MOST_TRIES = 8
"""To make an environment in place of a lost one and to bring it there: servers may be lost meanwhile."""
_LONGEST_WAIT_S = 5.0
"""Before a second and a third environment is made, where the server says how long."""


class ReplayingEnv(BoxedEnv, Protocol):
    """An environment that can be reset to where another one was, as `rock_env.client.AsyncEnv`."""

    @property
    def durable(self) -> bool:
        """Return whether the episode's sandbox outlives the server, and `take_over` can go on in it."""
        ...

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
        *,
        durable: bool = False,
    ) -> tuple[str, Info, str]:
        """Start a task; `durable` asks for a sandbox that outlives the server. Raise `RockError`."""
        ...

    async def take_over(self) -> ReplayingEnv:
        """Make an environment that goes on in the sandbox of this one, whose server is gone. Raise `RockError`."""
        ...

    async def recover(
        self,
        task_id: str,
        seed: int,
        *,
        prefix: Sequence[tuple[str, bytes]],
        resume_seed: int | None,
        resume_turn: int,
        initial_hash: bytes,
    ) -> tuple[str, Info, str]:
        """Reset to where one was that is lost: `prefix` is all its turns, and after `resume_turn` it was reseeded.

        Raise `RockError`.
        """
        ...


class ReplayingRock(Protocol):
    """Where such environments come from."""

    async def make(self, env: str, params_json: str) -> ReplayingEnv:
        """Make an environment. Raise `RockError`."""
        ...


class Surviving:
    """Makes environments whose episodes go on when their server is gone. `losses` counts how often that happened."""

    def __init__(self, rock: ReplayingRock, *, in_sandbox: bool = False, patient: bool = True) -> None:
        """`in_sandbox`: a program works in the sandbox itself, which therefore is to outlive its server.

        Not `patient`: an episode is lost as soon as a call for another environment, which is tried again, reaches no server.
        """
        self._rock = rock
        self.patient = patient
        self._in_sandbox = in_sandbox
        self.losses = 0

    async def make(self, env: str, params_json: str) -> BoxedEnv:
        """Make an environment. Raise `RockError`."""

        async def make() -> ReplayingEnv:
            return await self._rock.make(env, params_json)

        return _SurvivingEnv(await make(), make, self, durable=self._in_sandbox)


class _SurvivingEnv(WrappedBoxedEnv[ReplayingEnv]):
    """One episode's environment, or the next one after it was lost."""

    def __init__(
        self,
        env: ReplayingEnv,
        make: Callable[[], Awaitable[ReplayingEnv]],
        surviving: Surviving,
        *,
        durable: bool,
    ) -> None:
        super().__init__(env)
        self._durable = durable
        self._make = make
        self._surviving = surviving
        self._tries = MOST_TRIES
        self._handed_out = False
        """What is done in its sandbox is no action, and cannot be done again."""
        self._asked: tuple[str, int, list[tuple[str, bytes]], int | None] | None = None
        self._first_hash = b""
        """Of the observation before any turn, if it is known."""
        self._acted: list[tuple[str, bytes]] = []

    async def sandbox(self) -> AsyncSandbox:
        self._handed_out = True
        return await super().sandbox()

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        self._asked = None
        self._tries = MOST_TRIES
        while True:
            try:
                found = await self.inside.reset(
                    task_id, seed, prefix, resume_seed, initial_hash, durable=self._durable
                )
                break
            except _LOST as error:
                await self._made_again(error)
        self._asked = (task_id, seed, list(prefix), resume_seed)
        self._first_hash = initial_hash if prefix else observation_hash(found[0])
        self._acted = []
        return found

    async def step(self, action: str) -> StepResult:
        result = await self._persist(lambda: self.inside.step(action))
        self._acted.append((action, observation_hash(result.observation)))
        return result

    async def evaluate(self) -> Verdict:
        return await self._persist(lambda: self.inside.evaluate())

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._end_sandbox()

    async def _end_sandbox(self) -> None:
        """End a sandbox that may have outlived its server, whose Close knows nothing of it; else it stays until idle."""
        if not self.inside.durable:
            return
        try:
            await (await self.inside.sandbox()).delete()
        except RockError as error:
            logger.debug("a sandbox was left to its idle timeout: %s", error)

    async def _persist(self, act: Callable[[], Awaitable[T]]) -> T:
        for _ in range(MOST_LOSSES):
            try:
                return await act()
            except _LOST as error:
                await self._recover(error)
        return await act()

    async def _made_again(self, lost: RockError) -> None:
        """Make another environment in place of a lost one. Raise `lost` where that cannot be."""
        while self._tries and not self._handed_out:
            if self._tries < MOST_TRIES:  # the next server may be gone as well, and another one is on its way
                await asyncio.sleep(min(lost.retry_after_s or 1.0, _LONGEST_WAIT_S))
            self._tries -= 1
            try:
                made = await self._make()
            except _LOST as again:
                self._may_try_again(again)
                continue
            except RockError:
                break
            await self._end_sandbox()
            self.inside = made
            self._surviving.losses += 1
            return
        raise lost

    async def _recover(self, lost: RockError) -> None:
        """Bring another environment to where the lost one was. Raise `lost` where that cannot be."""
        if self._asked is None:
            raise lost
        if self._handed_out and self.inside.durable:
            await self._take_over(lost)
            return
        task_id, seed, prefix, resume_seed = self._asked
        self._tries = MOST_TRIES
        while True:
            await self._made_again(lost)
            try:
                await self.inside.recover(
                    task_id,
                    seed,
                    prefix=[*prefix, *self._acted],
                    resume_seed=resume_seed,
                    resume_turn=len(prefix),
                    initial_hash=self._first_hash,
                )
            except _LOST:  # no loss of the action that is repeated: it has not been reached
                continue
            except RockError as why:
                logger.warning("an episode was lost with its server, and is not brought back: %s", why)
                await self._given_up(lost)
            logger.warning("an episode goes on after its server was lost: turns=%d", len(self._acted))
            return

    async def _take_over(self, lost: RockError) -> None:
        """Let another environment go on in the sandbox. Raise `lost` where that cannot be."""
        for _ in range(MOST_TRIES):
            try:
                self.inside = await self.inside.take_over()
            except (EnvLost, ResourceExhausted, Unavailable) as again:
                self._may_try_again(again)
                await asyncio.sleep(min(again.retry_after_s or 1.0, _LONGEST_WAIT_S))
            except RockError as why:
                logger.warning("an episode was lost with its server, and not taken over: %s", why)
                break
            else:
                self._surviving.losses += 1
                logger.warning("an episode goes on in its sandbox after its server was lost")
                return
        raise lost

    def _may_try_again(self, error: RockError) -> None:
        """Raise it where no server can be reached and nobody is patient."""
        if isinstance(error, Unavailable) and not self._surviving.patient:
            raise error

    async def _given_up(self, error: RockError) -> None:
        try:
            await self.inside.close()
        except RockError:  # its lease ends it
            logger.debug("an environment that was made again was not closed")
        self._asked = None
        raise error
