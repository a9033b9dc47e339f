"""`ale rollout`: let an oracle, chance or a trained run play an environment.

Shows whether an environment works and what its tasks are worth; with `--out` the records are kept for `ale replay`.
Oracle and chance need no torch, and small models no Ray.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agent_runtime.agents.cli_rollout import BoxedRock
from agent_runtime.agents.oracle import record_expert
from agent_runtime.artifacts import Keeping, folder_in
from agent_runtime.freezing import Freezer
from agent_runtime.policy import Message
from agent_runtime.run import Rock
from agent_runtime.store import segment_path, write_segment
from agent_runtime.types import AgentConfig, IntArray, RolloutRequest, SamplingParams, Start, Trajectory
from ale.errors import NotRun
from ale.own_class import bring
from ale.rock.reach import check_freeze, connected, say_kept
from ale.terminal import print_table, stderr, stdout
from ale.training import runs
from ale.waiting import LIBRARIES, awaited, waiting_for
from rock_env import plugins
from rock_env.env import Oracle
from rock_env.errors import (
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    from_code,
    nearest,
)
from rock_env.spec import EnvParams, EnvSpec, TaskSpec
from trainer.config import TrainConfig
from trainer.rollout.tasks import task_ids
from trainer.signals import held

__all__ = ["ByteTemplate", "RolloutCommand", "play_episodes", "rollout_command"]

AT_ONCE = 64
"""Episodes played at the same time."""
WITHOUT_MODEL = ("oracle", "random")
_REFUSALS = {kind.code for kind in (PermissionDenied, Unauthenticated, Unavailable, Unimplemented)}
"""Where nothing but these came, no episode is at fault: the exit code is the service's."""
LEARNING_EPISODES = 4
"""Oracle episodes from which the random policy learns which actions there are."""


@dataclass(frozen=True, slots=True)
class RolloutCommand:
    """What the user typed."""

    env: str
    env_args: Mapping[str, object]
    policy: str
    episodes: int
    split: str
    seed: int
    out: Path | None
    rock: str
    backends: Sequence[str] = ()
    """Of the embedded server; none: those that come with ROCK."""
    freeze: int = 0
    """So many failed rollouts leave their sandbox open."""
    agent: Mapping[str, str] | None = None
    """The settings of a CLI agent; None: the run's own agent, or one of ours."""


class ByteTemplate:
    """A chat template of UTF-8 bytes: the token record of a rollout in which no model takes part."""

    max_context = 1 << 31

    def open(self, messages: Sequence[Message]) -> IntArray:
        return self.extend(messages, closed=True)

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        return self.encode_completion("".join(f"{message.role}: {message.content}\n" for message in messages))

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        return bytes(ids.tolist()).decode(errors="replace")


def rollout_command(command: RolloutCommand) -> None:
    """Play, print a line per episode and the totals, and keep the records if asked.

    Raise `NotRun` if an episode failed to run, `RockError` or `ConfigError` if none could begin.
    """
    bring(command.env)
    spec = plugins.load_env(command.env)
    params = plugins.env_params(spec, json.dumps(command.env_args))
    task_ids(spec.tasks(params), command.split, 1, seed=0)  # a split without tasks is refused at once
    started = time.monotonic()
    check_freeze(command.freeze, command.rock)
    without_model = command.policy in WITHOUT_MODEL
    if without_model and command.agent:
        raise InvalidArgument(
            f"--agent {command.agent['name']} plays with a model behind it: got --policy {command.policy}, expected a run. "
            "Name one with --policy RUN, or leave --agent out."
        )
    if without_model and not spec.has_oracle and not (command.policy == "random" and spec.has_explorer):
        raise InvalidArgument(
            f"{spec.name} has no reference policy: got --policy {command.policy}, which needs one (random draws from its "
            "actions), expected a run. Name one with --policy RUN."
        )
    kept: list[str] = []
    if without_model:
        trajectories = awaited(_play(command, spec, params, kept), f"the episodes of {spec.name}")
    else:
        trajectories = _play_model(command)
    elapsed = time.monotonic() - started
    print_table(("id", "task", "turns", "reward", "end"), [_row(trajectory) for trajectory in trajectories])
    done = [trajectory for trajectory in trajectories if trajectory.has_reward]
    passed = sum(trajectory.passed for trajectory in done)
    turns = sum(len(trajectory.turns) for trajectory in trajectories)
    out = stdout()
    out.print(
        f"\n{command.policy} on {spec.key}: {passed} of {len(done)} passed, {len(trajectories) - len(done)} failed "
        f"to run, {turns} turns in {elapsed:.2f} s"
    )
    if command.out is not None:
        path = segment_path(command.out, "rollout")
        write_segment(path, trajectories)
        out.print(f"kept in {path}")
    if command.freeze:
        say_kept(kept if without_model else None, command.rock)
    failures = [trajectory.failure for trajectory in trajectories if trajectory.failure is not None]
    if failures:
        said = (
            f"{len(failures)} of {len(trajectories)} episodes failed to run, the first with {failures[0].code}: "
            f"{failures[0].message}"
        )
        if not done and {failure.code for failure in failures} <= _REFUSALS:
            raise from_code(failures[0].code, said)
        raise NotRun(said)


async def _play(
    command: RolloutCommand, spec: EnvSpec, params: EnvParams, kept: list[str]
) -> list[Trajectory]:
    async with connected(command.rock, command.backends) as client:
        rock: BoxedRock = Freezer(client, command.freeze, kept)
        if folder := _artifacts(command):
            rock = Keeping(rock, folder)
        if command.policy == "oracle":
            return await play_episodes(command, spec, params, rock=rock, policy=spec.oracle)
        if not spec.has_oracle:
            return await play_episodes(command, spec, params, rock=rock, policy=spec.explorer)
        scouts = replace(command, episodes=min(LEARNING_EPISODES, command.episodes))
        seen = await play_episodes(scouts, spec, params, rock=rock, policy=spec.oracle)
        actions = sorted({action for trajectory in seen for action in trajectory.actions})
        note = (
            f"random draws from {len(actions)} actions: those of the reference policy in {len(seen)} episodes"
        )
        stderr().print(f"note: {note}. An environment says which are legal with actions or action_space.")
        return await play_episodes(
            command, spec, params, rock=rock, policy=_random_policy(actions, command.seed)
        )


def _play_model(command: RolloutCommand) -> list[Trajectory]:
    """Let a run's model play as it does in training: at the training temperature."""
    if not (runs.locate(command.policy) / runs.CONFIG).is_file():
        raise nearest("policy or run", command.policy, [*WITHOUT_MODEL, *runs.known()])
    with waiting_for(LIBRARIES), held():
        from ale.training.model_play import model_settings, play_tasks  # brings torch

    arguments = [f"env_args.{name}={value}" for name, value in command.env_args.items()]
    chosen = [f"eval.tasks={command.episodes}", f"eval.split={command.split}"]
    named: dict[str, object] = {"env": command.env, "seed": command.seed, "agent": command.agent}
    config = model_settings(command.policy, named=named, overrides=[*arguments, *chosen]).config
    settings = config.model_dump()
    settings["eval"]["temperature"] = 1.0
    placed = {"rock_address": command.rock, "backends": tuple(command.backends), "freeze": command.freeze}
    settings["rollout"] |= placed
    return play_tasks(TrainConfig.model_validate(settings), artifacts=_artifacts(command))


def _artifacts(command: RolloutCommand) -> Path | None:
    """Return where artifacts are kept: beside the records, if those are."""
    return None if command.out is None else folder_in(command.out)


def _random_policy(actions: Sequence[str], seed: int) -> Callable[[EnvParams, TaskSpec], Oracle]:
    def policy(params: EnvParams, task: TaskSpec) -> Oracle:
        rng = random.Random(f"{seed} {task.id}")
        return lambda observation: rng.choice(actions)

    return policy


async def play_episodes(
    command: RolloutCommand,
    spec: EnvSpec,
    params: EnvParams,
    *,
    rock: Rock,
    policy: Callable[[EnvParams, TaskSpec], Oracle],
) -> list[Trajectory]:
    """Play the first `episodes` tasks of the split (again from the first where they run out), in order."""
    source = spec.tasks(params)
    count = source.count(command.split)
    gate = asyncio.Semaphore(AT_ONCE)

    async def episode(number: int) -> Trajectory:
        task = source.get(command.split, number % count)
        request = _request(command, params, task, number)
        async with gate:
            return await record_expert(
                request, rock=rock, oracle=policy(params, task), template=ByteTemplate()
            )

    tasks: list[asyncio.Task[Trajectory]] = []

    def what() -> str:
        done = sum(task.done() for task in tasks)
        return f"episodes of {command.env} ({done} of {command.episodes} ended)"

    with waiting_for(what):
        async with asyncio.TaskGroup() as group:
            tasks += (group.create_task(episode(number)) for number in range(command.episodes))
    return [task.result() for task in tasks]


def _request(command: RolloutCommand, params: EnvParams, task: TaskSpec, number: int) -> RolloutRequest:
    return RolloutRequest(
        id=f"{command.policy}-{number:05d}",
        env=command.env,
        params_json=params.canonical(),
        task_id=task.id,
        group_id=f"{command.policy}-{number:05d}",
        index=0,
        seed=command.seed,
        agent=AgentConfig(max_turns=10_000),  # the environment's own limit ends an episode
        sampling=SamplingParams(),
        start=Start(env_seed=command.seed + number),
        time_limit_s=task.time_limit_s,
    )


def _row(trajectory: Trajectory) -> tuple[str, ...]:
    failure = trajectory.failure
    return (
        trajectory.id,
        trajectory.task_id,
        str(len(trajectory.turns)),
        "" if failure else f"{trajectory.reward:g}{' passed' if trajectory.passed else ''}",
        f"errored: {failure.code}: {failure.message}" if failure else str(trajectory.stop_reason),
    )
