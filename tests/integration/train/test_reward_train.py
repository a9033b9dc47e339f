"""`ale train` with a rule and a judge, as a user runs it: Ray's actors, ROCK, an endpoint on a socket."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import judge_server as judge
import pytest
from command_line import ale, refused

from agent_runtime.store import read_segment, segment_path

RUN = """
env = "math"
algo = "step_reinforce"
steps = 2
algo_options = {{turn_rewards = true}}
env_args = {{style = "symbols", families = "arithmetic", max_level = 1}}
engine_options = {{layers = 1, width = 16, heads = 2, max_context = 64}}
rollout = {{groups_per_step = 6, group_size = 3, workers = 1, engines = 1}}
warmup = {{trajectories = 0}}
anchors = {{inject = 0}}
eval = {{tasks = 2, every = 0}}

[[reward.routes]]
worker = "judge"
match = {{symbols = "*+*"}}
turn_weight = 0.5
options = {{url = "{url}", model = "m", gives = "turns", key_env = "JUDGE_KEY"}}

[[reward.routes]]
worker = "rule"
options = {{check = "final_answer"}}
"""


def letters(action: str) -> float:
    return sum(map(ord, action)) % 5 / 4


def train(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ("train", "--config", "run.toml", "--run", str(folder / "run"), "--quiet")
    return ale(*words, cwd=folder, timeout_s=280, **environment)


@pytest.mark.timeout(300)
def test_a_judge_and_a_rule_reward_a_run(tmp_path: Path) -> None:
    with judge.judge_server() as server:
        server.then = judge.scores_turns(letters)
        (tmp_path / "run.toml").write_text(RUN.format(url=server.url))
        done = train(tmp_path, JUDGE_KEY="secret-7")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    assert all(record["tokens/trained"] > 0 for record in records)
    assert all(record["updates"] > 0 for record in records)
    asked = 0
    for step, record in enumerate(records, 1):
        rollouts = list(read_segment(segment_path(tmp_path / "run", "step", step)))
        assert record["reward/judged"] == len(rollouts) == 18
        for t in rollouts:
            assert t.reward_source is not None
            if t.reward_source.worker == "judge":
                assert t.turn_rewards == tuple(0.5 * letters(action) for action in t.actions)
        asked += len({t.reward_source.digest for t in rollouts if t.reward_source})
    answers = (tmp_path / "run" / "rewards" / "answers.jsonl").read_text()
    assert 0 < len(answers.splitlines()) <= asked
    assert server.keys[0] == "Bearer secret-7"
    written = [p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert not any(b"secret-7" in data for data in written)


@pytest.mark.timeout(300)
def test_a_judge_that_refuses_the_key_ends_the_run_in_one_line(tmp_path: Path) -> None:
    with judge.judge_server() as server:
        server.then = judge.status(401, b"who are you")
        (tmp_path / "run.toml").write_text(RUN.format(url=server.url))
        done = train(tmp_path)
    refused(done, 2, "status 401: 'who are you'", "JUDGE_KEY (not set)", "--resume")
