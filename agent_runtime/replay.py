"""Re-execute a recorded trajectory in a fresh environment and say whether, and where, it comes out differently.

No policy takes part: only the recorded actions are sent, and of those only what the environment got then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_runtime.run import Rock, RockEnv, close_surely, reset_to
from agent_runtime.types import StopReason, Trajectory
from rock_env.env import StepResult, Verdict, observation_hash
from rock_env.errors import InvalidArgument, ResetDivergence

__all__ = ["Divergence", "ReplayReport", "ScoreReport", "replay", "score"]

_ENDINGS = (StopReason.TERMINATED, StopReason.TRUNCATED)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where replay and record differ."""

    turn: int
    """Index of the turn; -1 for the reset, `len(turns)` for the verdict."""
    what: str
    """`version`, `reset`, `first_observation`, `observation`, `turn_reward`, `end` or `verdict`."""
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found."""

    trajectory_id: str
    turns: int
    """How many turns came out as recorded."""
    divergence: Divergence | None

    @property
    def identical(self) -> bool:
        """Return whether every observation, reward and the verdict were reproduced."""
        return self.divergence is None


async def replay(trajectory: Trajectory, rock: Rock) -> ReplayReport:
    """Send the recorded actions from the recorded start; compare every hash, turn reward and the verdict.

    A failed trajectory is compared up to its last turn. Raise `RockError` where the service fails, `InvalidArgument` for the
    session of a CLI agent.
    """
    _need_actions(trajectory)
    async with _made(trajectory, rock) as env:
        turns, divergence = await _compare(trajectory, env)
    return ReplayReport(trajectory.id, turns, divergence)


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """What today's grader says of what a recorded rollout did."""

    trajectory_id: str
    verdict: Verdict | None
    """None where the environment did not go the recorded way."""
    divergence: Divergence | None


async def score(trajectory: Trajectory, rock: Rock) -> ScoreReport:
    """Do again what a rollout did and have it graded by the environment as it is now, whatever its version.

    Raise `RockError` where the service fails or the grade cannot be had, `InvalidArgument` for the session of a CLI agent
    and for a rollout that failed before its end.
    """
    _need_actions(trajectory)
    failure = trajectory.failure
    if failure is not None and failure.turn < len(trajectory.turns):
        raise InvalidArgument(
            f"trajectory {trajectory.id} failed to run at turn {failure.turn} ({failure.code}): there is no end to grade."
        )
    async with _made(trajectory, rock) as env:
        _, divergence = await _act(trajectory, env, rewards=False)
        verdict = None if divergence else await env.evaluate()
    return ScoreReport(trajectory.id, verdict, divergence)


def _need_actions(trajectory: Trajectory) -> None:
    if trajectory.is_session:
        raise InvalidArgument(
            f"trajectory {trajectory.id} is the session of a CLI agent: its turns are what the model said to the agent, no "
            "actions of the environment, and cannot be sent again. Look at it with `ale replay show`."
        )


@asynccontextmanager
async def _made(trajectory: Trajectory, rock: Rock) -> AsyncIterator[RockEnv]:
    env = await rock.make(trajectory.env.partition("@")[0], trajectory.params_json)
    try:
        yield env
    finally:
        await close_surely(env, trajectory.id)


async def _compare(trajectory: Trajectory, env: RockEnv) -> tuple[int, Divergence | None]:
    version = trajectory.env.partition("@")[2]
    if version and env.version != version:
        return 0, Divergence(-1, "version", version, env.version)
    turns, divergence = await _act(trajectory, env)
    if divergence is None and trajectory.has_reward:
        verdict = await env.evaluate()
        recorded = f"reward {trajectory.env_reward}, passed {trajectory.passed}"
        replayed = f"reward {verdict.reward}, passed {verdict.passed}"
        if recorded != replayed:
            return turns, Divergence(turns, "verdict", recorded, replayed)
    return turns, divergence


async def _act(
    trajectory: Trajectory, env: RockEnv, *, rewards: bool = True
) -> tuple[int, Divergence | None]:
    """Send the actions; return how many turns came out as recorded, and where the first did not.

    Without `rewards` those of the turns may be others.
    """
    try:
        observation, _ = await reset_to(env, trajectory.task_id, trajectory.start)
    except ResetDivergence as error:
        return 0, Divergence(-1, "reset", f"a prefix of {trajectory.start.anchor} turns", str(error))
    if observation != trajectory.first_observation:
        return 0, Divergence(-1, "first_observation", trajectory.first_observation, observation)
    acted = trajectory.env_turns
    for turn in acted:
        result = await env.step(trajectory.actions[turn])
        divergence = _compare_turn(trajectory, turn, result, last=turn == acted[-1], rewards=rewards)
        if divergence is not None:
            return turn, divergence
    return len(trajectory.turns), None


def _compare_turn(
    trajectory: Trajectory, turn: int, result: StepResult, *, last: bool, rewards: bool
) -> Divergence | None:
    if observation_hash(result.observation) != trajectory.observation_hashes[turn]:
        return Divergence(turn, "observation", trajectory.observations[turn], result.observation)
    recorded_reward = trajectory.env_turn_rewards[turn]
    if rewards and result.reward != recorded_reward:
        return Divergence(turn, "turn_reward", str(recorded_reward), str(result.reward))
    if last and not trajectory.has_reward:
        return None  # the failure hides how the environment's last turn ended
    recorded = trajectory.stop_reason.value if last and trajectory.stop_reason in _ENDINGS else "goes on"
    replayed = "terminated" if result.terminated else "truncated" if result.truncated else "goes on"
    if recorded != replayed:
        return Divergence(turn, "end", recorded, replayed)
    return None
