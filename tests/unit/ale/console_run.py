"""Runs and clients for the tests of the console."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
from starlette.testclient import TestClient

from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import Trajectory
from ale.console.app import application
from ale.console.catalog import Catalog
from ale.console.guard import Door
from ale.console.rock import Rock

KEPT = Path(__file__).parents[1] / "kept" / "every_field.traj"
HERE = "http://127.0.0.1:8399"


def plain() -> Trajectory:
    return next(iter(read_segment(KEPT)))


def write_run(folder: Path, steps: Mapping[int, Iterable[Trajectory]] = {}) -> Path:
    """Write a run of a line of metrics a step, and its rollouts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text('env = "frozen_lake"\nalgo = "ipa"\nseed = 3\nsteps = 9\n')
    write_metrics(folder, max(steps, default=0))
    for step, rollouts in steps.items():
        write_segment(segment_path(folder, "step", step), list(rollouts))
    return folder


def write_metrics(folder: Path, steps: int) -> None:
    lines = [
        {"step": step, "kind": "train", "success": step / 10, "reward": 0.5} for step in range(1, steps + 1)
    ]
    lines.append({"step": steps, "kind": "eval", "success": 0.4, "success_low": 0.3, "success_high": 0.5})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def named(*ids: str) -> list[Trajectory]:
    return [replace(plain(), id=each) for each in ids]


def client(*places: Path, token: str = "", host: str = "127.0.0.1", base: str = HERE) -> TestClient:
    door = Door(application(Catalog([str(each) for each in places])), host, token)
    return TestClient(door, base_url=base, raise_server_exceptions=True, follow_redirects=False)


def beside_rock(folder: Path, address: str) -> httpx.AsyncClient:
    """Return a client, for the test's own loop, of a console of the runs in a folder and of a ROCK server."""
    door = Door(application(Catalog([str(folder)]), Rock(address)), "127.0.0.1")
    return httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url=HERE)
