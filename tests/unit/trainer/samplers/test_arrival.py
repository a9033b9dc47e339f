"""Weights that do not arrive stop a run with the tensor's name: over every engine that samples and trains, and LoRA."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from local_fleet import LocalFleet, config_of, local_run
from random_llama import random_llama
from transformers import AutoConfig, AutoModelForCausalLM

from trainer.config import TrainConfig
from trainer.errors import Halted
from trainer.processes.samplers import InferenceActor
from trainer.samplers.arrival import Arrived, check_agreement, check_arrival
from trainer.samplers.generate import TorchInference
from trainer.samplers.proof import named_tensors

ENGINES = ["tiny", "coder", "hf", "hf bfloat16", "hf lora", "hf tied"]
FAULTS = ["corrupted", "one element of another", "not taken", "not counted"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    untied = random_llama(tmp_path_factory.mktemp("untied"), context=512)
    tied = random_llama(tmp_path_factory.mktemp("tied"), context=512)
    about = AutoConfig.from_pretrained(tied, tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(about).save_pretrained(tied)
    return {"tiny": "tiny", "coder": "coder", "hf": untied, "hf tied": tied}


def of(engine: str, models: dict[str, str]) -> TrainConfig:
    options: dict[str, Any] = {"max_context": 512}
    if engine == "hf bfloat16":
        options["dtype"] = "bfloat16"
    if engine == "hf lora":
        pytest.importorskip("peft", reason="needs peft: pip install 'ale-rl[lora]'")
        options["lora_rank"] = 4
    model = models.get(engine, models["hf"])
    return TrainConfig.model_validate({**config_of(model=model).model_dump(), "engine_options": options})


def module_of(actor: InferenceActor) -> torch.nn.Module:
    """Return what an engine of ours samples with."""
    engine: Any = actor._engine
    return engine.net if hasattr(engine, "net") else engine.model.model


@torch.no_grad()
def spoil(actor: InferenceActor, fault: str) -> str:
    """Let every later `load` go wrong; return the tensor that is then another one, if one is."""
    engine: Any = actor._engine
    whole, names = engine.load, list(module_of(actor).state_dict())
    name = next(n for n in reversed(names) if named_tensors(module_of(actor))[n].ndim > 1 and "head" not in n)

    def load(weights: Any, version: int) -> None:
        given = {n: np.array(value) for n, value in weights.items()}
        if fault == "corrupted":
            given[name].flat[3] += 1
        if fault == "one element of another":
            given[name].flat[[0, -1]] = given[name].flat[[-1, 0]]
        if fault == "not taken":
            given = {
                n: value.detach().float().numpy().copy() for n, value in module_of(actor).named_parameters()
            }
        whole(given, 0 if fault == "not counted" else version)

    engine.load = load
    return name if fault in FAULTS[:2] else ""


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_arrive_and_each_fault_stops_the_run(engine, models):
    fleet = LocalFleet(of(engine, models))
    with torch.no_grad():
        for _, value in fleet._learner._engine.net.named_parameters():
            value.add_(0.01 * torch.arange(value.numel()).view(value.shape) % 1)
    fleet.serve_newest()
    fleet.publish(1)
    stated = fleet._engine.arrived()
    assert stated is not None
    assert stated.version == 1
    precision = "bfloat16" if engine == "hf bfloat16" else "float32"
    assert all(digest.startswith(precision + ":") for digest in stated.digests.values())
    assert set(fleet._learner.sent()) <= set(stated.digests)
    whole = fleet._engine._engine.load
    for fault in FAULTS:
        name = spoil(fleet._engine, fault)
        with torch.no_grad():
            for _, value in fleet._learner._engine.net.named_parameters():
                value.add_(0.125)
        with pytest.raises(Halted) as caught:
            fleet.publish(2)
        said = str(caught.value)
        if fault == "not counted":
            assert "published version 2, but sampler 1 of 1 says it has version 0" in said
        elif fault == "not taken":
            assert any(f"another tensor {each!r}" in said for each in fleet._learner.sent())
        else:
            assert f"another tensor {name!r}" in said
            assert stated.digests[name] != fleet._learner.sent()[name]
            assert f"expected {fleet._learner.sent()[name]}" in said
        assert "--resume" in said
        fleet._engine._engine.load = whole
        fleet.publish(2)


def test_a_stale_tied_head_is_named(models):
    fleet = LocalFleet(of("hf tied", models))
    fleet.publish(0)
    model: Any = module_of(fleet._engine)
    whole = fleet._engine._engine.load

    def load(weights: Any, version: int) -> None:
        before = model.lm_head.weight.detach().clone()
        whole(weights, version)
        model.lm_head.weight = torch.nn.Parameter(before)

    fleet._engine._engine.load = load
    assert "lm_head.weight" not in fleet._learner.weights()
    with torch.no_grad():
        fleet._learner._engine.net.model.model.embed_tokens.weight.add_(0.125)
    with pytest.raises(Halted, match=r"another tensor 'lm_head\.weight'.*expected one that the learner sent"):
        fleet.publish(1)


def adapted_layer(fleet: LocalFleet) -> tuple[str, Any]:
    net = fleet._learner._engine.net
    with torch.no_grad():
        for _, value in net.named_parameters():
            value.add_(1e-4)
    name = "model.layers.1.mlp.down_proj"
    return name, net.model.get_submodule(name)


@pytest.mark.parametrize("factor", ["lora_A", "lora_B"])
def test_a_factor_that_is_stale_or_missing_in_the_merged_weight_is_named(factor, models, monkeypatch):
    fleet = LocalFleet(of("hf lora", models))
    fleet.publish(0)
    name, layer = adapted_layer(fleet)
    fleet.publish(1)
    merge, whole = layer.get_delta_weight, getattr(layer, factor)["default"].weight
    for wrong in (torch.zeros_like(whole), whole.detach() * 1.1):

        def merged(adapter: str, wrong: torch.Tensor = wrong) -> torch.Tensor:
            right = whole.data
            whole.data = wrong
            try:
                return merge(adapter)
            finally:
                whole.data = right

        monkeypatch.setattr(layer, "get_delta_weight", merged)
        with pytest.raises(Halted, match=rf"'{name}\.weight' does not have its adapter in it"):
            fleet.publish(2)
    monkeypatch.undo()
    fleet.publish(2)


def test_a_sampler_without_one_layers_adapter_is_named(models):
    fleet = LocalFleet(of("hf lora", models))
    fleet.publish(0)
    name, layer = adapted_layer(fleet)
    whole = fleet._engine._engine.load
    bare = {f"{name}.weight": layer.base_layer.weight.detach().numpy().copy()}
    fleet._engine._engine.load = lambda weights, version: whole({**weights, **bare}, version)
    with pytest.raises(Halted, match=rf"another tensor '{name}\.weight'"):
        fleet.publish(1)


def test_an_adapter_of_what_is_never_merged_is_refused(models):
    config = of("hf lora", models)
    options = {**config.engine_options, "lora_targets": "embed_tokens"}
    fleet = LocalFleet(config.model_copy(update={"engine_options": options}))
    with pytest.raises(Halted, match=r"'model\.embed_tokens\.lora_embedding_A\.default' trains and is in no"):
        fleet.publish(0)


class Packed(TorchInference):
    """Samples with a head that it packed when it was built: its parameters arrive, and are not what it uses."""

    def sample(self, requests: Any) -> Any:
        head = self.net.head
        new = head.data
        head.data = self.packed
        try:
            return super().sample(requests)
        finally:
            head.data = new


def packing(config: TrainConfig, **rest: Any) -> LocalFleet:
    fleet = LocalFleet(config, **rest)
    engine: Any = fleet._engine._engine
    engine.packed = torch.randn(engine.net.head.shape, generator=torch.Generator().manual_seed(0))
    engine.__class__ = Packed
    return fleet


def learning(**changes: Any) -> TrainConfig:
    # With a KL term every token has a gradient, whatever its reward.
    warm = {"epochs": 3, "lr": 1e-2}
    return config_of(algo="grpo", algo_options={"kl_weight": 0.01}, steps=1, warmup=warm, **changes)


def test_a_packed_head_that_no_digest_shows_stops_the_run_in_its_first_batch(tmp_path):
    with pytest.raises(Halted) as caught:
        local_run(tmp_path / "packed", learning(), kind=packing)
    said = str(caught.value)
    assert "nats for one token, expected at most 0.001" in said
    assert "guard.mismatch" in said
    local_run(tmp_path / "off", learning(guard={"mismatch": 0}), kind=packing)
    local_run(tmp_path / "wide", learning(guard={"mismatch": 50}), kind=packing)


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_run_looks_at_its_first_batch_and_goes_on(staleness, tmp_path):
    fleet, _ = local_run(tmp_path, learning(rollout={"staleness": staleness}))
    assert fleet._learner._is_compared


def test_bounds_are_over_any_token_in_full_and_over_the_mean_in_half_precision():
    one = np.zeros(100)
    one[7] = -0.9
    check_agreement(one, half=True, bound=None)
    with pytest.raises(Halted, match=r"of 100 tokens.*got 0\.9 nats for one token"):
        check_agreement(one, half=False, bound=None)
    with pytest.raises(Halted, match=r"got 0\.06 nats on average, expected at most 0\.05"):
        check_agreement(np.full(9, 0.06), half=True, bound=None)
    check_agreement(np.full(9, 0.06), half=False, bound=0.06)
    check_agreement(np.full(9, 0.06), half=False, bound=0)
    check_agreement(np.zeros(0), half=False, bound=None)


@pytest.mark.parametrize("half", [True, False])
def test_what_is_no_number_does_not_agree(half):
    with pytest.raises(Halted, match="nan nats"):
        check_agreement(np.array([0.0, np.nan]), half=half, bound=None)


def test_a_sampler_that_states_nothing_is_passed_over_and_the_next_is_not():
    right, wrong = Arrived(3, {"a": "float32:1"}), Arrived(3, {"a": "float32:2"})
    check_arrival({"a": "float32:1"}, [None, right], 3)
    with pytest.raises(
        Halted, match=r"sampler 3 of 3 has another tensor 'a'.*got float32:2, expected float32:1"
    ) as caught:
        check_arrival({"a": "float32:1"}, [None, right, wrong], 3)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
