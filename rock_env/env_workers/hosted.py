"""One environment without a sandbox, inside an env host: journal, episode, replay and state clone.

It raises; turning an exception into an item's error and the environment's phase into `BROKEN` is the loop's part.
"""

from __future__ import annotations

from collections.abc import Callable

from rock_env.env import Env, StepResult, observation_hash
from rock_env.env_workers.catalog import Catalog, parse_task_id
from rock_env.env_workers.journal import Journal, Phase, check_goes_on, check_observation, check_prefix
from rock_env.errors import InvalidArgument, RockError, Unimplemented
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.spec import TaskSource, TaskSpec
from rock_env.wire.envs import evaluate_response, reset_response, step_response

__all__ = ["HostedEnv"]

_MOST_SAID = 100


class HostedEnv:
    """An `Env` with its journal. `env_id` was chosen by the service."""

    def __init__(
        self, catalog: Catalog, item: host.HostMakeItem, before_action: Callable[[], None] | None = None
    ) -> None:
        """`before_action` is called before each action is played."""
        self._catalog = catalog
        self.spec = catalog.spec(item.env)
        self.params = catalog.params(item.env, item.params_json)
        self.journal = Journal(item.env_id)
        self.env: Env = self.spec.factory(self.params)  # type: ignore[assignment]  # no sandbox: an Env, by EnvSpec
        self._before_action = before_action
        self._act = self._library_act if self.spec.library else self.env.step
        self._tasks: TaskSource | None = None
        self._task: TaskSpec | None = None
        if item.HasField("state"):
            self._continue(item.state, item.resume_seed if item.HasField("resume_seed") else None)

    def reset(self, request: pb.ResetRequest) -> pb.ResetResponse:
        """Start a task, replay `prefix` with its hashes compared, then reseed if asked."""
        journal = self.journal
        stored = journal.replay(request, pb.ResetResponse)
        if stored is not None:
            return stored
        check_prefix(request, self.spec)
        task = self._named(request.task_id)
        journal.touch()
        observation, info = self.env.reset(task, request.seed)
        self._compare(0, request.initial_observation_hash, observation)
        done = False
        reseeded = request.recovered_turn if request.HasField("recovered_turn") else len(request.prefix)
        for turn, recorded in enumerate(request.prefix, start=1):
            if turn == reseeded + 1 and request.HasField("resume_seed"):
                self.env.reseed(request.resume_seed)
            check_goes_on(turn, done=done, env_id=journal.env_id)
            if self._before_action is not None:
                self._before_action()
            result = self._act(recorded.action)
            observation, info = result.observation, result.info
            self._compare(turn, recorded.observation_hash, observation)
            done = result.terminated or result.truncated
        if request.HasField("resume_seed") and reseeded >= len(request.prefix):
            self.env.reseed(request.resume_seed)
        reply = reset_response(journal.env_id, task, observation, info)
        self._task = task
        journal.settle(done=done)
        journal.commit(request, reply)
        return reply

    def _named(self, task_id: str) -> TaskSpec:
        """Return a task of the version that this environment was made of. Raise as `Catalog.task`."""
        split, index = parse_task_id(task_id)
        if self._tasks is None:
            self._tasks = self._catalog.tasks(self.spec.name, self.params.canonical())
        return self._tasks.get(split, index)

    def _compare(self, turn: int, recorded: bytes, observation: str) -> None:
        if recorded:
            actual = observation_hash(observation)
            check_observation(turn, recorded=recorded, actual=actual, env_id=self.journal.env_id)

    def _library_act(self, action: str) -> StepResult:
        """Play an action of a hosted library. What it raises on one is the action's fault: a turn that changes nothing.

        An `OSError` is not: the machine refused. Nothing of the exception is repeated but its type, since a replay must
        observe the same.
        """
        try:
            return self.env.step(action)
        except Exception as error:  # named boundary: a library's own code
            if isinstance(error, RockError | MemoryError | OSError):
                raise
            said = f"No action that {self.spec.name} can take: it raised {type(error).__name__[:_MOST_SAID]}."
            return StepResult(said, info={"illegal": True})

    def step(self, request: pb.StepRequest) -> pb.StepResponse:
        """Apply one action."""
        journal = self.journal
        stored = journal.replay(request, pb.StepResponse)
        if stored is not None:
            return stored
        journal.need_step()
        journal.touch()
        if self._before_action is not None:
            self._before_action()
        result = self._act(request.action)
        reply = step_response(journal.env_id, result)
        journal.settle(done=result.terminated or result.truncated)
        journal.commit(request, reply)
        return reply

    def evaluate(self, request: pb.EvaluateRequest) -> pb.EvaluateResponse:
        """Grade the current state."""
        journal = self.journal
        stored = journal.replay(request, pb.EvaluateResponse)
        if stored is not None:
            return stored
        journal.need_episode("evaluate")
        reply = evaluate_response(journal.env_id, self.env.evaluate())
        journal.commit(request, reply)
        return reply

    def snapshot(self) -> host.EpisodeState:
        """Return all that is needed to continue this episode elsewhere."""
        if not self.spec.snapshots:
            raise Unimplemented(
                f"environment {self.spec.name} offers no snapshots: reset with a prefix of its actions instead."
            )
        self.journal.need_episode("checkpoint")
        assert self._task is not None  # an episode was started
        return host.EpisodeState(
            env=self.spec.name,
            version=self.spec.version,
            params_json=self.params.canonical(),
            task_id=self._task.id,
            done=self.journal.phase is Phase.DONE,
            snapshot=self.env.snapshot(),
        )

    def restore(self, request: host.HostRestoreRequest) -> pb.ResetResponse:
        """Continue from a checkpoint of the same environment, version and arguments."""
        journal, call = self.journal, request.request
        stored = journal.replay(call, pb.ResetResponse)
        if stored is not None:
            return stored
        resume_seed = call.resume_seed if call.HasField("resume_seed") else None
        reply = self._continue(request.state, resume_seed)
        journal.commit(call, reply)
        return reply

    def _continue(self, state: host.EpisodeState, resume_seed: int | None) -> pb.ResetResponse:
        mine = (self.spec.name, self.spec.version, self.params.canonical())
        theirs = (state.env, state.version, state.params_json)
        if mine != theirs:
            raise InvalidArgument(
                f"the checkpoint belongs to another environment: got {theirs}, expected {mine}."
            )
        task = self._named(state.task_id)
        self.journal.touch()
        observation = self.env.restore(state.snapshot)
        if resume_seed is not None:
            self.env.reseed(resume_seed)
        self._task = task
        self.journal.settle(done=state.done)
        return reset_response(self.journal.env_id, task, observation, {})

    def close(self) -> None:
        """Free what the environment holds."""
        self.env.close()
