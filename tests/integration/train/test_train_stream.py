"""`rollout.mode=stream` with real processes: what is learned stays within the lag, and nothing is lost or learned twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from test_train import (
    ONE_EACH,
    SMALL,
    assert_same_weights,
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
