"""Any process of a run may die: one clear line, an exit code, checkpoints intact, and `--resume` goes on."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import below, command_line

from trainer.config import OptimOptions
from trainer.models.tiny.engine import ENGINE, TinyOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(500)]

SMALL = [
    *("-s", "warmup.trajectories=4", "-s", "warmup.epochs=1", "-s", "eval.tasks=4", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=2", "-s", "rollout.group_size=2", "-s", "checkpoint.every=1"),
    *("-s", "rollout.workers=1", "-s", "rollout.engines=1", "-s", "rollout.games=served"),
]
SERVER = r"\S+ -P -m rock_env\.server "
STEPS = 15  # about 0.3 s each: enough for the kill to come before the end


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ale", "train", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def train(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=200,
    )


def kill_child(pid: int, pattern: str) -> None:
    """Kill the one descendant whose command line matches."""
    (found,) = [child for child in below(psutil.Process(pid)) if re.match(pattern, command_line(child))]
    found.send_signal(signal.SIGKILL)


def run_and_kill(run: Path, pattern: str, *more: str) -> str:
    """Train, kill a process after two steps, and return the line that the run ended with."""
    words = ["--env", "frozen_lake", "--steps", str(STEPS), "--run", str(run), *SMALL, *more]
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as training:
        assert training.stderr is not None
        assert training.stdout is not None
        for line in training.stderr:
            if line.startswith("step 2/"):
                break
        kill_child(training.pid, pattern)
        said = [line for line in training.stderr if not line.startswith("step ")]
        assert training.stdout.read() == ""
        assert training.wait(timeout=60) == 75, said
    (line,) = said
    return line


def test_a_server_that_dies_in_mid_step_is_started_again(tmp_path: Path) -> None:
    """The model is that of an undisturbed run."""
    digests = []
    for name in ("calm", "disturbed"):
        run = tmp_path / name
        words = ["--env", "frozen_lake", "--steps", str(STEPS), "--run", str(run), *SMALL]
        with subprocess.Popen(
            command(*words), stderr=subprocess.PIPE, text=True, env=environment()
        ) as training:
            assert training.stderr is not None
            said = []
            for line in training.stderr:
                said.append(line)
                if name == "disturbed" and line.startswith("step 2/"):
                    kill_child(training.pid, SERVER)
        assert training.returncode == 0, "".join(said)
        digests.append(json.loads((run / "summary.json").read_text())["model_digest"])
    assert [line.partition(" after ")[0].partition(" since ")[0] for line in said if "ROCK" in line] == [
        "note: the run's own ROCK server is away",
        "note: the run's own ROCK server is back",
    ]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    assert {step["failed"] for step in steps} == {0.0}
    assert steps[-1]["outages/count"] == 1
    assert digests[0] == digests[1]


def test_a_server_that_dies_stops_a_run_that_waits_for_none_which_then_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    line = run_and_kill(run, SERVER, "-s", "rollout.outage_s=0")
    assert "the embedded ROCK server ended (killed by signal 9)" in line
    assert "continue with --resume" in line
    resumed = train("--resume", "--run", str(run), "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((run / "summary.json").read_text())["steps"] == STEPS
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train"] == [*range(1, STEPS + 1)]


@pytest.mark.parametrize("actor", ["Learner", "InferenceActor"])
def test_an_actor_that_dies_is_named(actor: str, tmp_path: Path) -> None:
    line = run_and_kill(tmp_path / "run", f"ray::{actor}")
    assert f"the {actor} process died (it was killed or crashed)" in line
    assert "continue with --resume" in line
    assert len(line.replace(str(tmp_path), "")) < 450, "one line, and no traceback in it"
    assert list((tmp_path / "run" / "checkpoints").glob("step-*/train.safetensors"))


def test_numbers_that_break_stop_the_run(tmp_path: Path) -> None:
    words = ["--env", "frozen_lake", "--steps", "1", "--run", str(tmp_path / "run"), "--quiet", *SMALL]
    done = train(*words, "-s", "warmup.lr=1e30", "-s", "warmup.epochs=2")
    assert done.returncode == 75, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert re.search(
        r"the (loss|gradient norm) is (nan|inf); the update was not applied. Lower the learning rate", line
    )


def test_a_model_that_cannot_be_read_is_named_by_the_process_that_reads_it(tmp_path: Path) -> None:
    """The error is raised while an actor starts; Ray reports that as a dead actor with a remote traceback."""
    model = tmp_path / "model"
    model.mkdir()
    ENGINE.train("tiny", TinyOptions(), 0, OptimOptions()).export(model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    words = ["--env", "frozen_lake", "--steps", "0", "--quiet", "--run", str(tmp_path / "run"), *SMALL]
    done = train(*words, "--model", str(model))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"ale: cannot read the weights {weights}: ")
