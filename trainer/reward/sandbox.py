"""Rewards by a command in a sandbox of its own: the rollout goes in as a file, the verdict comes out as a line.

Each sample gets a fresh sandbox of the run's ROCK server, without network. A command that fails, runs out of time or
says no verdict gives no reward: a 0 must be said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from pydantic import Field

from rock_env.client import Client
from rock_env.errors import (
    DeadlineExceeded,
    InfraError,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
    RockError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from rock_env.sandbox import ExecResult
from rock_env.spec import SandboxSpec
from trainer.errors import ConfigError
from trainer.reward.base import Answer, NoAnswer, RewardContext, RewardSpec, Sample, WorkerOptions
from trainer.reward.prompt import quoted
from trainer.reward.verdict import Gives, Unreadable, read_verdict

__all__ = ["WORKER", "BoxOptions", "BoxWorker"]

_SAMPLE = "sample.json"
_ANSWER = "answer.txt"
_OUTPUT_BYTES = 64 << 10
"""All of it is kept with the trajectory."""
_REFUSED = (InvalidArgument, PermissionDenied, Unauthenticated, Unimplemented)
"""Of a Create: no sample will ever get its sandbox."""
_AGAIN = (DeadlineExceeded, InfraError, ResourceExhausted, Unavailable)
"""The service failed, not the command. Each attempt has a fresh sandbox, so asking again is safe."""


class BoxOptions(WorkerOptions):
    """What to run where."""

    command: str = Field(min_length=1)
    """Shell command. In its working folder lie the rollout as sample.json (as a judge is shown it, with the task's payload
    as `reference`) and its last action as answer.txt; the last line of its output is the verdict."""
    image: str = ""
    """The sandbox's image; empty is the host's own file system, read-only (process backend)."""
    gives: Gives = "outcome"
    """What the verdict holds: `score`, `turns`, or both."""

    @property
    def gives_turn_rewards(self) -> bool:
        """Return whether turns are asked for."""
        return self.gives != "outcome"


class BoxWorker:
    """A `RewardWorker` with one sandbox per sample."""

    batch = 1
    alone = False

    def __init__(self, options: BoxOptions, context: RewardContext) -> None:
        self._options, self._limit_s = options, context.time_limit_s
        self._client = Client(context.rock_address)
        self._spec = SandboxSpec(image=options.image)

    async def __aenter__(self) -> BoxWorker:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def reward(self, samples: Sequence[Sample], attempt: int) -> list[Answer | NoAnswer]:
        """Run the command for each sample. Raise `ConfigError` for a sandbox that cannot be made as asked for."""
        return [await self._run(sample) for sample in samples]

    async def _run(self, sample: Sample) -> Answer | NoAnswer:
        ends_at = asyncio.get_running_loop().time() + self._limit_s
        try:
            box = await self._client.sandboxes.create(spec=self._spec, wait_s=self._limit_s)
        except _REFUSED as error:
            raise ConfigError(
                f"the reward worker's sandbox cannot be made ({error.code}): {error} Change its options, then continue with "
                "--resume."
            ) from error
        except RockError as error:
            return _no_box(error)
        answer = sample.trajectory.final_action.encode(errors="replace")
        try:
            async with box:
                await box.files.write(_SAMPLE, quoted(sample, reference=True).encode())
                await box.files.write(_ANSWER, answer)
                left_s = ends_at - asyncio.get_running_loop().time()
                # It ends before the attempt does, so that the command is blamed.
                result = await box.exec(
                    ["/bin/sh", "-c", self._options.command],
                    timeout_s=0.9 * left_s,
                    max_output_bytes=_OUTPUT_BYTES,
                )
        except RockError as error:
            return _no_box(error)
        return self._read(result, sample)

    def _read(self, result: ExecResult, sample: Sample) -> Answer | NoAnswer:
        said = result.stdout.decode(errors="replace")
        if not result.ok:
            end = (
                result.infra_error
                or ("it ran out of time" if result.timed_out else "")
                or ("it ran out of memory" if result.oom_killed else "")
                or (f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}")
            )
            errors = result.stderr[-300:].decode(errors="replace").strip()
            message = (
                f"the reward command failed ({end}): {errors!r}. A reward of 0 must be said: exit with 0."
            )
            return NoAnswer("reward_unanswered", message, again=bool(result.infra_error), raw=said)
        line = said.strip().rpartition("\n")[2]
        try:
            if result.truncated:
                raise Unreadable("it said more than is kept, so its last line is not known; let it say less")
            reward, turn_rewards = read_verdict(line, self._options.gives, len(sample.trajectory.turns))
        except Unreadable as error:
            message = f"the reward command gave no verdict in its last line: {error}."
            return NoAnswer("reward_unreadable", message, again=False, raw=said)
        return Answer(reward, turn_rewards, said)


def _no_box(error: RockError) -> NoAnswer:
    message = f"no verdict from a sandbox ({error.code}): {error}"
    wait_s = error.retry_after_s or 0.0
    return NoAnswer("reward_unanswered", message, again=isinstance(error, _AGAIN), wait_s=wait_s)


WORKER = RewardSpec(
    name="sandbox",
    summary="a command in a sandbox of its own",
    version="1",
    options=BoxOptions,
    build=BoxWorker,
)
