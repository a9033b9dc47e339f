"""The guard on real engines and a real environment: what it measures, and what halts a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from local_fleet import Listening, LocalFleet, config_of, local_run
from random_llama import random_llama

from agent_runtime.types import Trajectory
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.config.watching import GuardOptions
from trainer.errors import Halted
from trainer.models.plain_text import plain_text
from trainer.processes.learner import Learner
from trainer.run import Run

SANE, HIGH = 1e-6, 3.0


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return random_llama(tmp_path_factory.mktemp("llama"), context=512)


@pytest.fixture(scope="module")
def mover(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model that has learned to answer with a move."""
    folder = tmp_path_factory.mktemp("mover")
    local_run(
        folder,
        config_of(
            steps=0,
            warmup={"trajectories": 8, "epochs": 40, "lr": 1e-2, "batch_trajectories": 1},
            eval={"tasks": 16},
        ),
    )
    assert records(folder)[-1]["legal_share"] > 0.9
    return str(folder / "model")


def pretrained(model: str, **changes: Any) -> TrainConfig:
    base = {
        "agent": {"window_turns": 1, "system": True},
        "sampling": {"max_tokens": 3},
        "rollout": {"groups_per_step": 1, "group_size": 2},
        "anchors": {"scheduler": "none", "inject": 2},
        "guard": {"tasks": 2, "turns": 2},
        "steps": 1,
        "optim": {"lr": SANE, "minibatches": 1},
    }
    for name, value in changes.items():
        base[name] = {**base.get(name, {}), **value} if isinstance(value, dict) else value  # type: ignore[dict-item]
    return of(model, **base)


def of(model: str, **changes: Any) -> TrainConfig:
    """Return the small run's configuration with another model, which brings its own shape."""
    return config_of(**changes).model_copy(update={"model": model, "engine_options": {}})


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_text_is_plain_english_of_4_kb() -> None:
    text = plain_text()
    assert 4000 <= len(text.encode()) <= 4200
    assert text.isascii()


def test_the_likelihood_of_the_text_is_the_models_own(llama: str) -> None:
    learner = Learner(pretrained(llama))
    learner.ready()
    model = transformers.AutoModelForCausalLM.from_pretrained(llama)
    ids = torch.tensor(
        transformers.AutoTokenizer.from_pretrained(llama)(plain_text(), verbose=False).input_ids
    )
    lost, count = 0.0, 0
    for row in ids.split(512):  # the model's context
        logits = model(row[None]).logits[0, :-1].detach().double()
        lost -= float(torch.log_softmax(logits, -1).gather(1, row[1:, None]).sum())
        count += len(row) - 1
    assert len(ids) > 4000, "several rows"
    assert learner.text_nll() == {"text_nll": pytest.approx(lost / count, abs=1e-4)}


def test_a_run_that_harms_nothing_reports_its_numbers(tmp_path: Path, llama: str) -> None:
    local_run(tmp_path, pretrained(llama, warmup={"lr": SANE, "epochs": 2}))
    found = {(record["kind"], record["step"]): record for record in records(tmp_path)}
    before, after = found["guard", -3], found["guard", 0]
    assert set(before) == set(after) == {"kind", "step", "text_nll", "legal_share"}
    measured = [
        before,
        found["warmup", -2],
        found["warmup", -1],
        after,
        found["train", 1],
    ]
    assert all(record["text_nll"] == pytest.approx(before["text_nll"], abs=0.1) for record in measured)
    for measured_at in (found["eval", 0], found["eval", 1]):
        rise = measured_at["text_nll"] - before["text_nll"]
        assert measured_at["text_nll_rise"] == pytest.approx(rise)
    assert found["eval", 1]["text_nll"] == found["train", 1]["text_nll"], "of the same weights"
    assert {record["legal_share"] for record in (before, after, found["eval", 0])} <= {
        0.0,
        1.0,
        0.25,
        0.5,
        0.75,
    }


def test_a_model_that_forgets_is_said_to_before_it_halts_the_run(tmp_path: Path, llama: str) -> None:
    config = pretrained(llama, optim={"lr": HIGH}, warmup={"epochs": 0}, guard={"text_rise": 1e6})
    _, said = local_run(tmp_path / "unheeded", config)
    assert not [line for line in said if "forgets" in line]
    last = records(tmp_path / "unheeded")[-1]
    assert last["text_nll_rise"] > 1
    config = config.model_copy(update={"guard": GuardOptions(text_rise=2 * last["text_nll_rise"], tasks=2)})
    _, said = local_run(tmp_path / "said", config)
    now, before = last["text_nll"], last["text_nll"] - last["text_nll_rise"]
    (line,) = [line for line in said if "forgets" in line]
    assert line.startswith(
        f"step 1: the model forgets: plain English costs it {now:.2f} nats per token, {before:.2f}"
    )


def test_a_warm_up_that_destroys_the_model_halts_after_its_first_pass(tmp_path: Path, llama: str) -> None:
    with pytest.raises(Halted) as caught:
        local_run(tmp_path, pretrained(llama, warmup={"lr": HIGH, "epochs": 5}))
    assert caught.value.exit_code == 75
    begun, last = records(tmp_path)
    assert (begun["kind"], last["kind"], last["step"]) == ("guard", "warmup", -5)
    said = str(caught.value)
    assert f"got {last['text_nll']:.2f} nats per token" in said
    assert (
        f"{begun['text_nll']:.2f} before it learned, expected a rise of at most 1 (guard.text_rise)" in said
    )
    assert "a lower rate than warmup.lr=3 " in said
    assert "guard.text_rise=0 to go on" in said
    assert "\n" not in said


def test_a_step_that_destroys_the_model_halts_before_it_is_saved(tmp_path: Path, llama: str) -> None:
    config = pretrained(llama, optim={"lr": HIGH}, steps=3, checkpoint={"every": 1}, warmup={"epochs": 0})
    with pytest.raises(Halted, match=r"a lower rate than optim\.lr=3 "):
        local_run(tmp_path, config)
    assert records(tmp_path)[-1]["kind"] == "train", "the numbers that say why are on the disk"
    assert checkpoint.latest(tmp_path / "checkpoints") is None


def test_imitation_as_a_run_of_its_own_is_watched_too(tmp_path: Path, llama: str) -> None:
    config = pretrained(llama, algo="bc", optim={"lr": HIGH}, warmup={"epochs": 0}, anchors={"inject": 0})
    with pytest.raises(Halted, match=r"a lower rate than optim\.lr=3 "):
        local_run(tmp_path, config)


def test_a_guard_that_is_off_measures_nothing_and_halts_nothing(tmp_path: Path, llama: str) -> None:
    off = {"text_rise": 0.0, "legal_fall": 0.0}
    local_run(tmp_path, pretrained(llama, warmup={"lr": HIGH}, guard=off))
    assert all(record["kind"] != "guard" and "text_nll" not in record for record in records(tmp_path))


def test_a_resumed_run_is_compared_with_the_model_that_it_began_with(tmp_path: Path, llama: str) -> None:
    config = pretrained(llama, warmup={"lr": SANE})
    local_run(tmp_path, config)
    begun = records(tmp_path)[0]["text_nll"]
    later = pretrained(llama, warmup={"lr": SANE}, steps=2, optim={"lr": HIGH, "lr_end": 1.0})
    fleet, watcher = LocalFleet(later), Listening()
    with Run(later, tmp_path, fleet, watcher, resume=True) as run:  # type: ignore[arg-type]
        (step,) = run.remaining_steps()
        batch = run.batch(step)
        run.learn(batch)
        run.publish(step)
        with pytest.raises(Halted, match=f"{begun:.2f} before it learned"):
            run.report(batch)


def test_a_warm_up_that_takes_legal_actions_away_halts(tmp_path: Path, mover: str) -> None:
    """A tiny model knows no prose; that its answers are moves is seen in the game."""
    guard = {"tasks": 16, "turns": 2}
    config = of(mover, warmup={"lr": 3.0, "epochs": 2}, guard=guard, eval={"tasks": 16})
    with pytest.raises(
        Halted, match=r"\d+% legal actions in 16 episodes, 1?\d\d% before.*warmup\.lr=3"
    ) as caught:
        local_run(tmp_path, config)
    assert "expected a fall of at most 45% (guard.legal_fall=0.2, the rest for chance)" in str(caught.value)
    guards = [record for record in records(tmp_path) if record["kind"] == "guard"]
    assert [set(record) for record in guards] == [{"kind", "step", "legal_share"}] * 2
    kept = config.model_copy(update={"guard": config.guard.model_copy(update={"legal_fall": 0.0})})
    local_run(tmp_path / "off", kept)


def succeeding(trajectory: Trajectory) -> Trajectory:
    """Let one rollout of each group succeed, so that there is something to learn."""
    return replace(trajectory, reward=1.0, passed=True) if trajectory.index == 0 else trajectory


def test_steps_that_take_legal_actions_away_halt_at_an_evaluation(tmp_path: Path, mover: str) -> None:
    config = of(
        mover,
        algo="grpo",
        warmup={"trajectories": 0, "held_out": 0.0},
        anchors={"inject": 0},
        optim={"lr": 3.0},
        eval={"tasks": 16},
    )
    with pytest.raises(Halted, match=r"legal actions in 16 episodes, .*optim\.lr=3 "):
        local_run(tmp_path, config, change=succeeding)
    assert not (tmp_path / "model").exists()


def test_a_policy_from_scratch_is_not_played_before_its_warm_up(tmp_path: Path) -> None:
    local_run(tmp_path, config_of())
    assert all(record["kind"] != "guard" for record in records(tmp_path))
