"""What a real run's processes take is what `ale train --dry-run` said: within 15 %, libraries included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from random_llama import random_llama
from transformers import LlamaConfig, LlamaForCausalLM

SETTINGS = {
    "warmup.trajectories": 1,
    "warmup.epochs": 3,  # moments exist from the second update on, and malloc has the layers of the first for them
    "rollout.groups_per_step": 1,
    "rollout.group_size": 2,
    "rollout.workers": 1,
    "eval.tasks": 1,
    "eval.every": 0,
    "eval.apart": "[]",
    "sampling.max_tokens": 32,
    "guard.tasks": 2,
    "engine_options.device": "cpu",
    "engine_options.remembered_bytes": 0,
    "optim.microbatch_tokens": 912,  # an expert's row has 907 bytes: a part is as long as the estimate takes it to be
}


def model(folder: Path) -> str:
    """Write a random Llama of 7 million parameters that reads bytes."""
    path = random_llama(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = LlamaConfig(
            vocab_size=8192,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            eos_token_id=257,
            bos_token_id=None,
        )
        LlamaForCausalLM(shape).save_pretrained(path)
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_take_what_was_estimated(tmp_path: Path) -> None:
    words = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={value}")]
    command = [
        "train",
        "--env",
        "code",
        "--model",
        model(tmp_path / "model"),
        "--algo",
        "grpo",
        "--steps",
        "1",
    ]
    subprocess.run(
        [sys.executable, "-m", "ale", *command, "--run", str(tmp_path / "run"), "--quiet", *words], check=True
    )
    memory = json.loads((tmp_path / "run" / "summary.json").read_text())["memory"]
    found = {role: memory[role]["taken"] / memory[role]["estimated"] for role in ("learner", "sampler")}
    assert all(0.85 < ratio < 1.15 for ratio in found.values()), (found, memory)
