"""Copies of checkpoints in a real S3 server: what becomes of damage, outages, kills, and buckets of strangers."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_fleet import Listening, config_of
from s3_server import S3Server, flip, s3_server
from test_written_beside import Playing

from trainer import loop
from trainer.config import CheckpointOptions, TrainConfig
from trainer.copies import copying
from trainer.copies.copying import Copies
from trainer.copies.fetching import fetch
from trainer.errors import CheckpointError, ConfigError, CopyError, Halted, RunFolderError
from trainer.files import bucket, digests
from trainer.live.events import RunEvent
from trainer.run_state import SavedStates
from trainer.scheduler.journal import JOURNAL, audit, entries

PLACE = "s3://bucket/runs/lake"
PREFIX = "runs/lake"
PATIENCE_S = 120
"""Only a fault lasts as long."""


class Hearing(Listening):
    """An observer that keeps the events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[RunEvent] = []
        self.heard = {"fault": threading.Event(), "recovery": threading.Event()}

    def on_event(self, event: RunEvent) -> None:
        self.events.append(event)
        self.heard[event.kind].set()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(bucket, "_AGAIN", {"max_retries": 0})
        monkeypatch.setattr(loop, "Fleet", Playing)
        yield running


def config(**changes: Any) -> TrainConfig:
    return config_of(checkpoint={"every": 1, "keep": 2, "copy_to": PLACE}, **{"steps": 3, **changes})


def digest(run: Path, settings: TrainConfig, **how: Any) -> str:
    found = loop.train(settings, run, observer=Listening(), **how)
    assert found is not None
    return found.model_digest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A run that copied its checkpoints: the folder of the run and its bucket, and the digest of its model."""
    folder = tmp_path_factory.mktemp("made")
    with s3_server(folder / "s3") as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.setattr(loop, "Fleet", Playing)
        yield folder, digest(folder / "run", config())


@pytest.fixture
def copied(made: tuple[Path, str], server: S3Server) -> str:
    """Lay the copies of that run into the server; return the digest of its model."""
    shutil.copytree(made[0] / "s3" / "bucket", server.bucket, dirs_exist_ok=True)
    return made[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rollout",
    [
        {},
        {"mode": "pipeline", "staleness": 1},
        {"mode": "stream", "staleness": 1, "batching": "eager"},
    ],
    ids=["sync", "pipeline", "stream"],
)
def test_a_killed_run_goes_on_from_its_copies_alone(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch, rollout: dict[str, Any]
) -> None:
    settings = config(steps=4, rollout=rollout)

    def ends(self: Playing, step: int) -> None:
        if step == 3:
            raise Halted("the machine is gone")

    run = tmp_path / "run"
    with monkeypatch.context() as dying:
        dying.setattr(Playing, "asked", ends)
        with pytest.raises(Halted):
            loop.train(settings, run, observer=Listening())
    newest = server.copies(PREFIX)[-1]
    shutil.rmtree(run)
    assert fetch(PLACE, run, print) == newest
    resumed = digest(run, settings, resume=True)
    assert server.copies(PREFIX) == ["step-000003", "step-000004"]
    found = audit(entries(run / JOURNAL))
    assert (found.lost, found.twice) == ([], [])
    if settings.rollout.batching == "lockstep":
        whole = settings.model_copy(update={"checkpoint": CheckpointOptions(every=1)})
        assert resumed == digest(tmp_path / "whole", whole)


def test_a_fetched_checkpoint_holds_what_the_runs_own_did(
    tmp_path: Path, made: tuple[Path, str], copied: str
) -> None:
    fetch(PLACE, tmp_path / "fetched", print)
    ours, theirs = (SavedStates(folder).newest() for folder in (made[0] / "run", tmp_path / "fetched"))
    assert ours is not None
    assert theirs is not None
    assert ours.checkpoint.name == theirs.checkpoint.name == "step-000003"
    for path in ours.checkpoint.iterdir():
        assert path.read_bytes() == (theirs.checkpoint / path.name).read_bytes()


@pytest.mark.parametrize("file", ["state.msgpack", "train.safetensors", digests.FILE])
def test_the_copy_before_is_taken_where_a_bit_of_the_newest_is_flipped(
    tmp_path: Path, server: S3Server, copied: str, file: str
) -> None:
    flip(server.object_of(PREFIX, "step-000003", file))
    said: list[str] = []
    assert fetch(PLACE, tmp_path / "run", said.append) == "step-000002"
    assert len(said) == 1
    assert "the run goes on from step-000002, because the copy of step-000003 is damaged" in said[0]
    if file == digests.FILE:
        assert digest(tmp_path / "run", config(), resume=True) == copied
        assert fetch(PLACE, tmp_path / "again", print) == "step-000003", "what was damaged is written anew"


def test_so_it_is_where_a_bit_of_the_manifest_is(tmp_path: Path, server: S3Server, copied: str) -> None:
    flip(server.bucket / PREFIX / "copies" / "step-000003.json")
    assert fetch(PLACE, tmp_path / "run", print) == "step-000002"


def test_what_is_cut_off_or_missing_is_damage_and_without_a_whole_copy_nothing_is_left(
    tmp_path: Path, server: S3Server, copied: str
) -> None:
    cut = server.object_of(PREFIX, "step-000003", "train.safetensors")
    cut.write_bytes(cut.read_bytes()[:-1])
    server.restart()
    assert fetch(PLACE, tmp_path / "cut", print) == "step-000002"
    server.object_of(PREFIX, "step-000002", "state.msgpack").unlink()
    server.restart()
    why = r"no whole copy .* step-000003 is damaged.* step-000002 .* is not there"
    with pytest.raises(CheckpointError, match=why):
        fetch(PLACE, tmp_path / "none", print)
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / ".none.tmp").exists()


def test_training_goes_on_while_the_server_is_down_and_later_copies_arrive(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Hearing()

    def asked(self: Playing, step: int) -> None:
        if step == 2:
            server.stop()
        if step == 3:
            assert watcher.heard["fault"].wait(PATIENCE_S)
            server.start()
        if step == 4:
            assert watcher.heard["recovery"].wait(PATIENCE_S)

    monkeypatch.setattr(Playing, "asked", asked)
    assert loop.train(config(steps=5), tmp_path / "run", observer=watcher) is not None
    assert watcher.events[0].kind == "fault"
    assert f"was not copied to {PLACE}: cannot write {PLACE}/" in watcher.events[0].message
    assert server.copies(PREFIX) == ["step-000004", "step-000005"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    failed = [record["copies/failed"] for record in map(json.loads, lines) if record["kind"] == "train"]
    assert failed[0] == 0
    assert failed[-1] >= 1
    assert not [*(tmp_path / "run").glob(".copy-*")]


def test_who_stops_a_run_waits_for_its_last_copy(tmp_path: Path, server: S3Server) -> None:
    class Stops(Listening):
        @property
        def stop_requested(self) -> bool:  # type: ignore[override]
            return (tmp_path / "run" / "checkpoints" / "step-000001").exists()

    assert loop.train(config(), tmp_path / "run", observer=Stops()) is None
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert server.copies(PREFIX)[-1] == newest


def test_the_wait_for_the_last_copy_has_an_end(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def hang(self: Copies, *_: object) -> None:
        goes_on.wait(PATIENCE_S)

    monkeypatch.setattr(copying, "_END_S", 0.1)
    monkeypatch.setattr(Copies, "_copy", hang)
    watcher = Hearing()
    assert loop.train(config(), tmp_path / "run", observer=watcher) is not None
    assert "step-000003 was not copied" in watcher.events[-1].message
    goes_on.set()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "another", "403 Forbidden"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", "error sending request"),
    ],
)
def test_a_bucket_that_refuses_is_one_error_at_the_start(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(
        ConfigError, match=f"cannot write {PLACE}/probe: .*{said}.* Look at the bucket and AWS_"
    ):
        loop.train(config(), tmp_path / "run", observer=Listening())
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_bucket_that_is_not_there_is_one_error_too(tmp_path: Path, server: S3Server) -> None:
    with pytest.raises(
        ConfigError, match=r"copy_to: s3://absent/run/probe is not there\. Look at the bucket"
    ):
        Copies(CheckpointOptions(copy_to="s3://absent/run"), tmp_path).__enter__()


def test_a_new_run_does_not_take_over_the_prefix_of_another(tmp_path: Path, copied: str) -> None:
    with pytest.raises(ConfigError, match=r"holds a run, up to step-000003, expected none\. .* --from s3://"):
        loop.train(config(), tmp_path / "other", observer=Listening())


def test_without_the_package_the_start_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setattr(loop, "Fleet", Playing)
    with pytest.raises(ConfigError, match=r"needs the package obstore: pip install 'ale-rl\[s3\]'"):
        loop.train(config(), tmp_path / "run", observer=Listening())


@pytest.mark.parametrize(
    "place",
    [
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket/../x",
        "s3://b/x",
        "/tmp/x",
        "s3://bucket/a//b",
        "s3://bucket/a b",
    ],
)
def test_what_is_no_place_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="expected s3://BUCKET/PREFIX"):
        config_of(checkpoint={"copy_to": place})


def test_an_object_that_no_kept_copy_names_is_deleted(tmp_path: Path, server: S3Server) -> None:
    left = server.bucket / PREFIX / "objects" / ("0" * 32)
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a run that was killed as it copied")
    others = server.bucket / PREFIX / "notes.txt"
    others.write_bytes(b"not ours")
    digest(tmp_path / "run", config())
    named = {
        each.blake2b
        for step in server.copies(PREFIX)
        for each in digests.msgspec.json.decode(
            (server.bucket / PREFIX / "copies" / f"{step}.json").read_bytes(), type=digests.Sealed
        ).files.values()
    }
    assert {path.name for path in left.parent.iterdir()} == named
    assert others.exists()


def test_a_folder_that_holds_something_is_not_written_to(tmp_path: Path, server: S3Server) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty"):
        fetch(PLACE, tmp_path / "notes", print)
    with pytest.raises(CheckpointError, match="no whole copy of a run is in"):
        fetch(PLACE, tmp_path / "run", print)
    server.stop()
    with pytest.raises(CopyError, match="cannot list"):
        fetch(PLACE, tmp_path / "run", print)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "s3"]
    server.start()


CONTENT = b"a stranger's"
SHA = "f" * 32


@pytest.mark.parametrize(
    "names",
    [
        ["../outside"],
        ["/tmp/outside"],
        ["checkpoints/../../outside"],
        ["checkpoints/.lock"],
        ["trajectories//x"],
        [".lock"],
        ["summary.json"],
        ["config.toml/x"],
        ["config.toml\n"],
        ["waiting/a", "waiting/a/b"],
        ["waiting/" + "a" * 101],
        ["waiting/a/b/c/d/e"],
        ["waiting/a\x00b"],
        ["model/weights.safetensors"],
    ],
)
def test_a_manifest_of_a_stranger_writes_nowhere_else(
    tmp_path: Path, server: S3Server, names: list[str]
) -> None:
    plant(server, {name: digests.Digest(len(CONTENT), SHA) for name in names})
    with pytest.raises(CheckpointError, match=r"it names .*, expected files of a run"):
        fetch(PLACE, tmp_path / "in" / "run", print)
    assert [*(tmp_path / "in").iterdir()] == []


@pytest.mark.parametrize(
    ("each", "said"),
    [
        (digests.Digest(len(CONTENT) - 1, SHA), "expected at most 11"),
        (digests.Digest(-1, SHA), "expected at most -1"),
        (digests.Digest(len(CONTENT), SHA), "expected the digest"),
        (digests.Digest(len(CONTENT), "../copies"), "it names"),
        (digests.Digest(len(CONTENT), "e" * 32), "is not there"),
    ],
)
def test_an_object_of_a_stranger_is_what_its_manifest_says_or_refused(
    tmp_path: Path, server: S3Server, each: digests.Digest, said: str
) -> None:
    plant(server, {"config.toml": each})
    with pytest.raises(CheckpointError, match=said):
        fetch(PLACE, tmp_path / "run", print)


def test_a_manifest_that_is_huge_or_none_is_refused(tmp_path: Path, server: S3Server) -> None:
    plant(server, {})
    with pytest.raises(CheckpointError, match=r"holds no checkpoints/step-000001/digests\.json"):
        fetch(PLACE, tmp_path / "run", print)
    manifest = server.bucket / PREFIX / "copies" / "step-000001.json"
    for content, said in ((bytes(17 << 20), "expected at most 16777216"), (b"[" * 100_000, "cannot read")):
        manifest.write_bytes(content)
        with pytest.raises(CheckpointError, match=said):
            fetch(PLACE, tmp_path / "run", print)


def plant(server: S3Server, files: dict[str, digests.Digest]) -> None:
    """Put a copy into the bucket, sealed as ours are."""
    for folder, name, content in (
        ("copies", "step-000001.json", digests._encoded(digests.Sealed(files))),
        ("objects", SHA, CONTENT),
    ):
        (server.bucket / PREFIX / folder).mkdir(parents=True)
        (server.bucket / PREFIX / folder / name).write_bytes(content)
