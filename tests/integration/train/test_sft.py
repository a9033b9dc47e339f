"""`ale sft` and `ale train --from`: imitation and reinforcement as one lineage, with real processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from random_llama import random_llama
from ray_cluster import JOINING

from agent_runtime.store import encode, read_segment
from agent_runtime.types import AgentConfig
from ale.training.lineage import chain, lineage_command
from ale.training.model_play import model_settings
from rock_env.plugins import load, load_env
from trainer import lineage
from trainer.config import TrainConfig
from trainer.environments import Environment
from trainer.processes.learner import Learner
from trainer.protocols.engines import EngineSpec
from trainer.rollout.experts import hold_out, quizzes, read_experts

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.turn(1)]

SWE = [
    *("--env-arg", "max_turns=24", "--env-arg", "command_timeout_s=20.0"),
    *("--env-arg", "max_output_chars=400"),
]
SMALL_MODEL = [
    "--model",
    "tiny",
    "-s",
    "engine_options.layers=1",
    "-s",
    "engine_options.width=16",
    "-s",
    "sampling.max_tokens=24",
]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ale", *words]


def ale(*words: str, cwd: Path, cluster: str = "") -> str:
    """Run a command that must succeed; return its output. It trains on a cluster, or with a Ray of its own."""
    done = subprocess.run(
        command(*words, *(("--ray-address", cluster) if cluster else ())),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(JOINING if cluster else {})},
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def records(run: Path, kind: str) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def imitate(run: str) -> list[str]:
    """Return the words that imitate what was recorded, in three epochs."""
    words = [
        "sft",
        "--env",
        "swe",
        "--data",
        "solved",
        "--epochs",
        "3",
        "--held-out",
        "0.25",
        "--run",
        run,
        "-q",
    ]
    return [*words, *SWE, *SMALL_MODEL]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """Four solutions of planted bugs, recorded without a model, and imitated for three epochs."""
    place = tmp_path_factory.mktemp("sft")
    ale("rollout", "--env", "swe", "--policy", "oracle", "-n", "4", "--out", "solved", *SWE, cwd=place)
    ale(*imitate("first"), cwd=place, cluster=cluster)
    return place


def test_imitation_reports_what_it_learned_and_from_what(place: Path) -> None:
    run = place / "runs" / "first"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["algo"], summary["steps"], summary["env_steps"]) == ("bc", 3, 0)
    assert 0 <= summary["success_warmup"] <= 1
    held_out = records(run, "held_out")
    assert [record["step"] for record in held_out] == [0, 1, 2, 3]
    assert held_out[3]["held_out_loss"] < held_out[1]["held_out_loss"] < held_out[0]["held_out_loss"]
    assert all(0 <= record["held_out_accuracy"] <= 1 for record in held_out)
    story = lineage.read(run)
    assert story is not None
    (source,) = story.sources
    assert (source.path, source.taken) == ("solved/trajectories/rollout.rollouts", 4)
    assert source.digest == lineage.digest_of(place / source.path)
    assert sorted(expert.held_out for expert in story.experts) == [False, False, False, True]
    shown = list(read_segment(run / "trajectories" / "expert.rollouts"))
    assert {t.id for t in shown} == {expert.id for expert in story.experts if not expert.held_out}
    assert summary["experts_digest"] == story.experts_digest


def test_what_the_expert_took_back_is_masked(place: Path) -> None:
    solved = list(read_segment(place / "solved" / "trajectories" / "rollout.rollouts"))
    blamed = [(t.actions[k], t.actions[k + 2]) for t in solved for k in range(len(t.turns)) if t.is_faulty(k)]
    assert blamed, "one of the four tries a wrong edit first"
    assert all(edit.startswith("edit ") and undo == "undo" for edit, undo in blamed)
    story = lineage.read(place / "runs" / "first")
    assert story is not None
    assert sum(expert.faulty_turns for expert in story.experts) == len(blamed)


def test_reinforcement_goes_on_from_imitation(
    place: Path, cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ale(
        *("train", "--from", "first", "--steps", "1", "--run", "second", "-q", "-s", "rollout.group_size=2"),
        cwd=place,
        cluster=cluster,
    )
    first, second = place / "runs" / "first", place / "runs" / "second"
    before, after = (json.loads((run / "summary.json").read_text()) for run in (first, second))
    assert (after["algo"], after["parent"]) == ("ipa", "runs/first")
    assert after["success_warmup"] == before["success_final"], "the same model on the same tasks"
    anchored = [
        t for t in read_segment(second / "trajectories" / "step-000001.rollouts") if t.start.source_id
    ]
    experts = {t.id for t in read_segment(first / "trajectories" / "expert.rollouts")}
    assert {t.start.source_id for t in anchored} <= experts
    assert anchored, "the experts of the imitation are where rollouts start"
    monkeypatch.chdir(place)
    lineage_command("second")
    told = capsys.readouterr().out
    assert "as recorded" in told
    assert told.index("runs/first") < told.index("runs/second")
    story, parent = lineage.read(second), lineage.read(first)
    assert story is not None
    assert parent is not None
    assert story.model_digest == parent.final_digest
    played = model_settings("second", named={}, overrides=[]).config
    assert (played.env_args["max_output_chars"], played.model) == (400, "runs/second/model")


def test_kill_at_any_moment_and_resume_equals_the_uninterrupted_run(place: Path) -> None:
    """`kill -9` at a random moment after the first epoch, then `--resume`."""
    whole, killed = place / "runs" / "first", place / "runs" / "killed"
    process = subprocess.Popen(
        command(*imitate("killed")),
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while not (killed / "checkpoints" / "step-000001").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.random() * 0.3)
    assert process.poll() is None, "the run ended before it could be killed: give it more epochs"
    process.send_signal(signal.SIGKILL)
    process.wait()
    ale("sft", "--resume", "--run", "killed", "-q", cwd=place)
    assert lineage.digest_of(killed / "model") == lineage.digest_of(whole / "model")
    assert records(killed, "held_out") == records(whole, "held_out")
    assert [record["step"] for record in records(killed, "train")] == [1, 2, 3]
    ((_, story, problem),) = chain(killed)
    assert (story.parent, problem) == (None, "")
    assert story.experts == next(chain(whole))[1].experts


def test_a_hugging_face_model_imitates_the_same_records(place: Path, tmp_path: Path) -> None:
    """Everything but the processes: the records in its tokens, the updates, loss and answers on those held out."""
    spec = load_env("swe")
    params = spec.params(max_turns=24, command_timeout_s=20.0, max_output_chars=400)
    config = TrainConfig(model=random_llama(tmp_path, context=4096), env="swe")
    engine = load("ale.engines", config.engine)
    assert isinstance(engine, EngineSpec)
    options = engine.options(**config.engine_options)
    experts = read_experts(
        [str(place / "solved")],
        environments=[Environment(config, spec, params, spec.tasks(params))],
        split="train",
        template=engine.template(config.model, options),
        agent=AgentConfig(window_turns=1, system=False),
        max_tokens=16,
    )
    _, shown, held_out = hold_out(experts, 0.25, seed=0)
    learner = Learner(config)
    learner.ready()
    learner.take_experts([encode(t) for t in shown], [encode(t) for t in held_out])
    losses = [learner.measure()["held_out_loss"]]
    for epoch in range(2):
        learner.imitate(lr=1e-2, batch_trajectories=1, seed=epoch)
        losses.append(learner.measure()["held_out_loss"])
    assert losses[2] < losses[1] < losses[0]
    asked = quizzes(held_out, seed=0)
    inference = engine.inference(config.model, options, 0)
    inference.load(learner.weights(), 1)
    answers = inference.sample([quiz.request for quiz in asked[:2]])
    assert all(
        0 < len(answer.ids) <= len(quiz.answer_ids) for answer, quiz in zip(answers, asked[:2], strict=True)
    )
