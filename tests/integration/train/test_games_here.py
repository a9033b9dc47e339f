"""A run whose games are played in its workers: the records and the model of a run with a server, and no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.store import read_segment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400), pytest.mark.turn(1)]

SETTINGS = {
    "eval.every": 0,
    "eval.tasks": 8,
    "warmup.trajectories": 8,
    "warmup.epochs": 2,
    "rollout.groups_per_step": 4,
}


def trained(folder: Path, env: str, games: str) -> list[dict[str, float]]:
    words = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={value}")]
    command = [
        sys.executable,
        "-m",
        "ale",
        "train",
        "--env",
        env,
        "--algo",
        "ipa",
        "--steps",
        "2",
        "--seed",
        "3",
    ]
    command += ["--run", str(folder), "--quiet", *words, "-s", f"rollout.games={games}"]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=300)
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == "train"]


def played(folder: Path) -> list[tuple[object, ...]]:
    """Return what happened in each rollout of a run; times differ."""
    return [
        (t.id, t.env, t.reward, t.failure, t.actions, t.observations, t.observation_hashes, t.turn_rewards)
        for segment in sorted((folder / "trajectories").glob("*.rollouts"))
        for t in read_segment(segment)
    ]


@pytest.mark.parametrize("env", ["frozen_lake", "sokoban"])
def test_it_is_the_served_run_without_its_server(env: str, tmp_path: Path) -> None:
    runs = {games: trained(tmp_path / games, env, games) for games in ("auto", "served")}
    assert not any("time/sandboxes" in row for row in runs["auto"])
    assert all("time/sandboxes" in row for row in runs["served"])
    here, served = played(tmp_path / "auto"), played(tmp_path / "served")
    assert here == served
    assert len(here) > 32
    models = [(tmp_path / games / "model" / "model.safetensors").read_bytes() for games in runs]
    assert models[0] == models[1]
