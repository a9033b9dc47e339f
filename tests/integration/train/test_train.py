"""The whole path with real processes: Ray, ROCK, the tiny engine."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import JOINING
from safetensors.numpy import load_file

SMALL = [
    *("-s", "warmup.trajectories=6", "-s", "warmup.epochs=2", "-s", "eval.tasks=12", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=6", "-s", "rollout.group_size=4", "-s", "checkpoint.every=1"),
]

ONE_EACH = ["-s", "rollout.workers=1", "-s", "rollout.engines=1"]


def by_turn(*names: str) -> list[Any]:
    """Return parameters that CI takes up in turns."""
    return [pytest.param(name, marks=pytest.mark.turn(place % 3)) for place, name in enumerate(names)]


def train_command(run: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ale",
        "train",
        "--env",
        "frozen_lake",
        "--run",
        str(run),
        "--quiet",
        *arguments,
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def train(run: Path, *arguments: str, cluster: str = "") -> subprocess.CompletedProcess[str]:
    """Train on a cluster, or with a Ray of its own."""
    return subprocess.run(
        train_command(run, *arguments, *(("--ray-address", cluster) if cluster else ())),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**environment(), **(JOINING if cluster else {})},
        check=False,
        timeout=240,
    )


def final_weights(run: Path):
    (path,) = sorted((run / "model").glob("*.safetensors"))
    return load_file(path)


def assert_same_weights(left: Path, right: Path) -> None:
    one, two = final_weights(left), final_weights(right)
    assert one.keys() == two.keys()
    different = [name for name in one if one[name].tobytes() != two[name].tobytes()]
    assert different == []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    done = train(run, "--algo", "ipa", "--steps", "4", "--seed", "5", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


@pytest.mark.first
@pytest.mark.timeout(300)
def test_a_run_folder_tells_the_whole_story(uninterrupted):
    summary = json.loads((uninterrupted / "summary.json").read_text())
    for name in [
        "env",
        "algo",
        "seed",
        "success_warmup",
        "success_final",
        "train_s",
        "env_steps",
        "tokens",
        "steps",
    ]:
        assert name in summary, name
    assert (summary["env"], summary["algo"], summary["seed"], summary["steps"]) == (
        "frozen_lake",
        "ipa",
        5,
        4,
    )
    assert 0 <= summary["success_warmup"] <= 1
    assert summary["env_steps"] > 0
    assert summary["tokens"] >= summary["env_steps"]
    names = {path.name for path in (uninterrupted / "trajectories").iterdir()}
    assert {
        "expert.rollouts",
        "step-000001.rollouts",
        "step-000004.rollouts",
        "eval-000000.rollouts",
    } <= names
    records = [json.loads(line) for line in (uninterrupted / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    for record in steps:
        fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
        accounted = sum(value for name, value in record.items() if name.startswith(fates))
        assert accounted == record["tokens/total"] > 0
    ledger = summary["ledger"]
    assert ledger["total"] == sum(record["tokens/total"] for record in steps)
    assert ledger["total"] - ledger["experts"] == summary["tokens"]
    assert list((uninterrupted / "events").iterdir())
    assert (uninterrupted / "config.toml").exists()
    assert (uninterrupted / "success.png").stat().st_size > 1000


@pytest.mark.timeout(300)
def test_the_same_seed_gives_the_same_weights(uninterrupted, tmp_path):
    done = train(tmp_path / "again", "--algo", "ipa", "--steps", "4", "--seed", "5", *SMALL)
    assert done.returncode == 0, done.stderr
    assert_same_weights(uninterrupted, tmp_path / "again")


def kill_and_resume(run: Path, *arguments: str, after: int) -> None:
    """`kill -9` of the trainer at a random moment after the checkpoint of step `after`, then `--resume`."""
    process = subprocess.Popen(
        train_command(run, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    deadline = time.monotonic() + 120
    while not (run / "checkpoints" / f"step-{after:06d}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.random() * 0.5)
    assert process.poll() is None, "the run ended before it could be killed: give it more steps"
    process.send_signal(signal.SIGKILL)
    process.wait()
    env = arguments.index("--env") if "--env" in arguments else len(arguments)
    resumed = train(run, "--resume", *arguments[env : env + 2])
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr


def train_records(run: Path) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "train"]


@pytest.mark.first
@pytest.mark.timeout(600)
def test_kill_at_any_moment_and_resume_equals_the_uninterrupted_run(uninterrupted, tmp_path):
    run = tmp_path / "killed"
    kill_and_resume(run, "--algo", "ipa", "--steps", "4", "--seed", "5", *SMALL, after=1)
    assert_same_weights(uninterrupted, run)
    assert [record["step"] for record in train_records(run)] == [1, 2, 3, 4]


def whole_as_killed(folder: Path, *arguments: str) -> Path:
    """Train on short chains once whole and once killed; return the whole run after both came to the same."""
    shape = (word for arg in ("length=2", "width=2", "crucial=0") for word in ("--env-arg", arg))
    env = ["--env", "fork_chain", *shape, "-s", "optim.minibatches=1"]
    sizes = ("trajectories=32", "epochs=24", "batch_trajectories=4")
    warmup = [word for size in sizes for word in ("-s", f"warmup.{size}")]
    words = [*arguments, *env, "--steps", "5", "--seed", "3", *SMALL, *ONE_EACH, *warmup]
    done = train(folder / "whole", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    kill_and_resume(folder / "killed", *words, after=2)
    assert_same_weights(folder / "whole", folder / "killed")
    computed = ("critic/", "ratio/", "mismatch/", "lag/", "tokens/", "grad_norm", "loss", "success")
    for one, other in zip(*(train_records(folder / name) for name in ("whole", "killed")), strict=True):
        assert {k: v for k, v in one.items() if k.startswith(computed)} == {
            k: v for k, v in other.items() if k.startswith(computed)
        }
    return folder / "whole"


@pytest.mark.turn(0)
@pytest.mark.timeout(600)
def test_the_critic_of_ppo_survives_a_kill(tmp_path):
    whole = whole_as_killed(tmp_path, "--algo", "ppo")
    assert all("critic/value_mean" in record for record in train_records(whole))
    assert train_records(whole)[-1]["critic/value_mean"] != 0


@pytest.mark.turn(1)
@pytest.mark.timeout(600)
def test_the_older_weights_that_sample_survive_a_kill(tmp_path):
    from agent_runtime.store import read_segment

    whole = whole_as_killed(tmp_path, "--algo", "grpo", "-s", "rollout.staleness=2")
    for step, version in enumerate([0, 0, 0, 1, 2], start=1):
        rollouts = read_segment(whole / "trajectories" / f"step-{step:06d}.rollouts")
        assert {turn.policy_version for t in rollouts for turn in t.turns} == {version}
    records = train_records(whole)
    assert [record["lag/max"] for record in records if "lag/max" in record][-1] == 2
    assert max(record.get("mismatch/token_abs", 0) for record in records) > 1e-3


@pytest.mark.timeout(600)
def test_ctrl_c_saves_and_resume_equals_the_uninterrupted_run(uninterrupted, tmp_path):
    """The signal goes to all processes of the run, as a terminal's Ctrl-C does: Ray and ROCK must not heed it."""
    run = tmp_path / "stopped"
    command = train_command(run, "--algo", "ipa", "--steps", "4", "--seed", "5", *SMALL)
    command.remove("--quiet")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    ) as process:
        for line in process.stderr:
            if line.startswith("step 0 "):  # evaluated, with all steps still to do
                break
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(timeout=60) == 130, said
    assert f"Saved. Continue with: ale train --resume --run {run}" in said
    assert not (run / "summary.json").exists()
    resumed = train(run, "--resume")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert_same_weights(uninterrupted, run)
    assert json.loads((run / "summary.json").read_text())["steps"] == 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("algo", by_turn("grpo", "reinforce", "bc", "reinforce_pp", "decoupled_ppo", "ppo"))
def test_every_algorithm_runs_end_to_end(algo, cluster, tmp_path):
    done = train(tmp_path / algo, "--algo", algo, "--steps", "1", *SMALL, *ONE_EACH, cluster=cluster)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / algo / "summary.json").read_text())["algo"] == algo


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheduler", ["sequential", "parallel"])
def test_resets_replay_expert_prefixes(scheduler, cluster, tmp_path):
    from agent_runtime.store import read_segment

    run = tmp_path / scheduler
    done = train(
        run,
        "--steps",
        "1",
        *SMALL,
        *ONE_EACH,
        "-s",
        f"anchors.scheduler={scheduler}",
        "-s",
        "anchors.start_share=0.34",
        cluster=cluster,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trajectories = list(read_segment(run / "trajectories" / "step-000001.rollouts"))
    anchored = [t for t in trajectories if t.start.source_id]
    assert len(trajectories) == 24
    assert len(anchored) == 12
    assert all(t.failure is None for t in trajectories)
    assert any(t.start.prefix for t in anchored)
