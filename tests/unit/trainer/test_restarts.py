"""A run whose processes die: all are started again, and it goes on from its newest checkpoint, a bounded number of times."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
from local_fleet import Listening, Playing, config_of

from trainer import checkpoint, loop
from trainer.config import TrainConfig
from trainer.errors import ConfigError, Halted, Lost
from trainer.live.events import RunEvent
from trainer.metrics import METRICS, RunSummary

SAID = "the Learner process died (it was killed or crashed)"


class Losing(Playing):
    """A fleet one of whose processes dies when the rollouts of a step are asked for."""

    left: Counter[int]
    """How often still, by step."""
    refused: Iterator[bool]
    """Whether the fleet cannot be started, one after the other."""

    def __enter__(self) -> Losing:
        if next(self.refused):
            raise ConfigError("Ray could not reserve placement.pool within 60 s.")
        return self

    def asked(self, step: int) -> None:
        if self.left[step] > 0:
            self.left[step] -= 1
            raise Lost(f"{SAID}. What was saved before is intact: continue with --resume.")


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.setattr(loop, "Fleet", Losing)
    monkeypatch.setattr(Losing, "left", Counter(), raising=False)
    monkeypatch.setattr(Losing, "refused", repeat(False), raising=False)
    return config_of(steps=4, checkpoint={"every": 2, "keep": 9})


def trained(config: TrainConfig, folder: Path) -> tuple[RunSummary, list[RunEvent], list[float]]:
    """Return what the run came to, what was heard of it, and its restarts step by step."""
    watcher = Listening()
    summary = loop.train(config, folder, observer=watcher)
    assert summary is not None
    records = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    return summary, watcher.events, [record["restarts"] for record in steps]


def test_it_goes_on_from_its_newest_checkpoint_to_the_same_model(tmp_path: Path, config: TrainConfig) -> None:
    calm, events, restarts = trained(config, tmp_path / "calm")
    assert events == []
    assert restarts == [0, 0, 0, 0]
    Losing.left.update([1, 4, 4])
    summary, events, restarts = trained(config, tmp_path / "disturbed")
    assert summary.model_digest == calm.model_digest
    assert restarts == [1, 1, 3, 3]
    again = f"{SAID}. All processes of the run are started again, and it goes on from checkpoint step-00000"
    back = RunEvent("recovery", "all processes of the run are back")
    assert events == [*chain.from_iterable((RunEvent("fault", again + at), back) for at in "022")]


def test_it_halts_where_they_die_without_a_checkpoint_between(tmp_path: Path, config: TrainConfig) -> None:
    Losing.left[3] = 9
    watcher = Listening()
    with pytest.raises(Lost, match="the Learner process died"):
        loop.train(config, tmp_path, observer=watcher)
    assert Losing.left[3] == 9 - 4
    assert [event.kind for event in watcher.events] == ["fault", "recovery"] * 3
    Losing.left.clear()
    assert loop.train(config, tmp_path, observer=Listening(), resume=True)


def test_a_checkpoint_between_has_it_count_anew(tmp_path: Path, config: TrainConfig) -> None:
    Losing.left.update({1: 3, 3: 3})
    assert trained(config, tmp_path)[2][-1] == 6


def test_what_cannot_be_started_again_halts_the_run_and_is_no_wrong_setting(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Losing.left[3] = 1
    monkeypatch.setattr(Losing, "refused", iter([False, True]))
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"outage_s": 0.0})})
    with pytest.raises(
        Halted, match=r"Learner process died .*cannot be started again: Ray could not reserve"
    ):
        loop.train(config, tmp_path, observer=Listening())


def test_one_that_somebody_stops_is_not_started_again(tmp_path: Path, config: TrainConfig) -> None:
    class Stops(Listening):
        """Somebody who stops the run, whose processes die of the same Ctrl-C."""

        @property
        def stop_requested(self) -> bool:  # type: ignore[override]
            return not Losing.left[1]

    Losing.left[1] = 1
    with pytest.raises(Lost):
        loop.train(config, tmp_path, observer=Stops())


def test_a_cluster_or_a_server_that_is_away_then_is_waited_for(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    Losing.left[3] = 1
    monkeypatch.setattr(loop, "_AGAIN_S", 0.0)
    monkeypatch.setattr(Losing, "refused", iter([False, True, True, False]))
    _, events, restarts = trained(config, tmp_path)
    assert restarts == [0, 0, 1, 1]
    assert [event.kind for event in events] == ["fault", "fault", "recovery"]
    assert "cannot be started yet, they are tried again for" in events[1].message


def test_whoever_waits_for_them_can_stop(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stops(Listening):
        """Somebody who stops the run when it says that it waits."""

        @property
        def stop_requested(self) -> bool:  # type: ignore[override]
            return any("cannot be started yet" in event.message for event in self.events)

    Losing.left[3] = 1
    monkeypatch.setattr(Losing, "refused", chain([False], repeat(True)))
    watcher = Stops()
    assert loop.train(config, tmp_path, observer=watcher) is None
    assert [event.kind for event in watcher.events] == ["fault", "fault"]


def test_what_does_not_start_at_first_is_started_once(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: Losing) -> Losing:
        raise Lost("a process could not start: it was killed")

    monkeypatch.setattr(Losing, "__enter__", dies)
    watcher = Listening()
    with pytest.raises(Halted, match="could not start"):
        loop.train(config, tmp_path, observer=watcher)
    assert watcher.events == []


def test_an_edit_of_the_settings_meanwhile_is_not_taken_for_the_runs_own(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text("steps = 4")

    def edits(self: Losing, step: int) -> None:
        if step == 1 and "#" not in (tmp_path / "config.toml").read_text():
            (tmp_path / "config.toml").write_text("steps = 9  # edited")
            raise Lost(f"{SAID}.")

    monkeypatch.setattr(Losing, "asked", edits)
    trained(config, tmp_path)
    assert checkpoint.kept_settings(tmp_path / "checkpoints") == "steps = 4"
