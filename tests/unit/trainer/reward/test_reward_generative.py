"""A generative reward model on an engine of ours: a Llama made here, with and without knowing how to answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_llama import random_llama
from reward_cases import config_of, reward, sample_of, solved
from transformers import AutoTokenizer, LlamaForCausalLM

from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.models.hf import ENGINE, HFOptions
from trainer.reward.generative import GenerativeOptions
from trainer.reward.prompt import PROMPT_VERSION, messages

VERDICT = '{"reason": "", "score": 1}'
CONTEXT = 4096
UPDATES = 200


def config(model: str, **options: Any) -> TrainConfig:
    chosen = {"model": model, "max_tokens": 40, **options}
    return config_of({"worker": "generative", "options": chosen}, attempts=2)


def teach(folder: str, trajectory: Trajectory) -> None:
    """Let the model learn one answer to one question by heart."""
    form = GenerativeOptions(model=folder)
    template = ENGINE.template(folder, HFOptions())
    prompt = template.open(messages(sample_of(trajectory), form))
    answer = template.encode_completion(VERDICT)
    tokens_BT = torch.from_numpy(np.concatenate([prompt, answer]).astype(np.int64))[None]
    labels_BT = tokens_BT.clone()
    labels_BT[:, : len(prompt)] = -100
    model = LlamaForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(UPDATES):
        loss = model(input_ids=tokens_BT, labels=labels_BT).loss
        if float(loss.detach()) < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1, "the test's own model did not learn its answer"
    model.save_pretrained(folder)


def test_a_local_engine_judges_by_its_own_message(tmp_path: Path) -> None:
    model = random_llama(tmp_path / "model", context=CONTEXT)
    teach(model, solved())
    too_long = replace(solved(), observations=("Right. " * CONTEXT,))
    found, metrics = reward(config(model), [solved(), too_long], tmp_path)
    assert found[0].failure is None, found[0].failure
    assert found[0].reward == 1.0
    source = found[0].reward_source
    assert source is not None
    assert (source.raw, source.worker, source.version) == (VERDICT, "generative", f"{PROMPT_VERSION}/{model}")
    prompt = AutoTokenizer.from_pretrained(model)
    assert source.completion_tokens == len(prompt.encode(VERDICT, add_special_tokens=False)) + 1
    failure = found[1].failure
    assert failure is not None
    assert failure.code == "reward_unanswered"
    assert f"at most {CONTEXT - 1}" in failure.message
    assert (metrics["reward/retries"], metrics["reward/failed"]) == (0, 1)


@pytest.mark.parametrize(("temperature", "retries"), [(0.0, 0), (1.0, 1)])
def test_babble_is_a_failure_and_asked_again_only_where_chance_may_help(
    tmp_path: Path, temperature: float, retries: int
) -> None:
    model = random_llama(tmp_path / "model", context=CONTEXT)
    (found,), metrics = reward(config(model, temperature=temperature), [solved()], tmp_path)
    assert found.failure is not None
    assert found.failure.code == "reward_unreadable"
    assert (metrics["reward/retries"], metrics["reward/failed"]) == (retries, 1)
