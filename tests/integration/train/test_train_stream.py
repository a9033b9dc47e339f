"""`rollout.mode=stream` with real processes: what is learned stays within the lag, and nothing is lost or learned twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from own_agent import own_agent_yaml, shelf_with_own_agent
from own_rule import write_rule
from test_train import (
    ONE_EACH,
    SMALL,
    assert_same_weights,
    by_turn,
    environment,
    kill_and_resume,
    train,
    train_command,
    train_records,
)
from typer.testing import CliRunner

from agent_runtime.store import read_segment, segment_path, write_segment
from ale.cli import app
from ale.replay.retraining import retrain
from trainer.errors import RunFolderError
from trainer.scheduler.journal import JOURNAL, audit, entries, learned_batches

EAGER = ["-s", "rollout.batching=eager"]
STREAM = [*EAGER, "-s", "rollout.mode=stream", "-s", "rollout.staleness=2"]
ANCHORED = [
    *("-s", "anchors.scheduler=parallel", "-s", "anchors.inject=2", "-s", "anchors.inject_gate=none"),
    *("-s", "anchors.inject_until=1.0", "-s", "eval.every=2", "-s", "checkpoint.keep=9"),
]
STEPS, BATCH = 6, 6 * 4


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream that was killed after its second step and went on."""
    run = tmp_path_factory.mktemp("stream") / "run"
    words = ["--algo", "ipa", "--steps", str(STEPS), "--seed", "5", *SMALL, *ANCHORED, *STREAM]
    kill_and_resume(run, *words, after=2)
    return run


@pytest.mark.timeout(600)
def test_a_killed_stream_loses_nothing_and_learns_nothing_twice(killed: Path) -> None:
    found = audit(entries(killed / JOURNAL))
    assert (found.lost, found.twice, found.open) == ([], [], [])
    assert found.consumed == STEPS * BATCH
    assert [record["step"] for record in train_records(killed)] == [*range(1, STEPS + 1)]
    assert not any((killed / "waiting").rglob("*.rollouts"))


@pytest.mark.timeout(600)
def test_a_stream_learns_no_token_beyond_its_lag(killed: Path) -> None:
    lags = [record["lag/max"] for record in train_records(killed) if "lag/max" in record]
    assert 0 < max(lags) <= 2
    learned = {
        step: [t.id for t in read_segment(segment_path(killed, "step", step))] for step in range(1, STEPS + 1)
    }
    assert learned == {step: batch.rollouts for step, batch in learned_batches(killed).items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_each_step_of_a_stream_comes_out_to_the_byte(killed: Path, step: int) -> None:
    found = retrain(killed, step)
    assert found.equal
    assert found.metrics["updates"] > 0
    assert found.tensors_compared


@pytest.mark.timeout(600)
def test_a_stream_is_not_computed_again_from_other_rollouts(killed: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(killed, tmp_path / "copy"))
    path = segment_path(copy, "step", 3)
    write_segment(path, [*read_segment(path)][::-1])
    with pytest.raises(RunFolderError, match="tells of other rollouts than the records of step 3"):
        retrain(copy, 3)


@pytest.mark.timeout(600)
def test_a_step_of_a_stream_is_computed_again_from_its_pack(killed: Path, tmp_path: Path) -> None:
    pack, there = tmp_path / "step.tar.gz", tmp_path / "there"
    for words in (
        ["pack", str(killed), "--step", "4", "--out", str(pack)],
        ["unpack", str(pack), "--out", str(there)],
    ):
        done = CliRunner().invoke(app, ["replay", *words])
        assert done.exit_code == 0, done.output
    assert retrain(there, 4).equal
    (there / JOURNAL).unlink()
    with pytest.raises(RunFolderError, match="tells of other rollouts than the records of step 4"):
        retrain(there, 4)


@pytest.mark.timeout(600)
def test_a_stream_goes_on_where_its_only_sampler_is_killed(tmp_path: Path) -> None:
    run, heard = tmp_path / "run", tmp_path / "heard"
    notified = ["--notify", f"sh -c 'cat >> {heard}; echo >> {heard}'"]
    words = train_command(run, "--steps", "12", *SMALL, *ONE_EACH, *STREAM, *notified)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    ) as process:
        while not (run / "checkpoints" / "step-000002").exists() and process.poll() is None:
            time.sleep(0.02)
        (sampler,) = (
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if any("WatchedActor" in word for word in child.cmdline())
        )
        sampler.kill()
        said, _ = process.communicate(timeout=400)
    assert process.returncode == 0, said
    last = train_records(run)[-1]
    assert (last["step"], last["samplers/lost"], last["samplers/back"], last["samplers/up"]) == (12, 1, 1, 1)
    found = audit(entries(run / JOURNAL))
    assert (found.lost, found.twice, found.open) == ([], [], [])
    kinds = [json.loads(line)["kind"] for line in heard.read_text().splitlines()]
    assert kinds == ["fault", "recovery", "end"]


@pytest.mark.turn(1)
@pytest.mark.timeout(600)
def test_a_stream_without_lag_is_synchronous(tmp_path: Path) -> None:
    words = ["--algo", "ipa", "--steps", "2", *SMALL, *ONE_EACH, *EAGER, "-s", "rollout.concurrency=1"]
    for name, mode in (("stream", "stream"), ("sync", "sync")):
        done = train(tmp_path / name, *words, "-s", f"rollout.mode={mode}")
        assert done.returncode == 0, done.stderr
    assert_same_weights(tmp_path / "stream", tmp_path / "sync")


MIXED = ["--env", "frozen_lake:0.5,fork_chain:0.5", "-s", "sampling.max_tokens=3"]
PATHS: dict[str, list[str]] = {
    "mixture": ["--algo", "ipa", *MIXED],
    "critic": ["--algo", "ppo"],
    "reference": [
        "--algo",
        "grpo",
        "-s",
        "algo_options.kl_reference=frozen",
        "-s",
        "algo_options.kl_weight=0.1",
    ],
    "reuse": ["--algo", "ipa", "-s", "reuse.trajectories=2", "-s", "reuse.max_lag=4"],
    "agent": [
        *(
            "--env",
            "swe",
            "--algo",
            "ipa",
            "--model",
            "tiny",
            "--agent",
            "own.yaml",
            "--env-arg",
            "source=handmade",
        ),
        *("-s", "engine_options.layers=1", "-s", "engine_options.width=16", "-s", "engine_options.heads=2"),
        *(
            "-s",
            "engine_options.max_context=4096",
            "-s",
            "sampling.max_tokens=6",
            "-s",
            "warmup.trajectories=0",
        ),
        *("-s", "rollout.group_size=2", "-s", "rollout.groups_per_step=2", "-s", "anchors.inject=0"),
        *("-s", 'reward.routes=[{worker="rule",options={check="told_apart:unlike"}}]', "-s", "eval.tasks=1"),
    ],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", by_turn(*PATHS))
def test_a_stream_takes_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    (tmp_path / "own.yaml").write_text(own_agent_yaml("insist"))
    write_rule(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALE_AGENTS", str(shelf_with_own_agent(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    done = train(tmp_path / "run", "--steps", "3", *SMALL, *ONE_EACH, *STREAM, *PATHS[path])
    assert done.returncode == 0, done.stderr
    found, rows = audit(entries(tmp_path / "run" / JOURNAL)), train_records(tmp_path / "run")
    assert (found.lost, found.twice) == ([], [])
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert sum(row["updates"] for row in rows) > 0
    assert max(row.get("lag/max", 0) for row in rows) <= (4 if path == "reuse" else 2)
    for row in rows:
        fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
        assert sum(value for name, value in row.items() if name.startswith(fates)) == row["tokens/total"]
