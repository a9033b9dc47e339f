"""Rollouts to judge: real environments played with given actions, and the configuration that rewards them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np

from agent_runtime.types import Start, StopReason, Trajectory, Turn
from rock_env.env import observation_hash
from rock_env.plugins import env_params, load_env
from trainer.config import TrainConfig
from trainer.reward.base import Sample
from trainer.reward.kept import KeptAnswers
from trainer.reward.router import Router


def played(
    *actions: str, env: str = "math", split: str = "train", index: int = 0, name: str = "t", group: str = "g"
) -> Trajectory:
    """Play the actions; every turn has two tokens."""
    spec = load_env(env)
    params = env_params(spec, "{}")
    task = spec.tasks(params).get(split, index)
    game: Any = spec.factory(params)
    first, _ = game.reset(task, 0)
    results = [game.step(action) for action in actions]
    verdict = game.evaluate()
    game.close()
    ids, logprobs = np.array([1, 2], np.int32), np.array([-1.0, -2.0], np.float32)
    turns = tuple(Turn(n, n - 1 if n else None, ids, ids, logprobs, "stop", 3) for n in range(len(actions)))
    return Trajectory(
        id=name,
        env=spec.key,
        params_json=params.canonical(),
        task_id=task.id,
        group_id=group,
        index=0,
        seed=0,
        start=Start(env_seed=0),
        first_observation=first,
        turns=turns,
        actions=actions,
        observations=tuple(result.observation for result in results),
        observation_hashes=tuple(observation_hash(result.observation) for result in results),
        turn_rewards=tuple(result.reward for result in results),
        illegal_actions=0,
        reward=verdict.reward,
        passed=verdict.passed,
        stop_reason=StopReason.TERMINATED,
    )


def solved(index: int = 0, split: str = "train", **names: str) -> Trajectory:
    """Return a right answer to a math task."""
    return played(f"So \\boxed{{{', '.join(answer_of(index, split))}}}", index=index, split=split, **names)


def answer_of(index: int, split: str = "train") -> list[str]:
    spec = load_env("math")
    return list(json.loads(spec.tasks(env_params(spec, "{}")).get(split, index).payload)["answer"])


def sample_of(trajectory: Trajectory) -> Sample:
    spec = load_env(trajectory.env.partition("@")[0])
    split, _, index = trajectory.task_id.rpartition("/")
    task = spec.tasks(env_params(spec, trajectory.params_json)).get(split, int(index))
    return Sample.of(trajectory, task, asked="test")


def config_of(*routes: dict[str, Any], env: str = "math", algo: str = "ipa", **reward: Any) -> TrainConfig:
    options = {"turn_rewards": True} if algo == "ipa" else {}
    return TrainConfig.model_validate(
        {"env": env, "algo": algo, "algo_options": options, "reward": {"routes": routes, **reward}}
    )


def reward(
    config: TrainConfig, trajectories: list[Trajectory], folder: Path, *, rock_address: str = ""
) -> tuple[list[Trajectory], dict[str, float]]:
    """Let the configured workers judge, as one process of a run does."""

    async def judge() -> tuple[list[Trajectory], dict[str, float]]:
        with KeptAnswers(folder) as kept:
            async with Router(config, rock_address) as router:
                return await router.reward(trajectories, kept)

    return asyncio.run(judge())
