"""What `ale replay stats` and `ale replay list` count, on a run that is kept in the repository."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_runtime.store import read_segment, write_segment
from agent_runtime.types import Hosting, RolloutFailure, Trajectory, TurnFault, TurnLabel
from ale.cli import app
from ale.errors import RecordError
from ale.replay.listing import Wanted, grid_command, grouped_command, list_command
from ale.replay.records import iterate
from ale.replay.rows import Outcomes, row_of
from ale.replay.showing import show_command
from ale.replay.stats import Statistics, collect, ledger, stats_command
from rock_env.errors import InvalidArgument

RUN = Path(__file__).parents[1] / "kept" / "run"


def a_trajectory() -> Trajectory:
    return next(iter(read_segment(next((RUN / "trajectories").glob("step-*.traj")))))


def test_the_ledger_of_a_run_accounts_for_every_token_of_its_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Statistics()
    collect(iterate(str(RUN)), found)
    fates = ledger(str(RUN))
    sampled = sum(
        t.sampled_tokens for path in (RUN / "trajectories").glob("step-*.traj") for t in read_segment(path)
    )
    assert found.kinds["step"].tokens == sampled == fates["tokens/total"] - fates["tokens/experts"] > 0
    assert found.kinds["step"].rollouts == sum(found.ends.values()) - sum(
        kind.rollouts for name, kind in found.kinds.items() if name != "step"
    )
    stats_command(str(RUN), as_json=False)
    assert (
        f"accounts for {sampled} sampled tokens, the records hold {sampled}: as many"
        in capsys.readouterr().out
    )
    stats_command(str(RUN), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["kinds"]["step"]["tokens"] == sampled
    assert told["tokens"]["total"] == fates["tokens/total"]


def test_a_record_that_is_missing_shows_in_the_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "metrics.jsonl").write_bytes((RUN / "metrics.jsonl").read_bytes())
    files = sorted((RUN / "trajectories").glob("*.traj"))
    for path in files[:-1]:
        (tmp_path / "trajectories" / path.name).write_bytes(path.read_bytes())
    assert files[-1].name.startswith("step-")
    stats_command(str(tmp_path), as_json=False)
    assert "NOT as many" in capsys.readouterr().out


def test_failures_and_faults_are_counted_by_kind() -> None:
    one = a_trajectory()
    lost = replace(one, id="lost").as_failed(RolloutFailure("policy", "it broke", 0))
    faulty = replace(one, id="faulty", turn_faults=(TurnFault.TOOL_FAILED,) * len(one.turns))
    slow = replace(one, id="slow", duration_s=1e6)
    found = Statistics()
    collect([(Path("step-000001.rollouts"), each) for each in (one, lost, faulty, slow, lost)], found)
    counts = found.kinds["step"]
    assert (counts.rollouts, counts.failed) == (5, 2)
    assert found.failures == {"policy": [2, "lost"]}
    assert found.faults["tool_failed"] == len(one.turns)
    assert found.slowest[0][1] == "slow"


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Wanted(), True),
        (Wanted(Outcomes(errored=True)), False),
        (Wanted(anchored=True), False),
        (Wanted(task="train/*"), True),
        (Wanted(task="held_out/*"), False),
        (Wanted(file="step-*"), True),
        (Wanted(file="eval-*"), False),
        (Wanted(end="policy"), False),
        (Wanted(group="[!0-9]*"), False),
    ],
)
def test_a_trajectory_is_listed_where_all_that_was_asked_for_fits(wanted: Wanted, fits: bool) -> None:
    assert wanted.fits(Path("step-000001.rollouts"), row_of(a_trajectory())) == fits


def test_the_longest_come_first_and_programs_read_json(capsys: pytest.CaptureFixture[str]) -> None:
    list_command(str(RUN), wanted=Wanted(), sort="turns", limit=3, as_json=True)
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    turns = sorted((len(trajectory.turns) for _, trajectory in iterate(str(RUN))), reverse=True)
    assert [each["turns"] for each in listed] == turns[:3]
    list_command(str(RUN), wanted=Wanted(task="no such task"), limit=3)
    assert "0 of 0 that fit among" in capsys.readouterr().out


def test_rollouts_are_counted_together_and_the_hardest_come_first_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = a_trajectory()
    lost = plain.as_failed(RolloutFailure("policy", "lost", 0))
    named = [
        replace(plain, task_id="a", policy_step=1, passed=True, reward=1.0),
        replace(plain, task_id="a", policy_step=2, passed=False, reward=0.0),
        replace(plain, task_id="b", policy_step=1, passed=False, reward=0.5),
        replace(lost, task_id="b", policy_step=2),
    ]
    path = tmp_path / "trajectories" / "step-000001.rollouts"
    write_segment(path, named)
    grouped_command(str(tmp_path), wanted=Wanted(), by="task", sort="hardest", limit=9, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [
        (each["task"], each["rollouts"], each["passed"], each["failed"], each["reward"]) for each in found
    ] == [
        ("b", 2, 0, 1, 0.5),
        ("a", 2, 1, 0, 0.5),
    ]
    grouped_command(str(tmp_path), wanted=Wanted(Outcomes(errored=True)), by="step", limit=9, as_json=True)
    (only,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (only["step"], only["rollouts"], only["reward"]) == ("000002", 1, None)
    evaluated = [replace(plain, task_id="c", policy_step=2, passed=True, reward=1.0)]
    write_segment(path.with_name("eval-000002.rollouts"), evaluated)
    grouped_command(str(tmp_path), wanted=Wanted(), by="step", limit=9, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["kind"], each["step"], each["rollouts"]) for each in found] == [
        ("step", "000001", 2),
        ("step", "000002", 2),
        ("eval", "000002", 1),
    ]
    grouped_command(str(tmp_path), wanted=Wanted(), by="step", limit=9)
    said = capsys.readouterr().out
    assert said.index("training") < said.index("evaluation")
    path.with_name("eval-000002.rollouts").unlink()
    grid_command(str(tmp_path), wanted=Wanted(), limit=9)
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()[:4]] == [
        ["training"],
        ["task", "1", "2"],
        ["a", "1/1", "0/1"],
        ["b", "0/1", "0/0", "+1", "errored"],
    ]


def test_training_evaluations_and_experts_are_counted_apart_in_the_order_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = a_trajectory()
    files = {  # of one task each, by no means in the order of names
        "step-000010": (10, "late", False),
        "eval-000010": (10, "early", True),
        "expert": (0, "late", True),
        "eval-000000": (0, "early", False),
        "step-000002": (2, "early", True),
    }
    for name, (step, task, passed) in files.items():
        rollout = replace(plain, id=name, task_id=task, policy_step=step, passed=passed, reward=float(passed))
        write_segment(tmp_path / "trajectories" / f"{name}.rollouts", [rollout])

    list_command(str(tmp_path), wanted=Wanted(), limit=9)
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[1:6]] == [
        "expert",
        "eval-000000",
        "step-000002",
        "step-000010",
        "eval-000010",
    ]
    assert "training: 2 rollouts, 1 passed, 1 unsolved, 0 errored\nevaluation: 2 rollouts, 1 passed" in said

    def counted(by: str, sort: str = "") -> list[tuple[str, str, float]]:
        grouped_command(str(tmp_path), wanted=Wanted(), by=by, sort=sort, limit=9, as_json=True)
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(each["kind"], each[by], each["reward"]) for each in found]

    assert counted("step")[:2] == [("step", "000002", 1.0), ("step", "000010", 0.0)]
    assert counted("task") == [
        ("step", "early", 1.0),
        ("step", "late", 0.0),
        ("eval", "early", 0.5),
        ("expert", "late", 1.0),
    ]
    assert counted("task", "hardest")[:2] == [("step", "late", 0.0), ("step", "early", 1.0)]
    assert [kind for kind, *_ in counted("env")] == ["step", "eval", "expert"]
    grid_command(str(tmp_path), wanted=Wanted(), limit=9)
    grids = capsys.readouterr().out.split("\n\n")
    assert ["late", "0/1"] in [line.split() for line in grids[0].splitlines()]
    assert ["early", "0/1", "1/1"] in [line.split() for line in grids[1].splitlines()]


@pytest.mark.parametrize(
    "words", [["--sort", "hardest"], ["--by", "task", "--sort", "turns"], ["--grid", "--sort", "time"]]
)
def test_an_order_that_does_not_apply_is_refused(words: list[str]) -> None:
    refused = CliRunner().invoke(app, ["replay", "list", str(RUN), *words])
    assert "does not apply here" in str(refused.exception)


def test_rollouts_are_found_by_their_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = a_trajectory()
    said = replace(
        plain, id="said", actions=("bash ls /tmp", *plain.actions[1:]), grader_output="2 of 3 Passed"
    )
    write_segment(tmp_path / "trajectories" / "step-000001.rollouts", [plain, said])

    def listed(**wanted: str) -> list[str]:
        list_command(str(tmp_path), wanted=Wanted(**wanted), limit=9, as_json=True)
        return [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]

    assert listed(action="bash *") == ["said"]
    assert listed(text="OF 3 passed") == ["said"]
    assert listed(action="bash *", text="nowhere") == []
    assert listed(text=plain.first_observation[:5]) == [plain.id, "said"]


def test_outcomes_are_called_the_same_everywhere(tmp_path: Path) -> None:
    plain = replace(a_trajectory(), hosting=Hosting(), passed=False, turn_labels=())
    at_the_end = RolloutFailure("infra", "the grader broke", len(plain.turns))
    late = RolloutFailure("deadline_exceeded", "the rollout's turns took longer than 1 s", len(plain.turns))
    outcomes = {
        "passed": replace(plain, passed=True),
        "unsolved": plain,
        "errored": replace(plain, lost_tokens=3).as_failed(at_the_end),
        "late": plain.as_failed(late),
        "policy": plain.as_failed(replace(at_the_end, code="policy")),
        "unmade": replace(plain, hosting=None).as_failed(at_the_end),
        "ungraded": plain.as_failed(at_the_end),
        "unjudged": plain.as_failed(replace(at_the_end, code="reward_unanswered")),
    }
    written = [replace(each, id=name) for name, each in outcomes.items()]
    write_segment(tmp_path / "trajectories" / "step-000001.rollouts", written)

    def listed(*words: str) -> list[str]:
        said = CliRunner().invoke(app, ["replay", "list", str(tmp_path), "--json", *words])
        return [json.loads(line)["id"] for line in said.stdout.splitlines()]

    names = list(outcomes)
    assert listed("--unsolved") == ["unsolved"]
    assert listed("--errored") == names[2:]
    assert listed("--ungraded") == ["ungraded", "unjudged"]
    assert listed("--passed", "--unsolved") == names[:2]
    for flag, first in (("--unsolved", "unsolved"), ("--errored", "errored"), ("--ungraded", "ungraded")):
        shown = CliRunner().invoke(app, ["replay", "show", str(tmp_path), flag])
        assert shown.stdout.startswith(f"{first} ")


@pytest.mark.parametrize("words", [["list", "--failed"], ["show", "--next-failed"], ["score", "--failed"]])
def test_what_outcomes_were_called_before_is_refused_with_their_names(words: list[str]) -> None:
    refused = CliRunner().invoke(app, ["replay", words[0], str(RUN), words[1]])
    assert isinstance(refused.exception, InvalidArgument)
    assert all(flag in str(refused.exception) for flag in ("--unsolved", "--errored", "--ungraded"))
    helped = CliRunner().invoke(app, ["replay", words[0], "--help"]).stdout
    assert "--ungraded" in helped
    assert words[1] not in helped


def test_the_next_unsolved_rollout_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = a_trajectory()
    passes = [("a", True), ("b", False), ("c", True), ("d", False)]
    written = [replace(plain, id=name, passed=passed) for name, passed in passes]
    write_segment(tmp_path / "trajectories" / "step-000001.rollouts", written)

    def shown(identity: str | None) -> str:
        show_command(str(tmp_path), identity, tokens=False, next_one=Outcomes(unsolved=True))
        return capsys.readouterr().out.split()[0]

    assert [shown(identity) for identity in (None, "a", "b", "c")] == ["b", "b", "d", "d"]
    with pytest.raises(RecordError, match="after 'd' is unsolved"):
        shown("d")
    with pytest.raises(RecordError, match="no trajectory 'e'"):
        shown("e")


def test_a_run_whose_prompts_have_a_window_raises_no_alarm_about_contexts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = a_trajectory()
    anew = [replace(turn, parent=None) for turn in plain.turns]
    write_segment(tmp_path / "trajectories" / "step-000001.rollouts", [replace(plain, turns=tuple(anew))])

    def counted() -> dict[str, int]:
        stats_command(str(tmp_path), as_json=True)
        contexts: dict[str, int] = json.loads(capsys.readouterr().out)["contexts_anew"]
        return contexts

    assert sum(counted().values()) == len(anew) - 1
    for turns, found in ((0, len(anew) - 1), (1, 0)):
        (tmp_path / "config.toml").write_text(f'env = "frozen_lake"\n[agent]\nwindow_turns = {turns}\n')
        assert sum(counted().values()) == found
        stats_command(str(tmp_path), as_json=False)
        show_command(str(tmp_path), None, tokens=False)
        said = capsys.readouterr().out
        assert said.count("as agent.window_turns=1 says") == 2 * turns
        assert said.count("context begun anew") == found


def test_a_context_after_a_summary_raises_no_alarm() -> None:
    plain = next(each for each in read_segment(RUN / "trajectories" / "expert.traj") if len(each.turns) > 2)
    turns = tuple(replace(turn, parent=None) for turn in plain.turns)
    labels = (TurnLabel.SUMMARY, *[TurnLabel.MAIN] * (len(turns) - 1))
    found = Statistics()
    collect([(Path("step-000001.rollouts"), replace(plain, turns=turns, turn_labels=labels))], found)
    assert found.contexts == {"main": len(turns) - 2}


def test_a_run_of_a_scripts_own_environment_is_counted_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_segment(tmp_path / "trajectories" / "step-000001.rollouts", [a_trajectory()])
    (tmp_path / "config.toml").write_text('env = "of_a_script"\n[agent]\nwindow_turns = 1\n')
    (tmp_path / "own.json").write_text('{"env": ["of_a_script"]}')
    stats_command(str(tmp_path), as_json=False)
    assert "as agent.window_turns=1 says" in capsys.readouterr().out
