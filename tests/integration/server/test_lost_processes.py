"""Any process of a run may die: it says so in one clear line, goes on, and comes to the model of an undisturbed run."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import lines_of
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
        ended = [line for line in lines_of(training.stderr.read()) if not line.startswith("step ")]
        assert training.stdout.read() == ""
        assert training.wait(timeout=60) == 75, ended
    (line,) = ended
    return line


def steps_of(run: Path) -> list[dict[str, Any]]:
    """Return what the run recorded of its steps."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "train"]


def disturbed(run: Path, pattern: str = "") -> list[str]:
    """Train, have a process die after two steps, and return what the run said."""
    words = ["--env", "frozen_lake", "--steps", str(STEPS), "--run", str(run), *SMALL]
    said: list[str] = []
    with subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    ) as training:
        assert training.stderr is not None
        for line in training.stderr:
            if (
                pattern
                and line.startswith("step 2/")
                and not any(each.startswith("step 2/") for each in said)
            ):
                kill_child(training.pid, pattern)
            said.append(line)
    assert training.returncode == 0, "".join(said)
    steps = steps_of(run)
    assert [step["step"] for step in steps] == [*range(1, STEPS + 1)]
    assert {step["failed"] for step in steps} == {0.0}
    return said


def digest(run: Path) -> str:
    """Return that of the model that came out."""
    return str(json.loads((run / "summary.json").read_text())["model_digest"])


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model that an undisturbed run ends with."""
    run = tmp_path_factory.mktemp("calm") / "run"
    disturbed(run)
    assert steps_of(run)[-1]["restarts"] == 0
    return digest(run)


def test_a_server_that_dies_in_mid_step_is_started_again(calm: str, tmp_path: Path) -> None:
    """The model is that of an undisturbed run."""
    said = disturbed(tmp_path, SERVER)
    assert [line.partition(" after ")[0].partition(" since ")[0] for line in said if "ROCK" in line] == [
        "note: the run's own ROCK server is away",
        "note: the run's own ROCK server is back",
    ]
    assert steps_of(tmp_path)[-1]["outages/count"] == 1
    assert digest(tmp_path) == calm


@pytest.mark.parametrize("actor", ["Learner", "InferenceActor", "RolloutWorker"])
def test_where_an_actor_dies_all_start_again_and_the_model_is_the_same(
    actor: str, calm: str, tmp_path: Path
) -> None:
    said = disturbed(tmp_path, f"ray::{actor}")
    died, back = [line.strip() for line in said if "process" in line]
    assert died.startswith("note: ")
    assert f"the {actor} process died (it was killed or crashed)" in died
    assert ". All processes of the run are started again, and it goes on from checkpoint step-00000" in died
    assert len(died) < 300, "one line, and no traceback in it"
    assert back == "note: all processes of the run are back"
    assert steps_of(tmp_path)[-1]["restarts"] == 1
    assert digest(tmp_path) == calm


def test_a_server_that_dies_stops_a_run_that_waits_for_none_which_then_continues(tmp_path: Path) -> None:
    run = tmp_path / "run"
    line = run_and_kill(run, SERVER, "-s", "rollout.outage_s=0")
    assert "the embedded ROCK server ended (killed by signal 9)" in line
    assert "continue with --resume" in line
    resumed = train("--resume", "--run", str(run), "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((run / "summary.json").read_text())["steps"] == STEPS
    assert [step["step"] for step in steps_of(run)] == [*range(1, STEPS + 1)]


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
