"""Runs whose sampler has other weights than its learner stop, each with a name, before or in their first step."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from random_llama import random_llama

from agent_runtime.store import segment_path

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.turn(2)]

SMALL = {
    "warmup.trajectories": 4,
    "warmup.epochs": 4,
    "warmup.lr": 1e-2,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 4,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "eval.tasks": 2,
    "eval.every": 0,
    # With a KL term every token has a gradient, whatever its reward.
    "algo_options.kl_weight": 0.01,
}


def halted(site: Path, run: Path, model: str, sampler: str, **settings: object) -> str:
    """Let a run begin that must halt; return what it said."""
    chosen = {**SMALL, "sampler": f"'{sampler}'", **settings}
    words = [word for name, value in chosen.items() for word in ("-s", f"{name}={value}")]
    command = ["train", "--env", "frozen_lake", "--algo", "grpo", "--model", model, "--steps", "1"]
    variables = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(site), *sys.path]),
        "COLUMNS": "2000",
    }
    done = subprocess.run(
        [sys.executable, "-m", "ale", *command, "--run", str(run), "--quiet", *words],
        cwd=run.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
        timeout=500,
    )
    assert done.returncode == 75, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_version_without_its_weights_is_found_before_anything_is_sampled(
    site: Path, tmp_path: Path
) -> None:
    said = halted(site, tmp_path / "run", "tiny", "stale")
    assert "the weights of version 0 did not arrive: sampler 1 of 1 has another tensor" in said
    assert "got float32:" in said
    assert not segment_path(tmp_path / "run", "step", 1).exists()


@pytest.mark.parametrize(
    ("bug", "told"),
    [
        (
            "lists",
            "returned what no run can learn from: expected ids as a NumPy array of int32 with one axis, got list of",
        ),
        (
            "version",
            "does not show which weights it samples with: expected completions of policy_version 1, which it loaded",
        ),
        ("raises", "failed to sample: KeyError: 'a key that is not there'. Its traceback is in the log"),
    ],
)
def test_a_samplers_own_bug_is_told_in_one_line_by_its_name(
    bug: str, told: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", bug)
    said = halted(site, tmp_path / "run", "tiny", "odd")
    (line,) = (line for line in said.splitlines() if line.startswith("ale: "))
    assert f"the sampler 'odd' (planted.Odd) {told}" in line


@pytest.mark.parametrize("engine", ["coder", "hf"])
def test_one_number_of_one_tensor_is_found(engine: str, site: Path, tmp_path: Path) -> None:
    model = random_llama(tmp_path / "llama", context=1024) if engine == "hf" else engine
    chosen: dict[str, object] = {"sampler_options.engine": f"'{engine}'"}
    if engine == "hf":
        chosen["engine_options.lora_rank"] = 0
    said = halted(site, tmp_path / "run", model, "corrupting", **chosen)
    last = {"coder": "blocks.2.down_bias", "hf": "lm_head.weight"}[engine]
    assert f"sampler 1 of 1 has another tensor '{last}' than the learner" in said


KEY = "model.layers.0.self_attn.k_proj.weight"
HERE = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not here: scripts/vllm_cpu.sh makes an environment with it",
)
PRETRAINED = pytest.mark.parametrize("engine", ["hf", pytest.param("vllm", marks=HERE)])


def spoiled(engine: str, how: str, site: Path, folder: Path, **settings: object) -> str:
    """Let a tied model be sampled by an engine to whose weights something is done; return what the run said."""
    model = random_llama(folder / "llama", context=1024, head=32, tied=True)
    options = {"sampler_options.engine": f"'{engine}'", "sampler_options.how": f"'{how}'"}
    chosen: dict[str, object] = {"engine_options.lora_rank": 0, **options, **settings}
    return halted(site, folder / "run", model, "corrupting", **chosen)


@PRETRAINED
def test_one_number_of_an_adapted_layer_is_found(engine: str, site: Path, tmp_path: Path) -> None:
    chosen = {"sampler_options.tensor": f"'{KEY}'", "engine_options.lora_rank": 4}
    said = spoiled(engine, "number", site, tmp_path, **chosen)
    assert f"sampler 1 of 1 has another tensor '{KEY}' than the learner" in said


@PRETRAINED
def test_a_version_without_its_weights_is_found(engine: str, site: Path, tmp_path: Path) -> None:
    said = spoiled(engine, "nothing", site, tmp_path)
    assert "the weights of version 0 did not arrive: sampler 1 of 1 has another tensor 'model." in said


@PRETRAINED
def test_a_tied_head_that_is_not_tied_any_more_is_found(engine: str, site: Path, tmp_path: Path) -> None:
    said = spoiled(engine, "untied", site, tmp_path)
    assert "sampler 1 of 1 has another tensor 'lm_head.weight' than the learner" in said


@PRETRAINED
def test_a_copy_of_a_tied_head_that_computes_is_found(engine: str, site: Path, tmp_path: Path) -> None:
    said = spoiled(engine, "packed", site, tmp_path)
    assert "the sampler does not compute what the learner does with the same weights" in said
    assert segment_path(tmp_path / "run", "step", 1).exists()


def test_a_factor_that_is_merged_otherwise_than_it_trains_is_found(site: Path, tmp_path: Path) -> None:
    model = random_llama(tmp_path / "llama", context=1024)
    chosen = {"learner": "spoiled_factor", "engine_options.lora_rank": 4}
    said = halted(site, tmp_path / "run", model, "hf", **chosen)
    assert "the merged weight 'model.layers.1.mlp.down_proj.weight' does not have its adapter in it" in said


def test_a_packed_head_is_found_in_the_first_batch(site: Path, tmp_path: Path) -> None:
    said = halted(site, tmp_path / "run", "tiny", "packed")
    assert "the sampler does not compute what the learner does with the same weights" in said
    assert "nats for one token, expected at most 0.001" in said
    assert segment_path(tmp_path / "run", "step", 1).exists()
