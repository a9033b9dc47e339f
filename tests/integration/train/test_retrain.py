"""`ale replay train`: a step's update comes out again, byte for byte, of the run's folder alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_train import assert_same_weights, final_weights, train
from typer.testing import CliRunner

from agent_runtime.store import read_segment, segment_path, write_segment
from ale.cli import app
from ale.errors import RecordError
from ale.replay.continuing import split_place, start_at
from ale.replay.retraining import prepare_again, retrain
from ale.replay.tokens import accounts
from ale.training.model_play import model_settings, play_tasks
from rock_env.errors import InvalidArgument
from trainer.data.ledger import slug
from trainer.errors import CheckpointError, RunFolderError

LEARNING = [
    *("-s", "warmup.trajectories=24", "-s", "warmup.epochs=8", "-s", "eval.tasks=8", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=8", "-s", "anchors.scheduler=parallel", "-s", "anchors.inject=2"),
    *("-s", "anchors.inject_gate=none", "-s", "anchors.inject_until=1.0", "-s", "checkpoint.keep=9"),
]


def trained(run: Path, algo: str, *more: str) -> Path:
    done = train(run, "--algo", algo, "--steps", "3", "--seed", "7", *LEARNING, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "ipa", "ipa", "-s", "checkpoint.every=1")


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_each_step_comes_out_to_the_byte(run: Path, step: int) -> None:
    found = retrain(run, step)
    assert found.equal
    assert (found.step, found.base) == (step, step - 1)
    assert found.metrics["updates"] > 0
    assert found.metrics["tokens/imitated"] > 0
    assert found.metrics_compared > 20
    assert (found.tensors_compared or 0) > 50


@pytest.mark.turn(2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("algo", ["grpo", "ppo"])
def test_steps_are_chained_from_the_last_checkpoint_kept(tmp_path: Path, algo: str) -> None:
    folder = trained(tmp_path / algo, algo, "-s", "checkpoint.every=100", "-s", "rollout.staleness=1")
    found = retrain(folder, out=tmp_path / "model")
    assert (found.step, found.base) == (3, 0)
    assert found.equal
    assert_same_weights(tmp_path, folder)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the recipe's own settings but for its sizes; the mean of seven learning rates, all the same, is another one."""
    run = tmp_path_factory.mktemp("runs") / "lake"
    updates = ("rollout.groups_per_step=8", "optim.minibatches=7")
    sizes = ("warmup.epochs=4", "eval.tasks=8", "eval.every=0", *updates)
    words = [word for size in sizes for word in ("-s", size)]
    done = train(run, "--algo", "ipa", "--steps", "24", "--seed", "7", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return run


@pytest.mark.turn(2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("step", "base"), [(3, 0), (10, 0), (17, 10), (20, 10), (24, 20)])
def test_any_step_of_a_run_with_default_settings_comes_out(long_run: Path, step: int, base: int) -> None:
    found = retrain(long_run, step)
    assert found.equal
    assert (found.step, found.base) == (step, base)
    assert (found.tensors_compared is None) is (step in (3, 17))
    rollout = next(iter(read_segment(segment_path(long_run, "step", step))))
    done = CliRunner().invoke(app, ["replay", "tokens", str(long_run), rollout.id])
    assert done.exit_code == 0, done.output
    assert f"learned in step {step}" in done.output


@pytest.mark.turn(2)
@pytest.mark.timeout(300)
def test_imitation_alone_comes_out_too(tmp_path: Path) -> None:
    folder = trained(tmp_path / "bc", "bc", "-s", "anchors.scheduler=none", "-s", "anchors.inject=0")
    found = retrain(folder, 2)
    assert found.metrics_apart == ()
    assert found.metrics["tokens/imitated"] > 0


def test_the_command_says_what_it_compared(run: Path, copy: Path) -> None:
    done = CliRunner().invoke(app, ["replay", "train", str(copy), "--step", "2"])
    assert done.exit_code == 0, done.output
    assert "from the checkpoint of step 1 and the records alone" in done.output
    assert "tensors of model and optimizer are equal" in done.output
    assert final_weights(copy).keys() == final_weights(run).keys()


def test_a_changed_reward_is_found(copy: Path) -> None:
    path = segment_path(copy, "step", 3)
    rollouts = list(read_segment(path))
    path.unlink()
    write_segment(path, [replace(rollouts[0], reward=rollouts[0].reward + 0.5), *rollouts[1:]])
    found = retrain(copy, 3)
    assert not found.equal
    assert found.tensors_apart
    done = CliRunner().invoke(app, ["replay", "train", str(copy), "--step", "3"])
    assert done.exit_code == 1
    assert "tensors of model and optimizer differ: train.safetensors:" in done.output


@pytest.mark.turn(2)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("algo", "minibatches"), [("grpo", 1), ("ipa", 1), ("grpo", 4), ("ipa", 4)])
def test_the_tokens_of_a_step_add_up_to_its_ledger(tmp_path: Path, algo: str, minibatches: int) -> None:
    more = ["-s", "checkpoint.every=1", "-s", f"optim.minibatches={minibatches}"]
    folder = trained(tmp_path / algo, algo, *more)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for logged in (row for row in rows if row["kind"] == "train"):
        step = prepare_again(folder, int(logged["step"]))
        every = list(accounts(step))
        found = Counter(fate for account in every for fate in account.fates)
        experts = sum(t.sampled_tokens for t in step.prepared.trajectories if t.is_expert)
        assert found.total() + experts == logged["tokens/total"]
        for fate, count in found.items():
            assert count == logged[f"tokens/{slug(fate)}"], (fate, logged)
        gaps = [account.gap for account in every if account.learner_logprobs]
        assert np.abs(gaps).max(initial=0) < 1e-4  # the sampler and the learner are one model


def test_the_tokens_command_explains_a_rollout(run: Path) -> None:
    rollout = next(iter(read_segment(segment_path(run, "step", 2))))
    done = CliRunner().invoke(app, ["replay", "tokens", str(run), rollout.id])
    assert done.exit_code == 0, done.output
    assert f"{rollout.id}  task {rollout.task_id}" in done.output
    assert f"-- turn {len(rollout.turns) - 1}: " in done.output
    printed = CliRunner().invoke(app, ["replay", "tokens", str(run), rollout.id, "--json"])
    turns = json.loads(printed.output)
    assert [turn["turn"] for turn in turns] == [turn.index for turn in rollout.turns]
    assert sum(len(turn["fates"]) for turn in turns) == rollout.sampled_tokens
    assert ["".join(turn["texts"]) for turn in turns] == list(rollout.actions)
    expert = next(iter(read_segment(segment_path(run, "expert"))))
    refused = CliRunner().invoke(app, ["replay", "tokens", str(run), expert.id])
    assert refused.exit_code != 0


def test_a_packed_step_comes_out_elsewhere(run: Path, tmp_path: Path) -> None:
    for words in (
        ["pack", str(run), "--step", "2", "--out", str(tmp_path / "step.tar.gz")],
        ["unpack", str(tmp_path / "step.tar.gz"), "--out", str(tmp_path / "there")],
        ["train", str(tmp_path / "there"), "--step", "2"],
    ):
        done = CliRunner().invoke(app, ["replay", *words])
        assert done.exit_code == 0, done.output
    assert "tensors of model and optimizer are equal" in done.output
    assert not (tmp_path / "there" / "checkpoints" / "step-000003").exists()
    secret = next(iter(read_segment(segment_path(run, "step", 2))))
    told = Path(shutil.copytree(run, tmp_path / "told"))
    segment_path(told, "step", 2).unlink()
    write_segment(segment_path(told, "step", 2), [replace(secret, actions=("password=hunter22",))])
    refused = CliRunner().invoke(
        app, ["replay", "pack", str(told), "--step", "2", "--out", str(tmp_path / "no.tar.gz")]
    )
    assert refused.exit_code != 0
    assert not list(tmp_path.glob("*no.tar.gz*"))


def test_rollouts_of_another_plan_are_refused(copy: Path) -> None:
    path = segment_path(copy, "step", 2)
    rollouts = list(read_segment(path))
    path.unlink()
    write_segment(path, [replace(rollout, task_id="train/1") for rollout in rollouts])
    with pytest.raises(RunFolderError, match="played by another plan: group"):
        retrain(copy, 2)


@pytest.mark.parametrize(
    ("gone", "step", "error", "said"),
    [
        ("trajectories/step-000002.rollouts", 2, RunFolderError, "rollouts of step 2 are gone"),
        ("checkpoints/step-000000", 1, CheckpointError, "no checkpoint before step 1 is kept"),
        ("metrics.jsonl", 1, RunFolderError, "metrics of .* cannot be read"),
        ("config.toml", 1, RunFolderError, "no run in"),
        ("", 9, RunFolderError, "expected one of 1 to 3"),
    ],
)
def test_what_is_missing_is_named(
    copy: Path, gone: str, step: int, error: type[Exception], said: str
) -> None:
    if gone and (copy / gone).is_dir():
        shutil.rmtree(copy / gone)
    elif gone:
        (copy / gone).unlink()
    with pytest.raises(error, match=said):
        retrain(copy, step)


def test_a_model_is_written_to_a_new_folder_alone(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is there already"):
        retrain(copy, 1, out=copy)
    retrain(copy, 3, out=tmp_path / "after" / "model")
    assert_same_weights(tmp_path / "after", copy)
    assert json.loads((copy / "summary.json").read_text())["steps"] == 3


def continued(run: Path, place: str, *options: str) -> str:
    done = CliRunner().invoke(app, ["replay", "from", str(run), place, *options])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.timeout(300)
def test_a_greedy_rollout_goes_on_as_recorded_from_any_turn(run: Path, tmp_path: Path) -> None:
    rollouts = list(read_segment(segment_path(run, "eval", 3)))
    recorded = max(rollouts, key=lambda rollout: len(rollout.turns))
    middle = len(recorded.turns) // 2
    said = continued(run, f"{recorded.id}:{middle}", "--temperature", "0", "--out", str(tmp_path))
    assert "1 failed" not in said
    (again,) = read_segment(segment_path(tmp_path, f"from-{recorded.id}-{middle}"))
    assert again.start.source_id == recorded.id
    assert again.start.anchor == middle
    assert again.actions == recorded.actions[middle:]
    assert again.observations == recorded.observations[middle:]
    assert (again.reward, again.stop_reason) == (recorded.reward, recorded.stop_reason)
    refused = CliRunner().invoke(
        app, ["replay", "from", str(run), f"{recorded.id}:{middle}", "--out", str(tmp_path)]
    )
    assert refused.exit_code != 0  # a record is never written again


@pytest.mark.timeout(300)
def test_continuations_are_sampled_each_by_itself_and_can_be_continued(run: Path, tmp_path: Path) -> None:
    recorded = max(read_segment(segment_path(run, "step", 1)), key=lambda rollout: len(rollout.turns))
    options = ("-n", "6", "--out", str(tmp_path), "--reseed", "--hint", "Walk right.")
    continued(run, f"{recorded.id}:1", *options)
    found = list(read_segment(segment_path(tmp_path, f"from-{recorded.id}-1")))
    assert len({trajectory.actions for trajectory in found}) > 1
    assert {trajectory.start.hint for trajectory in found} == {"Walk right."}
    assert len({trajectory.start.resume_seed for trajectory in found}) == 6


def test_a_small_model_plays_as_through_ray_and_starts_none(run: Path, tmp_path: Path) -> None:
    """Where Ray cannot even be imported, the run's last evaluation comes out as its workers played it."""
    (tmp_path / "ray.py").write_text("raise ImportError('Ray is not to start')")
    blocked = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    recorded = {each.task_id: each for each in read_segment(segment_path(run, "eval", 3))}
    first = next(iter(recorded.values()))
    for words in (
        ("rollout", "--env", "frozen_lake", "--policy", str(run), "-n", "3"),
        ("replay", "from", str(run), f"{first.id}:1", "-n", "2", "--out", str(tmp_path / "from")),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ale", *words], env=blocked, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(read_segment(segment_path(tmp_path / "from", f"from-{first.id}-1")))) == 2
    config = model_settings(str(run), named={}, overrides=[]).config
    played = play_tasks(config)
    assert len(played) == len(recorded) == 8
    for each in played:
        turns = recorded[each.task_id].turns
        assert [turn.completion_ids.tolist() for turn in each.turns] == [
            t.completion_ids.tolist() for t in turns
        ]
        assert [turn.logprobs.tolist() for turn in each.turns] == [turn.logprobs.tolist() for turn in turns]


def test_places_that_there_are_not_are_refused(run: Path) -> None:
    recorded = next(iter(read_segment(segment_path(run, "eval", 3))))
    for place, said in (
        ("nonsense", "expected ID:TURN"),
        (f"{recorded.id}:99", f"expected 0 to {len(recorded.turns) - 1}"),
        (f"{recorded.id}:-1", "expected ID:TURN"),
    ):
        with pytest.raises((InvalidArgument, RecordError), match=said):
            start_at(recorded, split_place(place)[1])
