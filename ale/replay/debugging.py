"""`ale debug`: one rollout in this process, with Python's debugger where it goes wrong.

Environment, rules and grader run here, in the main thread, so that a `breakpoint()` in any of them has the terminal;
commands in a sandbox run there as ever. Actions are those of a recorded rollout, or the environment's reference policy's.
"""

from __future__ import annotations

import asyncio
import bdb
import json
import logging
import pdb
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import typer

from agent_runtime.agents.oracle import OracleAgent
from agent_runtime.run import rollout
from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start, Trajectory
from agent_runtime.wrapped import WrappedEnv
from ale.config import parse_overrides
from ale.errors import NotRun, RecordError
from ale.options import BackendOption, EnvArgs
from ale.own_class import bring
from ale.replay.records import find
from ale.replay.showing import transcript
from ale.terminal import stdout
from ale.training.rollouts import ByteTemplate
from rock_env import errors, plugins
from rock_env.env import Info, Oracle, StepResult, Verdict
from rock_env.env_workers.catalog import parse_task_id
from rock_env.env_workers.here import HereEnv
from rock_env.errors import InvalidArgument, RockError
from rock_env.games.game import hear
from rock_env.server.app import in_process
from rock_env.server.envs.here import HereRock
from rock_env.server.options import ServerOptions

__all__ = ["DebugCommand", "debug", "debug_command"]

T = TypeVar("T")
_NO_LIMIT_S = 1e9
"""A person at a prompt takes as long as it takes."""
_MOST_TURNS = 10_000
"""The environment's own limit ends an episode."""


@dataclass(frozen=True, slots=True)
class DebugCommand:
    """What the user typed."""

    what: str
    """`ENV/SPLIT/INDEX`, or with `is_record` a run, folder or file of records."""
    is_record: bool = False
    identity: str | None = None
    """The rollout among the records; None: the first one."""
    env_args: Mapping[str, object] | None = None
    seed: int = 0
    turn: int | None = None
    """Stop where the environment takes this turn's action; the first one is 0."""
    backends: Sequence[str] = ()


def debug(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ENV/SPLIT/INDEX|RECORDS",
            help="A task, played by the environment's reference policy; or with --id a recorded rollout's place.",
        ),
    ],
    *,
    identity: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Send this rollout's actions, of the records of a run, folder or file."
        ),
    ] = None,
    turn: Annotated[
        int | None, typer.Option("--turn", min=0, help="Stop where the environment takes this turn's action.")
    ] = None,
    env_args: EnvArgs = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the environment's reset.")] = 0,
    backend: BackendOption = None,
) -> None:
    """Play one rollout in this process, with Python's debugger where the environment or its grader raises."""
    debug_command(
        DebugCommand(
            what,
            is_record=identity is not None,
            identity=identity,
            env_args=parse_overrides(env_args or []),
            seed=seed,
            turn=turn,
            backends=backend or (),
        )
    )


def debug_command(command: DebugCommand) -> None:
    """Play, with the debugger where asked and where a plugin raises; then print the transcript.

    Raise `NotRun` where the rollout failed or the debugger was left, `RecordError` for a record that is not there or is a
    CLI agent's, and `RockError` where none began.
    """
    logging.getLogger(errors.__name__).addFilter(_is_no_leave)
    hear()
    request, player = _recorded(command) if command.is_record else _reference(command)
    played = asyncio.run(_play(request, player, command))
    for line in transcript(played, tokens=False):
        stdout().print(line, markup=False)
    if played.failure is not None:
        raise NotRun(f"the rollout failed with {played.failure.code}: {played.failure.message}")


def _is_no_leave(record: logging.LogRecord) -> bool:
    """Return whether a log record tells of anything but that the user left the debugger."""
    return record.exc_info is None or not isinstance(record.exc_info[1], bdb.BdbQuit)


def _recorded(command: DebugCommand) -> tuple[RolloutRequest, Oracle]:
    """Return a recorded rollout's start, and its actions."""
    recorded = find(command.what, command.identity)
    if recorded.is_session:
        raise RecordError(
            f"{recorded.id} is a CLI agent's: what it did in its sandbox is no action to send again. Debug its task with "
            f"`ale debug {recorded.env.rpartition('@')[0]}/{recorded.task_id}`."
        )
    actions = [turn.action for turn in recorded.played()]
    left = iter(actions)
    name = recorded.env.rpartition("@")[0]
    bring(name)
    start = replace(recorded.start, hint="")
    request = _request(name, recorded.params_json, recorded.task_id, start, turns=len(actions))
    return request, lambda _: next(left)


def _reference(command: DebugCommand) -> tuple[RolloutRequest, Oracle]:
    """Return a task from its start, and who acts: the reference policy, or legal actions by chance where there is none."""
    name, *place = command.what.rsplit("/", 2)
    if len(place) != 2:
        raise InvalidArgument(f"expected ENV/SPLIT/INDEX such as frozen_lake/train/0, got {command.what!r}.")
    bring(name)
    spec = plugins.load_env(name)
    params = plugins.env_params(spec, json.dumps(command.env_args or {}))
    split, index = parse_task_id("/".join(place))
    task = spec.tasks(params).get(split, index)
    player = spec.oracle if spec.has_oracle else spec.explorer
    request = _request(name, params.canonical(), task.id, Start(command.seed), turns=_MOST_TURNS)
    return request, _watched_player(player(params, task))


def _request(env: str, params_json: str, task_id: str, start: Start, *, turns: int) -> RolloutRequest:
    return RolloutRequest(
        id="debugged",
        env=env,
        params_json=params_json,
        task_id=task_id,
        group_id="debugged",
        index=0,
        seed=0,
        agent=AgentConfig(max_turns=start.anchor + turns),
        sampling=SamplingParams(),
        start=start,
        time_limit_s=_NO_LIMIT_S,
    )


async def _play(request: RolloutRequest, player: Oracle, command: DebugCommand) -> Trajectory:
    def agent(instruction: str) -> OracleAgent:
        return OracleAgent(request, instruction, oracle=player, template=ByteTemplate())

    async with in_process(ServerOptions(listen="unix:///nowhere", backend=list(command.backends))) as core:
        rock = _WatchedRock(HereRock(core), command.turn)
        return await rollout(request, agent, rock=rock, evaluate_limit_s=_NO_LIMIT_S)


class _WatchedRock:
    """Makes environments that the debugger watches."""

    def __init__(self, rock: HereRock, turn: int | None) -> None:
        self._rock = rock
        self._turn = turn

    async def make(self, env: str, params_json: str) -> _Watched:
        return _Watched(await _watched(self._rock.make(env, params_json)), self._turn)


class _Watched(WrappedEnv[HereEnv]):
    """An environment that stops at a turn, and where its plugin raises."""

    def __init__(self, env: HereEnv, turn: int | None) -> None:
        super().__init__(env)
        self._turns_left = turn

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        return await _watched(super().reset(task_id, seed, prefix, resume_seed, initial_hash))

    async def step(self, action: str) -> StepResult:
        if self._turns_left is not None:
            if self._turns_left == 0:
                _stop_in(type(self.inside.plugin), "step")
            self._turns_left -= 1
        return await _watched(super().step(action))

    async def evaluate(self) -> Verdict:
        return await _watched(super().evaluate())


async def _watched(act: Awaitable[T]) -> T:
    """Await `act`; where a plugin raised, let the user look at it there, and go on with the error."""
    try:
        return await act
    except RockError as error:
        _look(error)
        raise


def _watched_player(player: Oracle) -> Oracle:
    """Return the player; where a plugin raised in what it does, which may be a game beside, the user looks at it there."""

    def act(observation: str) -> str:
        try:
            return player(observation)
        except RockError as error:
            _look(error)
            raise

    return act


def _look(error: RockError) -> None:
    """Let the user look at what caused an error, where a plugin raised it. Raise `NotRun` where the debugger was left."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, bdb.BdbQuit):
        raise NotRun("the debugger was left before the rollout's end") from None
    if not isinstance(cause, RockError):
        stdout().print(f"{type(cause).__name__}: {cause}", markup=False)
        pdb.post_mortem(cause.__traceback__)


def _stop_in(kind: type, name: str) -> None:
    """Have the debugger stop where this method is entered next."""
    code = getattr(getattr(kind, name), "__code__", None)
    if code is None:
        raise InvalidArgument(
            f"{kind.__qualname__}.{name} is no Python function to stop in. Leave --turn out."
        )
    debugger = pdb.Pdb(nosigint=True)
    debugger.reset()
    debugger.set_break(code.co_filename, code.co_firstlineno, temporary=True, funcname=code.co_name)
    debugger.botframe = sys._getframe()  # what `set_trace` notes as well: where its watch began
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)
