"""Kill samplers of a stream, and compute its answers again with the versions that they tell: `benchmarks.kills`.

`rollout.mode=stream` with lag 2 on a Ray cluster of two raylets that share nothing: a sampler and a worker on each, a
random Llama on `frozen_lake`. Every 20 s the sampler that is older is killed, so that both are in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from integration.ray_cluster import JOINING, ray_cluster
from random_llama import random_llama
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agent_runtime.store import read_segment, segment_path
from benchmarks.real_kills import ACTORS, over_lag, processes
from benchmarks.runs import settings_words, train_rows
from benchmarks.scaffold import say
from trainer.scheduler.journal import JOURNAL, audit, entries

LAG, CONTEXT = 2, 1024
NEAR = 1e-3
"""Farthest that a log-probability computed again may be from the record of the version that sampled it, in nats."""
SETTINGS: dict[str, object] = {
    "rollout.mode": "stream",
    "rollout.staleness": LAG,
    "rollout.batching": "eager",
    "rollout.workers": 2,
    "rollout.engines": 2,
    "rollout.groups_per_step": 24,
    "rollout.group_size": 8,
    "placement.pool": "[{cpus=1},{cpus=2},{cpus=2}]",
    "placement.layout": "disaggregated",
    "sampling.max_tokens": 24,
    "warmup.trajectories": 4,
    "warmup.epochs": 1,
    "optim.lr": 3e-3,
    "anchors.inject": 4,
    "anchors.inject_gate": "none",
    "guard.legal_fall": 0,
    "guard.text_rise": 0,
    "eval.tasks": 2,
    "eval.every": 0,
    "checkpoint.every": 1,
    "checkpoint.keep": 99,
}
"""Weights of each version are kept, to compute with them afterwards; `lr` is such that they differ. Experts are imitated in
each step, because a random model has no successes."""


def train_killed(run: Path, address: str, model: str, steps: int, every_s: float) -> int:
    """Train while samplers are killed; return how many were. Raise `RuntimeError` where the run does not end well."""
    words = ["--env", "frozen_lake", "--algo", "ipa", "--seed", "4", "--steps", str(steps), "--quiet"]
    words += ["--model", model, "--run", str(run), "--ray-address", address, *settings_words(SETTINGS)]
    kills = 0
    with (run.parent / "output").open("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ale", "train", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **JOINING},
        )
        while not (run / "checkpoints" / "step-000000").exists() and process.poll() is None:
            time.sleep(0.2)
        due = time.monotonic() + every_s
        while process.poll() is None:
            time.sleep(0.2)
            up = processes(*ACTORS["sampler"])
            if time.monotonic() >= due and len(up) == 2:
                up[0].kill()
                kills += 1
                due += every_s
                say(f"kill {kills}, {len(train_rows(run))} steps are learned")
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"the run exited with {process.returncode}:\n{output.read()}")
    return kills


def given_by(
    nets: dict[int, torch.nn.Module], ids: list[int], answers: int
) -> dict[int, np.ndarray[Any, Any]]:
    """Return by version the log-probabilities of the last `answers` tokens."""
    tokens = torch.tensor([ids])
    found = {}
    for version, net in nets.items():
        with torch.no_grad():
            logits = net(tokens).logits[0, -answers - 1 : -1].double()
        found[version] = torch.log_softmax(logits, -1).gather(1, tokens[0, -answers:, None])[:, 0].numpy()
    return found


def versions_again(run: Path, model: str, steps: int, a_step: int) -> dict[str, int]:
    """Compute the answers of so many rollouts of each step again, those of several versions first; return what was seen."""
    nets: dict[int, torch.nn.Module] = {}
    folder = run / "checkpoints" / f"step-{steps:06d}"
    for path in sorted(folder.parent.glob("*/version-*.safetensors")):
        version = int(path.stem.removeprefix("version-"))
        if version not in nets:
            net = nets[version] = AutoModelForCausalLM.from_pretrained(model).eval()
            net.load_state_dict(load_file(path), strict=False)
    seen = {"turns": 0, "several_versions": 0, "told_apart": 0, "wrong_versions": 0}
    for step in range(1, steps + 1):
        rollouts = read_segment(segment_path(run, "step", step))
        branches = (branch for rollout in rollouts for branch in rollout.branches())
        mixed_first = sorted(branches, key=lambda branch: -max(len(turn.spans) for turn in branch.turns))
        for branch in mixed_first[:a_step]:
            ids: list[int] = []
            for turn in branch.turns:
                ids += [*turn.context_ids.tolist(), *turn.completion_ids.tolist()]
                found = given_by(nets, ids, len(turn.completion_ids))
                told = np.array([found[version][at] for at, version in enumerate(turn.versions)])
                fits = {
                    version for version, given in found.items() if np.abs(given - turn.logprobs).max() <= NEAR
                }
                seen["turns"] += 1
                seen["several_versions"] += len(turn.spans) > 1
                seen["told_apart"] += fits <= set(turn.versions.tolist())
                seen["wrong_versions"] += bool(np.abs(told - turn.logprobs).max() > NEAR)
    return seen


def account(run: Path, model: str, steps: int) -> dict[str, Any]:
    """Return what became of the rollouts of a run that ended."""
    rows, found = train_rows(run), audit(entries(run / JOURNAL))
    rollouts = [
        each for step in range(1, steps + 1) for each in read_segment(segment_path(run, "step", step))
    ]
    return {
        "steps": len(rows),
        "samplers_lost": rows[-1]["samplers/lost"],
        "samplers_back": rows[-1]["samplers/back"],
        "rollouts": len(rollouts),
        "failed": sum(each.failure is not None for each in rollouts),
        "lost": len(found.lost),
        "twice": len(found.twice),
        "over_lag": over_lag(rows, LAG),
        **versions_again(run, model, steps, a_step=12),
    }


def versions(*, quick: bool, steps: int, every_s: float) -> dict[str, Any]:
    """Return what became of a stream whose samplers were killed."""
    steps, every_s = (1, 10.0) if quick else (steps, every_s)
    with tempfile.TemporaryDirectory(prefix="ale-kills-") as name:
        folder = Path(name)
        model = random_llama(folder / "model", context=CONTEXT)
        with ray_cluster(folder, raylets=2) as address:
            kills = train_killed(folder / "run", address, model, steps, every_s)
        found = account(folder / "run", model, steps)
    return {**found, "kills": {"sampler": kills}, "differ": int(found["steps"] != steps)}
