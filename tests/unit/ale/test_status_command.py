"""`ale status` of a run that goes on, one that has finished, and one that was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ale.cli import app
from trainer.errors import RunFolderError
from trainer.live.door import Door, name_of
from trainer.live.inside import stacks
from trainer.live.status import Doing, Status


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    return folder


def said(*words: str) -> str:
    done = CliRunner().invoke(app, ["status", *words])
    assert done.exit_code == 0, done.output
    return done.output


def record(run: Path, step: int) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "train", "step": step}) + "\n")


def test_a_run_that_goes_on_says_what_it_does(run: Path) -> None:
    status = Status(7, "host", 2, 10, [Doing("learner", "learn", 3, 12.5)], 0, [], {})

    def answer(whole: bool) -> Status:
        status.stacks = stacks() if whole else {}
        return status

    with Door(name_of(run), answer):
        assert said(str(run)).splitlines() == [
            "step 2 of 10 is done; process 7 on host",
            "learner: learn of step 3, for 12.5 s",
        ]
        found = json.loads(said(str(run), "--json"))
        assert "thread MainThread" in said(str(run), "--stacks")
    assert (found["live"], found["step"], found["doing"][0]["what"]) == (True, 2, "learn")


def test_a_run_that_was_killed_says_how_far_it_came(run: Path) -> None:
    assert "Its last step on record is 0." in said(str(run))
    record(run, 1)
    record(run, 2)
    assert (
        "nobody answers: the run does not go on here. Its last step on record is 2, 0 s ago. Continue"
        in said(str(run))
    )
    assert json.loads(said(str(run), "--json")) == {"live": False, "step": 2, "finished": False}


def test_a_run_that_has_finished_says_so(run: Path) -> None:
    record(run, 5)
    (run / "summary.json").write_text("{}")
    assert said(str(run)) == "the run has finished after step 5\n"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["status", str(tmp_path / "none")])
    assert isinstance(done.exception, RunFolderError)
    assert "holds no run" in str(done.exception)
