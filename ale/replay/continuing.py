"""`ale replay from`: go on from any turn of a recorded rollout, several times, by another policy or temperature.

The turns before are sent to a fresh environment and compared hash for hash; from there on a model plays, a small one in
this process (`ale.training.model_play`). What it makes is a record like any other: each continuation names the rollout it
came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.store import write_segment
from agent_runtime.types import RolloutRequest, SamplingParams, Start, StopReason, Trajectory
from ale.errors import NotRun, RecordError
from ale.replay.places import new_records
from ale.replay.records import find
from ale.terminal import print_table, stdout
from ale.training.model_play import model_settings, play_requests
from rock_env.errors import InvalidArgument
from trainer.config import TrainConfig
from trainer.rollout.tasks import agent_of
from trainer.seeds import derive

__all__ = ["From", "from_command", "split_place", "start_at"]

_ENDED = (StopReason.TERMINATED, StopReason.TRUNCATED)


@dataclass(frozen=True, slots=True)
class From:
    """What the user typed."""

    where: str
    identity: str
    turn: int
    samples: int
    policy: str
    """A run or a model; empty: the run that holds the record."""
    temperature: float
    hint: str
    reseed: bool
    """Each continuation has chance of its own; without, the environment's goes on as recorded."""
    seed: int
    out: Path | None
    rock: str
    backends: Sequence[str] = ()


def split_place(place: str) -> tuple[str, int]:
    """Split `ID:TURN`. Raise `InvalidArgument` for any other form."""
    identity, colon, turn = place.rpartition(":")
    if not (colon and identity and turn.isascii() and turn.isdigit()):
        raise InvalidArgument(f"bad place {place!r}: expected ID:TURN, such as 000003-0001-002:4.")
    return identity, int(turn)


def start_at(trajectory: Trajectory, turn: int, *, resume_seed: int | None = None, hint: str = "") -> Start:
    """Return the start of a rollout that takes over before turn `turn` of a recorded one, counted as `show` does.

    Raise `RecordError` for the session of a CLI agent and for a turn that there is not.
    """
    if trajectory.is_session:
        raise RecordError(
            f"{trajectory.id} is the session of a CLI agent: its turns are what the model said to the agent, no actions of "
            "the environment, so nothing can go on from one."
        )
    last = len(trajectory.turns) - (trajectory.stop_reason in _ENDED)
    if not 0 <= turn <= last:
        raise RecordError(f"nothing can go on from turn {turn} of {trajectory.id}: expected 0 to {last}.")
    began = trajectory.start
    done = sum(each < turn for each in trajectory.env_turns)
    prefix = (*began.prefix, *trajectory.played()[:done])
    first = began.first_observation if began.prefix else trajectory.first_observation
    if resume_seed is None and done == 0:
        resume_seed = began.resume_seed
    return Start(
        env_seed=began.env_seed,
        first_observation=first if prefix else "",
        prefix=prefix,
        resume_seed=resume_seed,
        source_id=trajectory.id,
        hint=hint or began.hint,
    )


def from_command(command: From) -> None:
    """Play the continuations, print them beside the recorded rest, and keep them if asked. Raise `NotRun` if one failed."""
    recorded = find(command.where, command.identity)
    group = f"from-{recorded.id}-{command.turn}"
    path = new_records(command.out, group) if command.out else None
    config = _settings(command, recorded)
    requests = [_request(command, config, recorded, group, number) for number in range(command.samples)]
    out = stdout()
    out.print(
        f"{recorded.id} has {len(recorded.turns)} turns and ended with reward {recorded.reward:g} ({recorded.stop_reason}); "
        f"from turn {command.turn} on:"
    )
    played = play_requests(config, requests)
    heads = ("id", "turns", "reward", "end", "first action")
    print_table(heads, [_row(trajectory) for trajectory in played], least=("first action",))
    done = [trajectory for trajectory in played if trajectory.has_reward]
    passed = sum(trajectory.passed for trajectory in done)
    out.print(f"\n{passed} of {len(done)} passed, {len(played) - len(done)} failed to run")
    if path is not None:
        write_segment(path, played)
        out.print(f"kept in {path}")
    failures = [trajectory.failure for trajectory in played if trajectory.failure is not None]
    if failures:
        raise NotRun(
            f"{len(failures)} of {len(played)} continuations failed to run, the first with {failures[0].code}: "
            f"{failures[0].message}"
        )


def _settings(command: From, recorded: Trajectory) -> TrainConfig:
    env = recorded.env.partition("@")[0]
    config = model_settings(
        command.policy or command.where, named={"env": env, "seed": command.seed}, overrides=[]
    ).config
    settings = config.model_dump()
    settings["rollout"] |= {"rock_address": command.rock, "backends": tuple(command.backends)}
    return TrainConfig.model_validate(settings)


def _request(
    command: From, config: TrainConfig, recorded: Trajectory, group: str, number: int
) -> RolloutRequest:
    identity = f"{group}-{number:03d}"
    resume = derive(command.seed, "from", identity) if command.reseed else None
    return RolloutRequest(
        id=identity,
        env=config.env,
        params_json=recorded.params_json,
        task_id=recorded.task_id,
        group_id=group,
        index=number,
        seed=derive(command.seed, "sample", identity),
        agent=agent_of(config),
        sampling=SamplingParams(
            temperature=command.temperature,
            max_tokens=config.sampling.max_tokens,
            thinking_tokens=config.sampling.thinking_tokens,
        ),
        start=start_at(recorded, command.turn, resume_seed=resume, hint=command.hint),
        time_limit_s=config.rollout.time_limit_s,
    )


def _row(trajectory: Trajectory) -> tuple[str, ...]:
    failure = trajectory.failure
    return (
        trajectory.id,
        str(len(trajectory.turns)),
        "" if failure else f"{trajectory.reward:g}{' passed' if trajectory.passed else ''}",
        f"errored: {failure.code}: {failure.message}" if failure else str(trajectory.stop_reason),
        trajectory.actions[0][:40].splitlines()[0] if trajectory.actions and trajectory.actions[0] else "",
    )
