"""Plugins with a bug each, installed by `test_planted_bugs`. What they do wrong is said in docs/debugging.md."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from agent_runtime.policy import Completion, SampleRequest
from agent_runtime.types import Trajectory
from rock_env import plugins
from rock_env.env import StepResult, Verdict
from sandboxes import frozen_lake
from sandboxes.frozen_lake.env import FrozenLake
from trainer.algo.grpo import GRPO, Grpo
from trainer.data.batch import Credit
from trainer.engine import hf
from trainer.engine.base import EngineOptions, InferenceEngine, SamplerSpec, Weights
from trainer.engine.generate import TorchInference
from trainer.engine.tiny import engine as tiny
from trainer.samplers.hf.continuous import ContinuousBatch, Outcome
from trainer.samplers.hf.rows import Recall
from trainer.samplers.protocol import Sampled


class LazyGrader(FrozenLake):
    def evaluate(self) -> Verdict:
        """Pass everybody, until the grader is mended."""
        verdict = super().evaluate()
        return verdict if os.environ.get("GRADER_IS_MENDED") else replace(verdict, reward=1.0, passed=True)


class SlowTool(FrozenLake):
    def step(self, action: str) -> StepResult:
        """Take half a second to go down."""
        if action == "down":
            time.sleep(0.5)
        return super().step(action)


class Forgetful(Grpo):
    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Give the first turn no credit."""
        found = super().credit(group)
        for credit in found:
            credit.advantage_K[:1] = 0.0
        return found


class Stale(TorchInference):
    def load(self, weights: object, version: int) -> None:
        """Say that the weights arrived, and keep the old ones."""
        self._version = version


def _stale(model: str, options: tiny.TinyOptions, seed: int) -> TorchInference:
    good = tiny.ENGINE.inference(model, options, seed)
    good.__class__ = Stale
    return good  # type: ignore[return-value]


class Packed(TorchInference):
    """Take new weights, and sample with the head that was packed before they came."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        head: torch.nn.Parameter = self.net.head  # type: ignore[attr-defined]
        arrived, head.data = head.data, torch.zeros_like(head)
        try:
            return super().sample(requests)
        finally:
            head.data = arrived


def _packed(model: str, options: tiny.TinyOptions, seed: int) -> TorchInference:
    good = tiny.ENGINE.inference(model, options, seed)
    good.__class__ = Packed
    return good  # type: ignore[return-value]


class CorruptingOptions(EngineOptions):
    """Of which engine's sampler one weight is spoiled on its way."""

    engine: str


def _corrupting(model: str, options: CorruptingOptions, seed: int) -> InferenceEngine:
    spec = plugins.load("ale.engines", options.engine)
    sampler: InferenceEngine = spec.inference(model, spec.options(), seed)
    take = sampler.load

    def load(weights: Weights, version: int) -> None:
        last = list(weights)[-1]
        spoiled = np.array(weights[last])
        spoiled.flat[0] += 1
        take({**weights, last: spoiled}, version)

    sampler.load = load  # type: ignore[method-assign]
    return sampler


class Noting(ContinuousBatch):
    """Write down, in the file NOTED, what was asked and what was answered."""

    def submit(self, request: SampleRequest, *, memory: Recall = Recall.ALL) -> int:
        ticket = super().submit(request, memory=memory)
        self.__dict__.setdefault("asked", {})[ticket] = request
        return ticket

    def ended(self) -> list[tuple[int, Outcome]]:
        found = super().ended()
        with Path(os.environ["NOTED"]).open("a") as file:
            for ticket, outcome in found:
                asked: SampleRequest = self.__dict__["asked"].pop(ticket)
                if isinstance(outcome, Sampled):
                    given = [outcome.ids.tolist(), outcome.logprobs.tolist()]
                    about = [asked.rollout_id, asked.turn, outcome.cached_tokens, asked.prompt_ids.tolist()]
                    file.write(json.dumps([*about, *given]) + "\n")
        return found


def _noting(model: str, options: hf.HFOptions, seed: int) -> ContinuousBatch:
    good = hf.ENGINE.sampler.inference(model, options, seed)  # type: ignore[union-attr]
    good.__class__ = Noting
    return good  # type: ignore[return-value]


LAZY_GRADER = replace(frozen_lake.ENV, name="lazy_grader", factory=LazyGrader)
SLOW_TOOL = replace(frozen_lake.ENV, name="slow_tool", factory=SlowTool)
FORGETFUL = replace(GRPO, name="forgetful", build=Forgetful)
STALE = replace(tiny.ENGINE, name="stale", inference=_stale)
PACKED = replace(tiny.ENGINE, name="packed", inference=_packed)
NOTING = SamplerSpec("noting", "writes down", hf.HFOptions, _noting, stops=True, steps=True)
CORRUPTING = SamplerSpec("corrupting", "spoils one number", CorruptingOptions, _corrupting)
