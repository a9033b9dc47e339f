"""The Ray actors around the engines: one samples, one learns. Called by `trainer.placement.Fleet`.

They translate between encoded trajectories and batches, hold the weights' version, and decide nothing about the run.
`ready` builds what `__init__` would, because Ray reports an error there as a dead process and loses its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.store import decode
from agent_runtime.types import Trajectory
from rock_env.plugins import load
from trainer.algo.base import Algorithm, AlgorithmSpec, Credit
from trainer.config import TrainConfig
from trainer.data.build import build_batch, shuffled_rows, split_rows
from trainer.engine.base import EngineSpec, Weights
from trainer.engine.injection import Injection

__all__ = ["InferenceActor", "Learner"]


def _engine_spec(config: TrainConfig) -> tuple[EngineSpec, Any]:
    spec = load("ale.engines", config.engine)
    assert isinstance(spec, EngineSpec)
    return spec, spec.options(**config.engine_options)


class InferenceActor:
    """Samples for rollout workers."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config

    def ready(self) -> None:
        """Build the engine. First of all calls."""
        torch.set_num_threads(1)
        spec, options = _engine_spec(self._config)
        self._engine = spec.inference(self._config.model, options, self._config.seed)

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Sample one completion per request, in order."""
        return self._engine.sample(requests)

    def load(self, weights: Weights, version: int) -> None:
        """Take new weights."""
        self._engine.load(weights, version)


class Learner:
    """Owns the train engine and the algorithm."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._experts: dict[str, Trajectory] = {}

    def ready(self) -> None:
        """Build the engine and the algorithm. First of all calls."""
        config = self._config
        torch.set_num_threads(config.optim.threads)
        spec, options = _engine_spec(config)
        algorithm = load("ale.algorithms", config.algo)
        assert isinstance(algorithm, AlgorithmSpec)
        imitation = load("ale.algorithms", "bc")
        assert isinstance(imitation, AlgorithmSpec)
        self._engine = spec.train(config.model, options, config.seed, config.optim)
        self._algo: Algorithm = algorithm.build(algorithm.options(**config.algo_options))
        self._bc: Algorithm = imitation.build(imitation.options())
        self._learns_from_rollouts = algorithm.learns_from_rollouts

    def learns_from_rollouts(self) -> bool:
        """Return whether the algorithm needs training rollouts at all."""
        return self._learns_from_rollouts

    def take_experts(self, encoded: Sequence[bytes]) -> None:
        """Keep expert trajectories for `imitate` and injections."""
        experts = [decode(data) for data in encoded]
        self._experts = {expert.id: expert for expert in experts}

    def imitate(self, *, lr: float, batch_trajectories: int, seed: int) -> dict[str, float]:
        """One pass of imitation over the experts, in an order drawn from `seed`. Return mean metrics."""
        experts = list(self._experts.values())
        batch, _ = build_batch(
            experts, self._bc.credit(experts), token_budget=self._config.rollout.token_budget
        )
        parts = shuffled_rows(batch, -(-len(experts) // batch_trajectories), seed)
        history = [self._engine.step(part, self._bc.loss, lr=lr) for part in parts]
        return {name: float(np.mean([m[name] for m in history])) for name in history[0]} if history else {}

    def update(
        self, encoded: Sequence[bytes], injections: Sequence[Injection], *, lr: float
    ) -> dict[str, float]:
        """Credit the groups, build the batch, take one optimizer step per minibatch. Return metrics."""
        config = self._config
        trajectories = [decode(data) for data in encoded]
        credits = self._credit(trajectories)
        for injection in injections:
            expert, credit = self._inject(injection)
            trajectories.append(expert)
            credits.append(credit)
        batch, ledger = build_batch(trajectories, credits, token_budget=config.rollout.token_budget)
        minibatches = config.optim.minibatches
        if minibatches > 1 and self._algo.needs_prox:
            batch = replace(batch, prox_logprobs_BT=self._engine.logprobs(batch))
        history = [self._engine.step(part, self._algo.loss, lr=lr) for part in split_rows(batch, minibatches)]
        names = dict.fromkeys(name for metrics in history for name in metrics)
        means = {name: float(np.mean([m[name] for m in history if name in m])) for name in names}
        accounts = {"trained": ledger.trained, "imitated": ledger.imitated}
        for reason, tokens in [*ledger.masked.items(), *ledger.dropped.items()]:
            accounts[reason] = accounts.get(reason, 0) + tokens
        return {**means, **{f"tokens/{reason}": float(tokens) for reason, tokens in accounts.items()}}

    def weights(self) -> Weights:
        """Return the current parameters."""
        return self._engine.weights()

    def save(self, folder: Path) -> None:
        """Write parameters and optimizer state."""
        self._engine.save(folder)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        self._engine.load(folder)

    def export(self, folder: Path) -> None:
        """Write the model for `--model FOLDER`."""
        self._engine.export(folder)

    def _credit(self, trajectories: Sequence[Trajectory]) -> list[Credit]:
        groups: dict[str, list[int]] = {}
        for position, trajectory in enumerate(trajectories):
            groups.setdefault(trajectory.group_id, []).append(position)
        credits: dict[int, Credit] = {}
        for positions in groups.values():
            group = self._algo.credit([trajectories[position] for position in positions])
            credits.update(zip(positions, group, strict=True))
        return [credits[position] for position in range(len(trajectories))]

    def _inject(self, injection: Injection) -> tuple[Trajectory, Credit]:
        expert = self._experts[injection.trajectory_id]
        (credit,) = self._algo.credit([expert])
        gate = np.zeros(len(expert.turns))
        gate[list(injection.turns)] = injection.weight
        return expert, replace(credit, imitation_K=credit.imitation_K * gate)
