"""One environment with a sandbox, inside the service: journal, episode, replay and the box's lifetime.

Every Reset gets a fresh box, every Restore one as it was; Close, or the next of either, destroys it. Who made the
environment may use the box, too: its id is in the reply. A checkpoint is the box's file system with what the rules
remember or, where one of them cannot be copied, the recorded actions, which know nothing of such a use. A grade of a
`FreshGraded` environment ends what runs in the box, and leaves it otherwise as it is. A box that was ended for what the
agent used up ends the episode with it, which is then worth 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from rock_env.env import Artifact, Info, StepResult, Verdict, observation_hash
from rock_env.env_workers.frames import Kind
from rock_env.env_workers.journal import Journal, check_goes_on, check_observation, check_prefix
from rock_env.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RockError,
    Unimplemented,
    plugin_call,
)
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.sandbox import Sandbox, limit_that_ended
from rock_env.server.envs.artifacts import ArtifactRoom, EpisodeArtifacts
from rock_env.server.envs.boxes import EnvBoxes
from rock_env.server.envs.grade_boxes import GradeBoxes
from rock_env.server.envs.kept import BoxedState, KeptEpisode, kept
from rock_env.server.envs.rules import Rules
from rock_env.spec import EnvSpec, TaskSpec
from rock_env.wire.envs import evaluate_response, reset_response, step_response

__all__ = ["SandboxedEnv"]


MOST_STEPS = 50_000
MOST_ACTION_CHARS = 16 << 20
"""Of all actions of one episode: they are kept, to be repeated in a fresh box."""


class SandboxedEnv:
    """A `SandboxEnv` with its journal and its box."""

    def __init__(
        self,
        env_id: str,
        *,
        spec: EnvSpec,
        rules: Rules,
        boxes: EnvBoxes,
        room: ArtifactRoom | None = None,
    ) -> None:
        """Take its rules, where its boxes come from, and the room for its artifacts; none: a room of its own."""
        self.spec = spec
        self.journal = Journal(env_id)
        self.kind = f"{spec.key} {rules.canonical}"
        """Name, version and arguments."""
        self._rules = rules
        self._boxes = boxes
        self._box_id = ""
        self.artifacts = EpisodeArtifacts(room or ArtifactRoom())
        self._episode: BoxedState | None = None
        """What the episode was so far, without a snapshot; None before the first Reset or after a broken one."""
        self._kept = False
        """Whether the box's record says how another environment goes on in it."""
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[Any] | None = None
        self._closed = False
        self._acts: dict[Kind, Callable[[Any], Awaitable[Any]]] = {
            Kind.RESET: self._reset,
            Kind.STEP: self._step,
            Kind.EVALUATE: self._evaluate,
            Kind.SNAPSHOT: self._checkpoint,
            Kind.RESTORE: self._restore,
        }

    @property
    def params_json(self) -> str:
        """Return the environment's arguments as canonical JSON."""
        return self._rules.canonical

    @property
    def idle_s(self) -> float:
        """Return for how long its box has not been used, by its own calls or by others; infinity where it has none."""
        if self._lock.locked():
            return 0.0
        return self._boxes.idle_s(self._box_id)

    async def call(self, kind: Kind, request: Any, *, timeout_s: float) -> Any:
        """Run one call to its reply; that of a Snapshot is a `BoxedState`.

        Raise a `RockError`; a late call leaves the environment broken.
        """
        async with self._lock:
            self._running = asyncio.current_task()
            try:
                self._need_open()
                async with asyncio.timeout(timeout_s) as limit:
                    with plugin_call(f"{kind.name.lower()} of {self.spec.name} {self.journal.env_id}"):
                        return await self._acts[kind](request)
            except asyncio.CancelledError:
                self._need_open()  # `close` cancelled us: an answer, not a cancellation
                raise
            except TimeoutError as error:
                if not limit.expired():
                    raise  # a DeadlineExceeded of the environment's own
                late = DeadlineExceeded(
                    f"{kind.name.lower()} of {self.spec.name} {self.journal.env_id} ran longer than {timeout_s:g} s."
                )
                raise self.journal.broke(late) from error
            except RockError as error:
                if self.journal.unsound:
                    self.journal.broke(error)
                raise
            finally:
                self._running = None

    def _need_open(self) -> None:
        if self._closed:
            raise NotFound(f"environment {self.journal.env_id} was closed.")

    async def _reset(self, request: pb.ResetRequest) -> pb.ResetResponse:
        journal = self.journal
        stored = journal.replay(request, pb.ResetResponse)
        if stored is not None:
            return stored
        check_prefix(request, self.spec)
        if request.HasField("recovered_turn"):
            await self._check_recovery(request.task_id)
        # `resume_seed` needs no act here: a SandboxEnv holds no random state beyond its box.
        prefix = [(turn.action, turn.observation_hash) for turn in request.prefix]
        task_id, seed = request.task_id, request.seed
        durable = request.durable and self._rules.restorable
        reply = await self._play(
            task_id, seed, prefix, initial_hash=request.initial_observation_hash, durable=durable
        )
        reply.durable = durable and await self._keep()
        journal.commit(request, reply)
        return reply

    async def _check_recovery(self, task_id: str) -> None:
        """Raise `FailedPrecondition` where an episode that was lost cannot be played again."""
        spec = (await self._rules.task(task_id)).sandbox or self.spec.sandbox
        if spec is not None and spec.network.enabled:
            raise FailedPrecondition(
                f"the sandbox of {self.spec.name} {task_id} has a network, and what the lost episode sent there would be "
                "sent twice. Reset the environment and play anew."
            )

    async def _keep(self) -> bool:
        """Note in the box's record how another environment goes on in it; return whether one can."""
        assert self._episode is not None  # it has just begun
        try:
            rules = await self._rules.snapshot()
        except Unimplemented:  # this task has more state than files
            return False
        state = replace(self._episode, rules=rules)
        written = kept(KeptEpisode(self.spec.name, self._rules.canonical, state))
        self._kept = await self._boxes.keep(self._box_id, written, env_id=self.journal.env_id)
        return self._kept

    async def _keep_no_more(self) -> None:
        """Let nobody go on from before what happens now."""
        if self._kept:
            await self._boxes.keep(self._box_id, b"", env_id=self.journal.env_id)
            self._kept = False

    async def adopt(self, box_id: str, state: BoxedState, former: str, *, timeout_s: float) -> None:
        """Go on in the box of an environment that kept its episode; `former` is that one's id.

        Raise a `RockError`, such as `DeadlineExceeded` where its rules take too long: then the box is still the former's.
        """
        self.journal.touch()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                with plugin_call(f"restoring the rules of {self.spec.name} {self.journal.env_id}"):
                    await self._rules.restore(state.rules)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise DeadlineExceeded(
                f"restoring the rules of {self.spec.name} {self.journal.env_id} ran longer than {timeout_s:g} s."
            ) from error
        await self._boxes.hand_over(box_id, former, self.journal.env_id)
        self._box_id, self._kept = box_id, True
        self._episode = replace(state, rules=b"")
        self.journal.settle(done=state.done)

    async def _play(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]],
        *,
        initial_hash: bytes,
        durable: bool = False,
    ) -> pb.ResetResponse:
        """Start an episode in a fresh box and repeat recorded actions; each observation must be the recorded one."""
        task = await self._rules.task(task_id)
        self.journal.touch()
        await self._new_box(task, durable=durable)
        done, hashes = False, []
        async with self._using() as box:
            observation, info = await self._rules.reset(box, task, seed)
            hashes.append(self._compared(0, initial_hash, observation))
            for turn, (action, recorded) in enumerate(prefix, start=1):
                check_goes_on(turn, done=done, env_id=self.journal.env_id)
                result = await self._rules.step(box, action)
                observation, info = result.observation, result.info
                hashes.append(self._compared(turn, recorded, observation))
                done = result.terminated or result.truncated
            attached = await self._attached(box)
        actions = tuple(action for action, _ in prefix)
        self._episode = BoxedState(self.kind, task_id, seed, actions, tuple(hashes), observation, done)
        self.journal.settle(done=done)
        return await self._started(task, observation, info, attached)

    async def _started(
        self, task: TaskSpec, observation: str, info: Info, attached: Sequence[Artifact] = ()
    ) -> pb.ResetResponse:
        image = (await self._boxes.spec_of(self._box_id)).image
        return reset_response(
            self.journal.env_id,
            task,
            observation,
            info,
            sandbox_id=self._box_id,
            image=image,
            artifacts=attached,
        )

    def _using(self) -> AbstractAsyncContextManager[Sandbox]:
        return self._boxes.using(self._box_id, env_id=self.journal.env_id)

    async def _attached(self, box: Sandbox) -> list[Artifact]:
        """Read what the rules attach to what they returned last."""
        if not self._rules.attaching:
            return []
        return await self.artifacts.take(box, await self._rules.attachments())

    async def _new_box(self, task: TaskSpec, snapshot_id: str = "", *, durable: bool = False) -> None:
        self._episode = None
        await self._drop_box()
        spec = task.sandbox or self.spec.sandbox
        assert spec is not None  # hosted here because it has one
        self._box_id = await self._boxes.create(
            spec,
            environment=self.spec.name,
            env_id=self.journal.env_id,
            snapshot_id=snapshot_id,
            durable=durable,
        )

    async def _drop_box(self) -> None:
        self.artifacts.forget()
        if self._box_id:
            await self._boxes.delete(self._box_id, env_id=self.journal.env_id)
            self._box_id, self._kept = "", False

    def _compared(self, turn: int, recorded: bytes, observation: str) -> bytes:
        actual = observation_hash(observation)
        check_observation(turn, recorded=recorded, actual=actual, env_id=self.journal.env_id)
        return actual

    async def _step(self, request: pb.StepRequest) -> pb.StepResponse:
        journal = self.journal
        stored = journal.replay(request, pb.StepResponse)
        if stored is not None:
            return stored
        journal.need_step()
        episode = self._episode
        assert episode is not None  # a sound episode has its record
        _check_length(episode, request.action)
        await self._keep_no_more()
        journal.touch()
        async with self._using() as box:
            try:
                result = await self._rules.step(box, request.action)
                attached = await self._attached(box)
            except RockError:
                if not (why := await limit_that_ended(box)):
                    raise
                result, attached = StepResult(why, terminated=True), []
        reply = step_response(journal.env_id, result, attached)
        done = result.terminated or result.truncated
        self._episode = replace(
            episode,
            actions=(*episode.actions, request.action),
            hashes=(*episode.hashes, observation_hash(result.observation)),
            observation=result.observation,
            done=done,
        )
        journal.settle(done=done)
        journal.commit(request, reply)
        return reply

    async def _evaluate(self, request: pb.EvaluateRequest) -> pb.EvaluateResponse:
        journal = self.journal
        stored = journal.replay(request, pb.EvaluateResponse)
        if stored is not None:
            return stored
        journal.need_episode("evaluate")
        if not self._rules.fresh_graded:  # such a grade may change the files, and cannot be repeated
            await self._keep_no_more()
        async with self._using() as box:
            try:
                verdict = await self._graded(box)
                attached = await self._attached(box)
            except RockError:
                if not (why := await limit_that_ended(box)):
                    raise
                verdict, attached = Verdict(0.0, passed=False, details=why), []
        reply = evaluate_response(journal.env_id, verdict, attached)
        journal.commit(request, reply)
        return reply

    async def _graded(self, box: Sandbox) -> Verdict:
        if not self._rules.fresh_graded:
            return await self._rules.evaluate(box)
        if not await self._rules.keeps_running():
            await box.kill_all()  # nothing is to change the files while they are graded, or afterwards
        fresh = GradeBoxes(self._boxes, self.spec.name, self.journal.env_id, self._box_id)
        return await self._rules.grade(box, fresh)

    async def _checkpoint(self, _: None) -> BoxedState:
        """Return the episode as it stands, with a snapshot where rules and backend can make one."""
        self.journal.need_episode("checkpoint")
        episode = self._episode
        assert episode is not None  # a sound episode has its record
        if self._rules.restorable:
            try:
                rules = await self._rules.snapshot()
                snapshot_id = await self._boxes.freeze(self._box_id)
            except Unimplemented:
                pass  # this backend has no layers, or this task more state than files
            else:
                return replace(episode, snapshot_id=snapshot_id, rules=rules)
        if not self.spec.replayable:
            raise Unimplemented(
                f"environment {self.spec.name} is not replayable, and its sandbox cannot be frozen: it offers no "
                "checkpoints."
            )
        return episode

    async def _restore(self, asked: tuple[pb.RestoreRequest | None, BoxedState]) -> pb.ResetResponse:
        request, state = asked
        if request is None:  # a fork, which begins with it
            return await self._go_on(state)
        stored = self.journal.replay(request, pb.ResetResponse)
        if stored is not None:
            return stored
        reply = await self._go_on(state)
        self.journal.commit(request, reply)
        return reply

    async def _go_on(self, state: BoxedState) -> pb.ResetResponse:
        """Continue from a checkpoint of the same environment, version and arguments."""
        if state.env != self.kind:
            raise InvalidArgument(
                f"the checkpoint belongs to another environment: got {state.env!r}, expected {self.kind!r}."
            )
        if not state.snapshot_id:
            if not self.spec.replayable:
                raise Unimplemented(
                    f"environment {self.spec.name} is not replayable, and the checkpoint's files are on another node: "
                    "restore it into an environment of the server that has it."
                )
            prefix = list(zip(state.actions, state.hashes[1:], strict=True))
            reply = await self._play(state.task_id, state.seed, prefix, initial_hash=state.hashes[0])
            reply.info_json = ""  # as after a snapshot
            return reply
        task = await self._rules.task(state.task_id)
        self.journal.touch()
        await self._new_box(task, state.snapshot_id)
        await self._rules.restore(state.rules)
        self._episode = replace(state, snapshot_id="", rules=b"")
        self.journal.settle(done=state.done)
        return await self._started(task, state.observation, {})

    async def let_go(self) -> None:
        """Leave the box that it adopted to another environment."""
        self._closed, self._box_id = True, ""
        await self._rules.close()

    async def close(self) -> None:
        """Interrupt a running call and destroy the box."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
        async with self._lock:
            try:
                await self._drop_box()
            finally:
                await self._rules.close()


def _check_length(episode: BoxedState, action: str) -> None:
    """Raise `ResourceExhausted` for one more action than an episode may have."""
    steps, chars = len(episode.actions) + 1, sum(map(len, episode.actions)) + len(action)
    if steps > MOST_STEPS or chars > MOST_ACTION_CHARS:
        raise ResourceExhausted(
            f"the episode would have {steps} actions of {chars} characters, of at most {MOST_STEPS} of "
            f"{MOST_ACTION_CHARS}. Reset the environment."
        )
