"""Observers are told what `metrics.jsonl` holds, and none of them stops the run or makes it wait."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from observers_here import installed
from typer.testing import CliRunner

from ale import api
from ale.cli import app
from ale.training import training
from ale.watching import observing as observing_module
from ale.watching.observing import Observing, observing
from ale.watching.observing import _Process as Process
from rock_env.errors import UnknownName
from rock_env.plugins import given
from trainer.errors import ConfigError
from trainer.live.events import RunEvent, hear
from trainer.metrics import Evaluation, MetricsLog
from trainer.observers.base import GROUP

MINE = """
import json, os, time
from dataclasses import asdict

class Keeps:
    def begin(self, run):
        self.file = (run.folder / "kept.jsonl").open("a", buffering=1)
        self.keep(begin={**asdict(run), "folder": run.folder.name})
    def keep(self, **what):
        self.file.write(json.dumps(what) + "\\n")
    def record(self, step, kind, metrics):
        print("a library prints")
        self.keep(record=[step, kind, metrics])
    def end(self, outcome):
        self.keep(end=outcome)

class Raises(Keeps):
    def record(self, step, kind, metrics):
        raise RuntimeError(f"no such place" + " " * (step > 1))

class RaisesAtFirst(Keeps):
    def begin(self, run):
        raise OSError("who are you")

class Hangs(Keeps):
    def record(self, step, kind, metrics):
        time.sleep(1e6)

class HangsAtTheEnd(Keeps):
    def end(self, outcome):
        time.sleep(1e6)

class Exits(Keeps):
    def record(self, step, kind, metrics):
        os._exit(3)
"""
CLASSES = ("Keeps", "Raises", "RaisesAtFirst", "Hangs", "HangsAtTheEnd", "Exits")
SETTINGS = """
env = "frozen_lake"
algo = "grpo"
model = "/home/somebody/models/small"
steps = 3
[env_args]
size = 4
password = "sw0rdfish"
[agent]
kind = "chat"
[rollout]
rock_address = "https://user:hunter2@rock.example"
"""


class Watching:
    """An observer that keeps what it is told."""

    stop_requested = False

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_phase(self, name: str) -> None: ...

    def on_step(self, step: int, total: int, metrics: object) -> None: ...

    def on_eval(self, evaluation: Evaluation) -> None: ...

    def on_log(self, message: str) -> None:
        self.said.append(message)


@pytest.fixture(scope="module", autouse=True)
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "my_observers.py").write_text(MINE)
    (folder / "needs.py").write_text("import no_such_package\n")
    values = {f"my_{name}": f"my_observers:{name}" for name in CLASSES}
    values |= {"needs": "needs:Needs [more]", "my_nothing": "my_observers:Nothing"}
    known = {(GROUP, name): object() for name in values}  # to this process, which has looked already
    with installed(folder, values), given(known):
        yield


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes start slowly: the bounds are tested where something hangs."""
    for name in ("_READY_S", "_END_S"):
        monkeypatch.setattr(observing_module, name, 250.0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "config.toml").write_text(SETTINGS)
    return folder


def record(folder: Path, observer: Observing, steps: range, *, resume_step: int | None = None) -> None:
    log = MetricsLog(folder, resume_step=resume_step, observer=observer)
    for step in steps:
        log.write(step, "train", {"loss": step / 3, "gap": math.nan, "tokens": 12})
    log.close()


def fail(folder: Path, observer: Observing, closed: MetricsLog) -> None:
    record(folder, observer, range(1, 2))
    closed.write(2, "train", {})


def observed(run: Path, *names: str, steps: int = 3) -> list[str]:
    """Write a record of so many steps, observed by these; return what the run said."""
    watching = Watching()
    with observing(watching, run, names) as observer:
        observer.check()
        record(run, observer, range(1, steps + 1))
        observer.outcome = "finished"
    return watching.said


def kept(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "kept.jsonl").read_text().splitlines()]


def test_records_are_told_as_they_are_written(run: Path) -> None:
    assert observed(run, "my_Keeps") == []
    begin, *records, end = kept(run)
    assert end == {"end": "finished"}
    written = (run / "metrics.jsonl").read_text().splitlines()
    told = [
        json.dumps({"step": step, "kind": kind, **metrics})
        for step, kind, metrics in (each["record"] for each in records)  # type: ignore[misc]
    ]
    assert told == written
    assert begin["begin"]["name"] == "lake"  # type: ignore[index]


def test_no_text_of_the_settings_is_told_but_names_and_choices(run: Path) -> None:
    observed(run, "my_Keeps")
    assert kept(run)[0]["begin"]["settings"] == {  # type: ignore[index]
        "env": "frozen_lake",
        "algo": "grpo",
        "model": "small",
        "steps": 3,
        "env_args.size": 4,
        "agent.kind": "chat",
    }


def test_a_resumed_run_is_the_same_one_and_a_new_one_another(run: Path) -> None:
    for resume_step in (None, 2, None):
        with observing(Watching(), run, ["my_Keeps"]) as observer:
            record(run, observer, range(2), resume_step=resume_step)
            observer.outcome = "stopped"
    begun = [each["begin"] for each in kept(run) if "begin" in each]
    assert [each["resume_step"] for each in begun] == [None, 2, None]  # type: ignore[index]
    one, same, other = (each["id"] for each in begun)  # type: ignore[index]
    assert one == same != other
    assert [each["end"] for each in kept(run) if "end" in each] == ["stopped"] * 3


def test_processes_that_start_again_begin_again(run: Path) -> None:
    with observing(Watching(), run, ["my_Keeps"]) as observer:
        record(run, observer, range(1, 3))
        record(run, observer, range(2, 3), resume_step=1)
    assert [next(iter(each)) for each in kept(run)] == [
        *("begin", "record", "record", "end"),
        *("begin", "record", "end"),
    ]


def test_a_run_that_fails_ends_as_failed(run: Path) -> None:
    log = MetricsLog(run, resume_step=None)
    log.close()
    with pytest.raises(ValueError, match="closed"), observing(Watching(), run, ["my_Keeps"]) as observer:
        fail(run, observer, log)
    assert kept(run)[-1] == {"end": "failed"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raises", "failed: RuntimeError: no such place"),
        ("RaisesAtFirst", "failed: OSError: who are you. It is told nothing of this run."),
        ("Exits", "ended: its process is gone, and is told nothing more"),
    ],
)
def test_one_that_fails_is_named_once_and_the_others_go_on(run: Path, name: str, said: str) -> None:
    found = observed(run, f"my_{name}", "my_Keeps")
    assert found == [f"note: the observer 'my_{name}' {said}"]
    assert sum("record" in each for each in kept(run)) == 3


def test_one_that_hangs_is_left_behind(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing_module, "_WAITING", 5)
    monkeypatch.setattr(observing_module, "_END_S", 0.5)
    found = observed(run, "my_Hangs", steps=2000)  # more than the pipe holds
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2000
    assert [text.split("'")[2].split()[0] for text in found] == ["is", "has", "was"]


def test_all_are_told_the_end_before_one_is_waited_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[[Any, Any], None]:
        call = getattr(Process, name)

        def noted(process: Any, given: Any) -> None:
            order.append(name)
            call(process, given)

        return noted

    for name in ("tell_end", "end"):
        monkeypatch.setattr(Process, name, noting(name))
    observed(run, "my_Keeps", "my_Raises")
    assert order == ["tell_end", "tell_end", "end", "end"]
    assert kept(run)[-1] == {"end": "finished"}


def test_an_id_that_is_none_is_made_anew(run: Path) -> None:
    (run / "observed.id").write_bytes(b"\xff' OR '1'='1")
    with observing(Watching(), run, ["my_Keeps"]) as observer:
        record(run, observer, range(2), resume_step=2)
    assert re.fullmatch("[0-9a-f]{32}", kept(run)[0]["begin"]["id"])  # type: ignore[index]


def test_one_that_hangs_at_the_end_is_given_up(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing_module, "_END_S", 0.5)
    assert observed(run, "my_HangsAtTheEnd") == [
        "note: the observer 'my_HangsAtTheEnd' has not taken everything in time and is given up"
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [("needs", r"No module named 'no_such_package'.*pip install 'mine\[more\]'"), ("my_nothing", "Nothing")],
)
def test_one_that_does_not_load_is_an_error_before_the_run(run: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"--observe {name}: .*{why}"):
        observed(run, name)
    assert [path.name for path in run.iterdir()] == ["config.toml"]


def test_an_unknown_one_is_an_error_that_names_the_known(run: Path) -> None:
    with pytest.raises(UnknownName, match="my_Keeps"):
        observed(run, "my_Keep")


def test_ale_train_tells_those_it_names_and_opens_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    @contextmanager
    def page(folder: Path, say: object) -> Iterator[None]:
        opened.append(folder)
        yield

    def stopped(config: object, *, run_folder: Path, observer: Observing, **_: object) -> None:
        run_folder.mkdir()
        (run_folder / "config.toml").write_text(SETTINGS)
        record(run_folder, observer, range(1, 3))

    monkeypatch.setattr(training, "Page", page)
    monkeypatch.setattr(api, "train", stopped)
    run = tmp_path / "lake"
    words = ["train", "--env", "frozen_lake", "--algo", "grpo", "--run", str(run), "--quiet"]
    done = CliRunner().invoke(app, [*words, "--observe", "my_Keeps", "--observe", "tensorboard", "--console"])
    assert done.exit_code == training.EXIT_INTERRUPTED
    assert [next(iter(each)) for each in kept(run)] == ["begin", "record", "record", "end"]
    assert kept(run)[-1] == {"end": "stopped"}
    assert opened == [run]


def test_everything_else_passes_through(run: Path) -> None:
    watching = Watching()
    with observing(watching, run, []) as observer:
        tell: Callable[..., None] = observer.on_log
        tell("a word")
        hear(observer, RunEvent("fault", "something broke"))
        record(run, observer, range(1, 2))
    assert watching.said == ["a word", "note: something broke"]
    assert not (run / "observed.id").exists()
