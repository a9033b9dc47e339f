"""The long-horizon agent through the whole path with real processes: contexts are compacted, and the policy learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flat_branches import token_arrays
from ray_cluster import JOINING
from safetensors.numpy import load_file

from agent_runtime.graph import validate
from agent_runtime.store import read_segment
from agent_runtime.types import TurnLabel

CONTEXT = 768
SETTINGS = {
    "agent.kind": "long_horizon",
    "agent.window_turns": 0,
    "agent.max_turns": 24,
    "agent.compact_at": 0.12,
    "agent.summary_tokens": 6,
    "agent.memory_chars": 100,
    "env_args.max_turns": 12,
    "engine_options.max_context": CONTEXT,
    "engine_options.layers": 1,
    "engine_options.width": 16,
    "engine_options.heads": 2,
    "rollout.groups_per_step": 4,
    "rollout.group_size": 4,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "warmup.trajectories": 4,
    "warmup.epochs": 1,
    "anchors.inject": 2,
    "anchors.inject_until": 1.0,
    "eval.tasks": 2,
    "eval.every": 0,
    "checkpoint.every": 1,
}


@pytest.mark.timeout(300)
def test_two_steps_of_training_with_compaction_learn_and_lose_no_token(tmp_path: Path, cluster: str) -> None:
    run = tmp_path / "run"
    settings = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={json.dumps(value)}")]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ale", "train", "--env", "frozen_lake", "--algo", "ipa", "--steps", "2"),
            *("--run", str(run), "--quiet", "--ray-address", cluster, *settings),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **JOINING},
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    rollouts = [t for path in (run / "trajectories").glob("step-*.rollouts") for t in read_segment(path)]
    assert len(rollouts) == 2 * 16
    sampled = 0
    for trajectory in rollouts:
        validate(trajectory)
        rows = [token_arrays(branch) for branch in trajectory.branches()]
        assert max(len(ids) for ids, _, _ in rows) <= CONTEXT
        assert sum(int(trains.sum()) for _, trains, _ in rows) == trajectory.sampled_tokens
        assert len(rows) == 1 + sum(turn.parent is None and turn.index > 0 for turn in trajectory.turns)
        sampled += trajectory.sampled_tokens
    compacted = [t for t in rollouts if TurnLabel.SUMMARY in t.turn_labels]
    assert len(compacted) > 16

    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
    for record in steps:
        assert record["turns/summary"] > 0
        assert record["updates"] > 0
        assert (
            sum(value for name, value in record.items() if name.startswith(fates)) == record["tokens/total"]
        )
    own = sum(record["tokens/total"] - record["tokens/experts"] for record in steps)
    assert own == sampled == json.loads((run / "summary.json").read_text())["tokens"]

    weights = {
        p.parent.name: load_file(p) for p in sorted((run / "checkpoints").glob("step-*/*.safetensors"))
    }
    assert list(weights) == ["step-000000", "step-000001", "step-000002"]
    _, before, after = weights.values()
    assert any((before[name] != after[name]).any() for name in before if name.startswith("model."))

    replayed = subprocess.run(
        [sys.executable, "-m", "ale", "replay", "run", str(run), "--all"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "ale", "replay", "show", str(run), compacted[0].id],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ", summary" in shown.stdout
