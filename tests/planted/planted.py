"""Plugins with a bug each, installed by `test_planted_bugs`. What they do wrong is said in docs/debugging.md."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

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
from trainer.models import hf
from trainer.models.tiny import engine as tiny
from trainer.protocols.engines import (
    EngineOptions,
    InferenceEngine,
    OptimOptions,
    SamplerSpec,
    TrainEngine,
    Weights,
)
from trainer.protocols.token_sampler import Sampled
from trainer.samplers.generate import TorchInference
from trainer.samplers.hf.continuous import ContinuousBatch, Outcome
from trainer.samplers.hf.rows import Recall


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


class Odd(TorchInference):
    """Have the bug that the variable ODD names."""

    arrived = None  # it states nothing  # type: ignore[assignment]

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        found = super().sample(requests)
        if os.environ["ODD"] == "raises":
            raise KeyError("a key that is not there")
        return [replace(one, ids=one.ids.tolist()) if os.environ["ODD"] == "lists" else one for one in found]  # type: ignore[arg-type]

    def load(self, weights: Weights, version: int) -> None:
        super().load(weights, 0 if os.environ["ODD"] == "version" else version)


def _odd(model: str, options: tiny.TinyOptions, seed: int) -> TorchInference:
    good = tiny.ENGINE.inference(model, options, seed)
    good.__class__ = Odd
    return good  # type: ignore[return-value]


class CorruptingOptions(EngineOptions):
    """Which engine's sampler does what with the weights that it is sent."""

    engine: str
    how: Literal["number", "nothing", "untied", "packed"] = "number"
    """One number is spoiled; none is taken; the head of a tied model keeps those of before; so does the copy of it that
    computes."""
    tensor: str = ""
    """Where the number is; the last tensor by default."""


def _corrupting(model: str, options: CorruptingOptions, seed: int) -> InferenceEngine:
    spec = plugins.load("ale.engines", options.engine)
    chosen = {"cache_bytes": 1 << 26} if options.engine == "vllm" else {}
    sampler = spec.inference(model, spec.options(**chosen), seed)
    take = sampler.load

    def number(weights: Weights, version: int) -> None:
        name = options.tensor or list(weights)[-1]
        spoiled = np.array(weights[name])
        spoiled.flat[0] += 1
        take({**weights, name: spoiled}, version)

    def nothing(weights: Weights, version: int) -> None:
        sampler.version = version

    def untied(weights: Weights, version: int) -> None:
        if isinstance(sampler, ContinuousBatch):
            net = sampler.model.model
            before = torch.nn.Parameter(net.lm_head.weight.detach().clone())
            net.lm_head.weight = net.model.embed_tokens.weight
            take(weights, version)
            net.lm_head.weight = before
        else:
            views = sampler._views
            before = views["lm_head.weight"].clone()
            views["lm_head.weight"] = views["model.embed_tokens.weight"]
            take(weights, version)
            views["lm_head.weight"] = before

    if options.how == "packed":
        _pack_head(sampler)
    else:
        sampler.load = {"number": number, "nothing": nothing, "untied": untied}[options.how]
    return sampler  # type: ignore[no-any-return]


def _pack_head(sampler: Any) -> None:
    """Let a sampler compute with a copy of its head as it is now."""
    if isinstance(sampler, ContinuousBatch):
        sampler.model._head = copy.deepcopy(sampler.model._head)
        return
    (net,) = sampler._engine.collective_rpc(lambda worker: worker.model_runner.get_model())
    head = net.lm_head.weight.detach().clone()
    net.lm_head.cpu_linear = lambda x, weight, bias=None: torch.nn.functional.linear(x, head, bias)


def _spoiled_factor(model: str, options: hf.HFOptions, seed: int, optim: OptimOptions) -> TrainEngine:
    """Learn with an adapter of which another factor is merged than the one that trains."""
    train = hf.ENGINE.train(model, options, seed, optim)
    layer = [each for each in train.net.model.modules() if hasattr(each, "get_delta_weight")][-1]  # type: ignore[attr-defined]
    delta = layer.get_delta_weight

    def spoiled(name: str) -> torch.Tensor:
        factor = layer.lora_B[name].weight
        before = factor.detach().clone()
        factor[0, 0] += 1
        try:
            return delta(name)  # type: ignore[no-any-return]
        finally:
            factor.copy_(before)

    layer.get_delta_weight = spoiled
    return train


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
ODD = SamplerSpec("odd", "has the bug that ODD names", tiny.TinyOptions, _odd)
CORRUPTING = SamplerSpec("corrupting", "spoils weights", CorruptingOptions, _corrupting)
SPOILED_FACTOR = replace(hf.ENGINE, name="spoiled_factor", train=_spoiled_factor)
