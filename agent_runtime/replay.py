"""Re-execute a recorded trajectory in a fresh environment and say whether, and where, it comes out differently.

No policy takes part: only the recorded actions are sent, and of those only what the environment got then.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.run import Rock, RockEnv, close_surely, reset_to
from agent_runtime.types import StopReason, Trajectory
from rock_env.env import StepResult, observation_hash
from rock_env.errors import InvalidArgument, ResetDivergence

__all__ = ["Divergence", "ReplayReport", "replay"]

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
    if trajectory.is_session:
        raise InvalidArgument(
            f"trajectory {trajectory.id} is the session of a CLI agent: its turns are what the model said to the agent, no "
            "actions of the environment, and cannot be sent again. Look at it with `ale replay show`."
        )
    name, _, version = trajectory.env.partition("@")
    env = await rock.make(name, trajectory.params_json)
    try:
        turns, divergence = await _compare(trajectory, env, version)
    finally:
        await close_surely(env, trajectory.id)
    return ReplayReport(trajectory.id, turns, divergence)


async def _compare(trajectory: Trajectory, env: RockEnv, version: str) -> tuple[int, Divergence | None]:
    if version and env.version != version:
        return 0, Divergence(-1, "version", version, env.version)
    try:
        observation, _ = await reset_to(env, trajectory.task_id, trajectory.start)
    except ResetDivergence as error:
        return 0, Divergence(-1, "reset", f"a prefix of {trajectory.start.anchor} turns", str(error))
    if observation != trajectory.first_observation:
        return 0, Divergence(-1, "first_observation", trajectory.first_observation, observation)
    acted = trajectory.env_turns
    for turn in acted:
        result = await env.step(trajectory.actions[turn])
        divergence = _compare_turn(trajectory, turn, result, last=turn == acted[-1])
        if divergence is not None:
            return turn, divergence
    turns = len(trajectory.turns)
    if trajectory.has_reward:
        verdict = await env.evaluate()
        recorded = f"reward {trajectory.env_reward}, passed {trajectory.passed}"
        replayed = f"reward {verdict.reward}, passed {verdict.passed}"
        if recorded != replayed:
            return turns, Divergence(turns, "verdict", recorded, replayed)
    return turns, None


def _compare_turn(trajectory: Trajectory, turn: int, result: StepResult, *, last: bool) -> Divergence | None:
    if observation_hash(result.observation) != trajectory.observation_hashes[turn]:
        return Divergence(turn, "observation", trajectory.observations[turn], result.observation)
    recorded_reward = trajectory.env_turn_rewards[turn]
    if result.reward != recorded_reward:
        return Divergence(turn, "turn_reward", str(recorded_reward), str(result.reward))
    if last and not trajectory.has_reward:
        return None  # the failure hides how the environment's last turn ended
    recorded = trajectory.stop_reason.value if last and trajectory.stop_reason in _ENDINGS else "goes on"
    replayed = "terminated" if result.terminated else "truncated" if result.truncated else "goes on"
    if recorded != replayed:
        return Divergence(turn, "end", recorded, replayed)
    return None
