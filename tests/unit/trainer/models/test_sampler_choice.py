"""A sampler that does not fit the learner of a run is refused when the settings are read."""

from __future__ import annotations

import pytest

from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.models.chosen import sampler_of


def config(**settings: object) -> TrainConfig:
    return TrainConfig.model_validate({"env": "frozen_lake", "sampler": "vllm", **settings})


def test_of_another_engines_models() -> None:
    with pytest.raises(
        ConfigError, match=r"'vllm' cannot sample from what the engine 'tiny' trains.*expected one of hf"
    ):
        sampler_of(config(model="tiny"))


def test_with_a_shorter_context_than_the_learner() -> None:
    model = {"model": "owner/name", "engine_options": {"max_context": 1024}}
    with pytest.raises(
        ConfigError, match=r"takes contexts of 512 tokens.*Set sampler_options\.max_context=1024"
    ):
        sampler_of(config(**model, sampler_options={"max_context": 512}))
    assert sampler_of(config(**model, sampler_options={"max_context": 1024}))[0].name == "vllm"
    assert sampler_of(config(**model))[0].name == "vllm"
