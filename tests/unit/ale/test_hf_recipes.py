"""Recipes for pretrained models: chosen by the model's size and by what it computes on, and loadable without warnings."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_llama import random_llama

from ale.config import resolve
from trainer.config import TrainConfig


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return random_llama(tmp_path_factory.mktemp("small") / "llama")


def chosen(model: str, *overrides: str, env: str = "frozen_lake", algo: str = "ipa") -> TrainConfig:
    made = resolve(options={"env": env, "model": model, "algo": algo}, overrides=overrides)
    assert made.notices == (), "a recipe does not warn of itself"
    return made.config


def test_a_small_model_on_a_processor_has_its_own_recipe(small: str) -> None:
    config = chosen(small, "engine_options.device=cpu")
    assert config.engine_options["lora_rank"] == 16
    assert config.sampling.max_tokens == 6
    assert config.algo_options["neg_weight"] == 0.5
    assert config.algo_options["baseline"] == "leave_one_out", (
        "what holds for all pretrained models lies below"
    )
    assert "neg_weight" not in chosen(small, "engine_options.device=cpu", algo="grpo").algo_options
    chains = chosen(small, "engine_options.device=cpu", env="fork_chain")
    assert (chains.env_args["length"], chains.sampling.max_tokens) == (4, 6), (
        "some of them it comes home from"
    )


@pytest.mark.parametrize(
    "others",
    [
        ["engine_options.device=cuda"],
        ["placement.pool=[{cpus=4,gpus=1,memory_gb=24}]", "placement.layout=colocated"],
    ],
)
def test_on_a_gpu_it_has_not(small: str, others: list[str]) -> None:
    assert chosen(small, *others).engine_options["lora_rank"] == 0


def test_neither_has_a_larger_one_nor_one_that_is_not_here() -> None:
    for model in ("Qwen/Qwen3-8B", "somebody/not-here"):
        assert chosen(model, "engine_options.device=cpu").engine_options["lora_rank"] == 0


def test_what_the_user_chose_is_not_contradicted(small: str, tmp_path: Path) -> None:
    on = "engine_options.device=cpu"
    assert chosen(small, on, "algo_options.baseline=none").algo_options["neg_weight"] == 0
    assert chosen(small, on, f"engine_options.adapter={tmp_path}").engine_options["lora_rank"] == 0
    agent = resolve(
        options={"env": "frozen_lake", "model": small}, overrides=[on, "agent.name=qwen-code"]
    ).config
    assert agent.engine_options["lora_rank"] == 0, "its prompts are long, and its answers no single word"


def test_a_model_of_another_kind_is_left_to_who_loads_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 2}'
    )
    assert chosen(str(tmp_path), "engine_options.device=cpu").engine_options["lora_rank"] == 0


def test_who_chooses_otherwise_is_heard(small: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[sampling]\nmax_tokens = 40\n")
    made = resolve(
        file=file,
        options={"env": "frozen_lake", "model": small},
        overrides=["engine_options.device=cpu", "engine_options.lora_rank=0"],
    )
    assert (made.config.sampling.max_tokens, made.config.engine_options["lora_rank"]) == (40, 0)
    chains = chosen(small, "engine_options.device=cpu", "engine_options.lora_rank=0", env="fork_chain")
    for config in (made.config, chains):
        assert (config.optim.lr, config.warmup.lr) == (1e-6, 1e-5), (
            "the rates of LoRA are not for all weights"
        )
