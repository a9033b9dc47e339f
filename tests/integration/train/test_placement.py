"""Runs on a pool of bundles: the bits of a run without one; what the cluster has not is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ale
from random_llama import random_llama
from ray_cluster import JOINING, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900), pytest.mark.turn(0)]

SETTINGS = {
    "rollout.engines": 1,
    "rollout.workers": 1,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 4,
    "warmup.trajectories": 4,
    "warmup.epochs": 2,
    "warmup.lr": 3e-3,
    "optim.lr": 1e-3,
    "guard.legal_fall": 0,
    "guard.text_rise": 0,
    "eval.tasks": 2,
    "eval.every": 0,
    "algo_options.kl_weight": 0.1,
    "algo_options.kl_reference": "frozen",
}
ON_TWO = {
    "placement.pool": "[{cpus=2},{cpus=2}]",
    "placement.layout": "colocated",
    "placement.reference": "[1]",
    "placement.environments": "[1]",
}


def trained(model: str, run: Path, settings: dict[str, str], address: str = "") -> str:
    """Train two steps; return the digest of the weights."""
    words = [word for name, value in (SETTINGS | settings).items() for word in ("-s", f"{name}={value}")]
    about = ["--env", "frozen_lake", "--env-arg", "size=2", "--algo", "reinforce", "--steps", "2"]
    joined = ["--ray-address", address] if address else []
    words += ["--model", model, "--run", str(run), "--quiet", *joined]
    done = ale("train", *about, *words, cwd=run.parent, timeout_s=400, **(JOINING if address else {}))
    assert done.returncode == 0, done.stdout + done.stderr
    return str(json.loads((run / "summary.json").read_text())["model_digest"])


def test_a_run_on_two_bundles_ends_with_the_bits_of_one_without(tmp_path: Path) -> None:
    """Its sampler sleeps while the learner learns, and the reference is a process of its own."""
    model = random_llama(tmp_path / "model", context=512)
    whole = {"engine_options.lora_rank": "0"}
    free = trained(model, tmp_path / "free", whole)
    placed = trained(model, tmp_path / "placed", ON_TWO | whole)
    assert placed == free
    records = [json.loads(line) for line in (tmp_path / "placed" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train" and record["updates"]] == [1, 2]


def test_weights_go_from_one_raylet_to_another(tmp_path: Path) -> None:
    """Learner and sampler have an object store each; every publish is proved by digests."""
    there = tmp_path / "there"
    there.mkdir()
    apart = {"placement.pool": "[{cpus=1},{cpus=2}]", "placement.layout": "disaggregated"}
    apart["placement.strategy"] = "STRICT_SPREAD"
    free = trained("tiny", tmp_path / "free", {})
    with ray_cluster(there, raylets=2) as address:
        placed = trained("tiny", tmp_path / "placed", apart, address)
    assert placed == free


def test_a_bundle_that_no_machine_has_is_refused_before_anything_starts(cluster: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["-s", "placement.pool=[{cpus=64,gpus=3}]", "--run", str(run), "--ray-address", cluster]
    done = ale("train", "--env", "frozen_lake", *words, cwd=tmp_path, **JOINING)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert (
        "bundle 0 of placement.pool is larger than every machine: wanted 64 CPUs and 3 GPUs, found 5 CPUs"
        in said
    )
    assert not run.exists()
