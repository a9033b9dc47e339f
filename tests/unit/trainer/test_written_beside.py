"""Checkpoints that a thread writes while the run goes on: what waits for them, and what becomes of one that fails."""

from __future__ import annotations

import errno
import json
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from local_fleet import Listening, Playing, config_of

from trainer import checkpoint, loop
from trainer.config import TrainConfig
from trainer.errors import Halted, RunFolderError
from trainer.files import digests
from trainer.files.finishing import Finishing
from trainer.records import Records
from trainer.timeline import BESIDE, TIMELINE, Span, bound_by, busy

PATIENCE_S = 120
"""Only a fault lasts as long."""


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.setattr(loop, "Fleet", Playing)
    return config_of(steps=3, checkpoint={"every": 1, "keep": 9})


def sealing(monkeypatch: pytest.MonkeyPatch, step: int, first: Callable[[Path], None]) -> None:
    """Have `first` called with the folder of this step's checkpoint, which the learner has filled, before it is sealed."""
    seal = digests.seal

    def sealed(folder: Path, **how: Any) -> None:
        if folder.name == f".step-{step:06d}.tmp":
            first(folder)
        seal(folder, **how)

    monkeypatch.setattr(digests, "seal", sealed)


def full(folder: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def digest(config: TrainConfig, run: Path, **how: Any) -> str:
    found = loop.train(config, run, observer=Listening(), **how)
    assert found is not None
    return found.model_digest


def test_the_next_batch_is_sampled_before_a_checkpoint_is_written(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled = threading.Event()
    monkeypatch.setattr(Playing, "asked", lambda _, step: sampled.set() if step == 2 else None)
    seen: list[list[str]] = []

    def wait(folder: Path) -> None:
        assert sampled.wait(PATIENCE_S), "the run waits for its checkpoint"
        seen.append(names(tmp_path))

    sealing(monkeypatch, 1, wait)
    loop.train(config, tmp_path, observer=Listening())
    assert seen == [[".step-000001.tmp", "step-000000"]]
    assert names(tmp_path) == [f"step-00000{step}" for step in range(4)]
    spans = [json.loads(line) for line in (tmp_path / TIMELINE).read_text().splitlines()]
    written = [(span["what"], span["step"]) for span in spans if span["role"] == "checkpoint"]
    assert {(what, step) for what in ("save", BESIDE) for step in range(4)} == {*written}


def test_one_is_written_at_a_time(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, seal, order = Playing.begin_save, digests.seal, list[str]()

    def begin_save(self: Playing, folder: Path) -> Callable[[], object]:
        order.append(f"begin {folder.name}")
        return begun(self, folder)

    def sealed(folder: Path, **how: Any) -> None:
        seal(folder, **how)
        order.append(f"end {folder.name}")

    monkeypatch.setattr(Playing, "begin_save", begin_save)
    monkeypatch.setattr(digests, "seal", sealed)
    loop.train(config, tmp_path, observer=Listening())
    ours = [each for each in order if "step" in each]  # the model is sealed, too
    assert ours == [f"{which} .step-00000{step}.tmp" for step in range(4) for which in ("begin", "end")]


def test_a_stop_returns_when_the_last_checkpoint_is_on_the_disk(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    class Stops(Listening):
        """Somebody who stops the run as a checkpoint is being written."""

        @property
        def stop_requested(self) -> bool:  # type: ignore[override]
            if (tmp_path / "checkpoints" / ".step-000001.tmp").exists():
                asked.set()
            return asked.is_set()

    def slowly(folder: Path) -> None:
        assert asked.wait(PATIENCE_S)
        time.sleep(0.2)  # who does not wait is gone by now

    sealing(monkeypatch, 1, slowly)
    assert loop.train(config, tmp_path, observer=Stops()) is None
    assert names(tmp_path) == ["step-000000", "step-000001"]
    assert checkpoint.check(tmp_path / "checkpoints" / "step-000001")


def test_what_the_disk_refuses_is_one_error_and_the_run_goes_on_from_the_one_before(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as refused:
        sealing(refused, 2, full)
        with pytest.raises(RunFolderError, match=r"cannot write checkpoint 2 .* No space left .* Free space"):
            loop.train(config, tmp_path / "run", observer=Listening())
    assert names(tmp_path / "run") == ["step-000000", "step-000001"]
    assert digest(config, tmp_path / "run", resume=True) == digest(config, tmp_path / "whole")


def test_that_of_the_last_step_is_an_error_too(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealing(monkeypatch, 3, full)
    with pytest.raises(RunFolderError, match="cannot write checkpoint 3"):
        loop.train(config, tmp_path, observer=Listening())


def test_where_the_run_has_failed_as_well_both_are_told(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    halts = threading.Event()

    def halt(self: Playing, step: int) -> None:
        if step == 2:
            halts.set()
            raise Halted("the server died")

    def refuse(folder: Path) -> None:
        assert halts.wait(PATIENCE_S)
        full(folder)

    monkeypatch.setattr(Playing, "asked", halt)
    sealing(monkeypatch, 1, refuse)
    watcher = Listening()
    with pytest.raises((Halted, RunFolderError)) as raised:
        loop.train(config, tmp_path, observer=watcher)
    told = [str(raised.value), *watcher.said]
    assert any("cannot write checkpoint 1" in said for said in told), told


class Killed(BaseException):
    """What ends a process at once."""


def test_a_kill_between_what_the_learner_wrote_and_the_seal_costs_no_number(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(folder: Path) -> None:
        assert {path.name for path in folder.iterdir()} == {"state.msgpack", "train.safetensors"}
        raise Killed

    run = tmp_path / "run"
    with monkeypatch.context() as killed:
        sealing(killed, 2, kill)
        with pytest.raises(Killed):
            loop.train(config, run, observer=Listening())
    assert names(run) == [".step-000002.tmp", "step-000000", "step-000001"]
    assert digest(config, run, resume=True) == digest(config, tmp_path / "whole")
    assert names(run) == names(tmp_path / "whole")


def test_a_stream_forgets_no_group_before_its_checkpoint_is_there(
    tmp_path: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, there = Records.forget_waiting, list[list[str]]()

    def forget_waiting(self: Records, *below: float, but: Collection[int]) -> None:
        if below:
            there.append(names(tmp_path))
        forget(self, *below, but=but)

    monkeypatch.setattr(Records, "forget_waiting", forget_waiting)
    as_stream = {"mode": "stream", "staleness": 1, "batching": "eager"}
    digest(config.model_copy(update={"rollout": config.rollout.model_copy(update=as_stream)}), tmp_path)
    assert there == [[f"step-00000{step}" for step in range(last + 1)] for last in (1, 2, 3, 3)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16m", "ale-test", str(folder)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small disk, which needs root: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full_as_a_checkpoint_is_sealed_costs_no_number(
    tmp_path: Path, disk: Path, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(folder: Path) -> None:
        with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    with monkeypatch.context() as filled:
        sealing(filled, 1, fill)
        with pytest.raises(RunFolderError, match="No space left"):
            loop.train(config, disk / "run", observer=Listening())
    assert names(disk / "run") == ["step-000000"]
    (disk / "filler").unlink()
    assert digest(config, disk / "run", resume=True) == digest(config, tmp_path / "whole")


def test_an_error_is_raised_once_by_whoever_asks_next() -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "worn out")

    for ask in ("wait", "begin"):
        finishing = Finishing()
        finishing.begin(fail)
        with pytest.raises(OSError, match="worn out"):
            finishing.begin(lambda: None) if ask == "begin" else finishing.wait()
        finishing.wait()


def test_to_check_waits_for_nothing() -> None:
    finishing, goes_on = Finishing(), threading.Event()
    finishing.check()

    def wait() -> None:
        goes_on.wait(PATIENCE_S)

    finishing.begin(wait)
    finishing.check()
    goes_on.set()
    finishing.wait()
    finishing.check()


def test_the_time_of_a_checkpoint_beside_is_the_drivers_or_whoevers_else_it_is() -> None:
    spans = [
        Span("learner", "learn", 1, 0, 2),
        Span("checkpoint", "save", 1, 2, 3),
        Span("checkpoint", BESIDE, 1, 2, 8),
        Span("environments", "play", 2, 4, 6),
    ]
    assert bound_by(spans, 0, 10) == {
        "learner": 0.2,
        "environments": 0.2,
        "checkpoint": 0.1,
        "driver": 0.5,
    }
    assert busy(spans, 0, 10)["checkpoint"] == 0.6
