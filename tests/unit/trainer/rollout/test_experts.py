"""Which recorded trajectories become experts, in whose tokens, which are held out, and that faults are never learned."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from algo_reference import trajectory

from agent_runtime.graph import validate
from agent_runtime.store import encode, segment_path, write_segment
from agent_runtime.types import (
    AgentConfig,
    PrefixTurn,
    RolloutFailure,
    Start,
    Trajectory,
    TurnFault,
    TurnLabel,
)
from rock_env.env import observation_hash
from rock_env.plugins import load_env
from trainer.config import TrainConfig
from trainer.environments import Environment
from trainer.errors import BatchError, ConfigError
from trainer.models.tiny.tokenizer import END, TinyChatTemplate, TinyTokenizer
from trainer.processes.learner import Learner
from trainer.rollout.experts import MOST_QUIZZES, check_data, hold_out, quizzes, read_experts, recorded
from trainer.rollout.starts import Injection, Origin

SPEC = load_env("frozen_lake")
PARAMS = SPEC.params()
ENVIRONMENT = Environment(TrainConfig(), SPEC, PARAMS, SPEC.tasks(PARAMS))
ACTIONS = ("Right", "Down", "Down")
OBSERVATIONS = ("P _\n_ G", "_ P\n_ G", "_ _\n_ P")


def win(name: str, task: int = 0, **changes: object) -> Trajectory:
    """Return a record that is an example for a run in FrozenLake, unless `changes` spoil it."""
    made = replace(
        trajectory(name, [1, 1, 1], 1.0, ids=count(5), expert=True),
        env=SPEC.key,
        params_json=PARAMS.canonical(),
        task_id=f"train/{task}",
        start=Start(task),
        first_observation="P O\n_ G",
        actions=ACTIONS,
        observations=OBSERVATIONS,
        observation_hashes=tuple(map(observation_hash, OBSERVATIONS)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def read(*places: object, window: int = 0, context: int = 4096):
    return read_experts(
        [str(place) for place in places],
        environments=[ENVIRONMENT],
        split="train",
        template=TinyChatTemplate(TinyTokenizer(), context),
        agent=AgentConfig(window_turns=window, system=False),
        max_tokens=16,
    )


async def test_a_notebook_in_whose_thread_a_loop_runs_reads_them_too(tmp_path: Path) -> None:
    write_segment(tmp_path / "a.traj", [win("a")])
    assert [each.id for each in read(tmp_path).trajectories] == ["a"]


def test_only_whole_successes_in_this_environment_are_examples(tmp_path: Path) -> None:
    other = '{"slippery": true}'
    write_segment(
        segment_path(tmp_path / "run", "step", 1),
        [
            win("good"),
            win("lost", passed=False, reward=0.0),
            win("broken", failure=RolloutFailure("policy", "gone", 1)),
            win("anchored", start=Start(0, "P", (PrefixTurn("Up", "P"),))),
            win("elsewhere", env="sokoban@1"),
            win("slippery", params_json=other),
            win("session", turn_labels=(TurnLabel.MAIN,) * 3),
            win("unseen", task_id="held_out/0"),
            win("again"),
        ],
    )
    found = read(tmp_path / "run")
    assert [t.id for t in found.trajectories] == ["good"]
    (source,) = found.sources
    assert (source.path, source.taken) == (str(tmp_path / "run/trajectories/step-000001.rollouts"), 1)
    assert source.skipped == {
        "not passed": 1,
        "failed to run": 1,
        "begins after somebody else's turns": 1,
        "of a CLI agent, whose turns are no actions": 1,
        "of sokoban@1": 1,
        "with other env_args: slippery=True, here False": 1,
        "on a task that is not of the split train": 1,
        "there before": 1,
    }


def test_nothing_to_imitate_is_refused_with_the_reasons(tmp_path: Path) -> None:
    write_segment(tmp_path / "lost.rollouts", [win("a", passed=False, reward=0.0), win("b", env="sokoban@1")])
    for refused in (
        lambda: read(tmp_path),
        lambda: check_data([str(tmp_path)], environments=[ENVIRONMENT], split="train"),
    ):
        with pytest.raises(ConfigError, match=r"1 not passed; 1 of sokoban@1"):
            refused()
    with pytest.raises(ConfigError, match=r"no trajectories in .*rollout --policy oracle"):
        read(tmp_path / "nowhere")


def test_every_expert_keeps_who_acted_and_where_it_came_from(tmp_path: Path) -> None:
    model = trajectory("model", [1, 1, 1], 1.0, ids=count(5))
    write_segment(tmp_path / "a.rollouts", [win("told"), win("sampled", task=1, turns=model.turns)])
    write_segment(tmp_path / "b.rollouts", [win("hinted", task=2, start=Start(2, hint="Hint: Right"))])
    found = read(tmp_path)
    path = str(tmp_path / "a.rollouts")
    assert found.provenance("told") == (Origin.IMPORTED, path)
    assert found.provenance("sampled") == (Origin.TEACHER, path)
    assert found.sources[1].skipped == {"was given a hint": 1}
    played = recorded([win("own")], SPEC.key)
    assert played.provenance("own") == (Origin.ORACLE, f"oracle of {SPEC.key}")
    marked, _, _ = hold_out(found, 0.5, 0)
    assert [record.origin for record in marked.records] == ["imported", "teacher"]


def test_experts_are_told_in_the_tokens_of_the_model(tmp_path: Path) -> None:
    faults = (TurnFault.TOOL_FAILED, TurnFault.NONE, TurnFault.NONE)
    original = win("theirs", turn_faults=faults)
    write_segment(tmp_path / "a.rollouts", [original])
    write_segment(tmp_path / "b.rollouts", [win("theirs", task=1)])
    template = TinyChatTemplate(TinyTokenizer(), 4096)
    for window in (0, 1):
        found = read(tmp_path / "a.rollouts", tmp_path / "b.rollouts", window=window)
        told, second = found.trajectories
        validate(told)
        assert told.is_expert
        assert [template.decode(turn.completion_ids) for turn in told.turns] == list(ACTIONS)
        assert [turn.completion_ids[-1] for turn in told.turns] == [END] * 3
        assert [turn.parent for turn in told.turns] == ([None, 0, 1] if window == 0 else [None] * 3)
        assert OBSERVATIONS[1] in template.decode(told.turns[2].context_ids)
        assert (told.turn_faults, told.actions, told.reward) == (faults, original.actions, 1.0)
        assert (told.id, second.id) == ("theirs", "theirs~1"), "ids stay apart"
        first, _ = found.records
        assert (first.source_id, first.turns, first.faulty_turns, first.held_out) == ("theirs", 3, 1, False)
        assert len({record.digest for record in found.records}) == 2


def test_what_does_not_fit_the_model_is_left_out(tmp_path: Path) -> None:
    long = win("long", observations=("P" * 300, *OBSERVATIONS[1:]))
    write_segment(tmp_path / "a.rollouts", [long, win("short")])
    found = read(tmp_path, context=128)
    assert [t.id for t in found.trajectories] == ["short"]
    assert found.sources[0].skipped == {"longer than the model's context": 1}


def test_whole_tasks_are_held_out_and_some_always_stay() -> None:
    experts = recorded([win(f"{n}", task=n // 2) for n in range(20)], SPEC.key)
    marked, shown, held = hold_out(experts, 0.3, seed=3)
    assert len({t.task_id for t in held}) == 3
    assert not {t.task_id for t in held} & {t.task_id for t in shown}
    assert len(held) + len(shown) == 20
    assert [record.held_out for record in marked.records] == [t in held for t in experts.trajectories]
    assert marked.digest == experts.digest
    assert hold_out(experts, 0.0, seed=3)[2] == []
    assert len(hold_out(experts, 0.01, seed=3)[2]) == 2, "a share at all is one task at least"
    two = recorded([win("a", task=0), win("b", task=1)], SPEC.key)
    assert len(hold_out(two, 0.99, seed=3)[1]) == 1
    one = recorded([win("a", task=0)], SPEC.key)
    assert len(hold_out(one, 0.5, seed=3)[1]) == 1


def test_the_model_is_asked_what_the_expert_was_shown(tmp_path: Path) -> None:
    faults = (TurnFault.NONE, TurnFault.UNDONE, TurnFault.NONE)
    write_segment(tmp_path / "a.rollouts", [win("a", turn_faults=faults)])
    (told,) = read(tmp_path).trajectories
    asked = quizzes([told], seed=0)
    assert [quiz.request.turn for quiz in asked] == [0, 2], "not what was taken back"
    first, last = asked
    turns = told.turns
    assert np.array_equal(first.request.prompt_ids, turns[0].context_ids)
    whole = [ids for turn in turns[:2] for ids in (turn.context_ids, turn.completion_ids)]
    assert np.array_equal(last.request.prompt_ids, np.concatenate([*whole, turns[2].context_ids]))
    assert np.array_equal(last.answer_ids, turns[2].completion_ids)
    assert {quiz.request.params.temperature for quiz in asked} == {0.0}
    many = [replace(told, id=f"{n}") for n in range(MOST_QUIZZES)]
    drawn = quizzes(many, seed=1)
    assert len(drawn) == MOST_QUIZZES
    assert [q.request.rollout_id for q in drawn] == [q.request.rollout_id for q in quizzes(many, seed=1)]


def parameters(learner: Learner) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in learner.weights().items()}


def test_warm_up_and_injection_learn_nothing_from_faults(tmp_path: Path) -> None:
    """The same masks in both: where all that is imitated is at fault, not one parameter moves."""
    write_segment(
        tmp_path / "a.rollouts", [win("a", turn_faults=(TurnFault.UNDONE, TurnFault.NONE, TurnFault.NONE))]
    )
    (told,) = read(tmp_path).trajectories
    learner = Learner(TrainConfig(engine_options={"layers": 1, "width": 8, "heads": 1}))
    learner.ready()
    learner.take_experts([encode(told)], [encode(told)])
    before = parameters(learner)
    learner.update([], [Injection("a", (0,), 1.0)], lr=0.1)
    assert parameters(learner) == before
    learner.update([], [Injection("a", (0, 1), 1.0)], lr=0.1)
    assert parameters(learner) != before
    learner.take_experts([encode(replace(told, turn_faults=(TurnFault.ILLEGAL,) * 3))], [])
    before = parameters(learner)
    assert learner.measure() == {}
    learner.imitate(lr=0.1, batch_trajectories=1, seed=0)
    assert parameters(learner) == before


def test_the_loss_on_held_out_experts_is_that_of_their_good_turns(tmp_path: Path) -> None:
    write_segment(tmp_path / "a.rollouts", [win("a")])
    (told,) = read(tmp_path, window=1).trajectories
    learner = Learner(TrainConfig(engine_options={"layers": 1, "width": 8, "heads": 1}))
    learner.ready()
    learner.take_experts([], [encode(told)])
    every = learner.measure()["held_out_loss"]
    assert every == pytest.approx(np.log(TinyTokenizer().size), rel=0.1), "a fresh model knows nothing"
    each = []
    for turn in range(3):
        faults = tuple(TurnFault.NONE if k == turn else TurnFault.TOOL_FAILED for k in range(3))
        learner.take_experts([], [encode(replace(told, turn_faults=faults))])
        each.append((learner.measure()["held_out_loss"], len(told.turns[turn].completion_ids)))
    assert every == pytest.approx(sum(loss * n for loss, n in each) / sum(n for _, n in each), rel=1e-5)


def test_an_expert_of_another_version_is_no_example(tmp_path: Path) -> None:
    write_segment(tmp_path / "a.rollouts", [win("old", env="frozen_lake@0"), win("new", task=1)])
    found = read(tmp_path)
    assert [t.id for t in found.trajectories] == ["new"]
    assert found.sources[0].skipped == {"of frozen_lake@0": 1}
    (tmp_path / "a.rollouts").unlink()
    write_segment(tmp_path / "b.rollouts", [win("old", env="frozen_lake@0")])
    with pytest.raises(ConfigError, match=r"nothing to imitate .*1 of frozen_lake@0"):
        read(tmp_path)


@pytest.mark.parametrize("kept", [(0, 1), (1, 0)], ids=["shown", "held out"])
def test_kept_experts_of_another_tokenizer_or_version_are_refused(kept, tmp_path: Path) -> None:
    """What a resumed run finds in its folder after the installation or the model changed under it."""
    write_segment(tmp_path / "a.rollouts", [win("a")])
    learner = Learner(TrainConfig(engine_options={"layers": 1, "width": 8, "heads": 1}))
    learner.ready()
    for window in (0, 1):
        (told,) = read(tmp_path, window=window).trajectories
        learner.take_experts(*[[encode(told)] * times for times in kept])
        before = learner.measure()
        for bad, message in (
            (replace(told, env="frozen_lake@0"), r"'a' was recorded in frozen_lake@0, .* is frozen_lake@"),
            (
                replace(told, actions=("Right", "Up", "Down")),
                r"turn 1 of expert 'a' is told in another tokenizer",
            ),
        ):
            with pytest.raises(BatchError, match=message):
                learner.take_experts(*[[encode(bad)] * times for times in kept])
        assert learner.measure() == before
