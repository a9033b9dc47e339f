"""The real packages behind the observers: what they keep of a small run is what `metrics.jsonl` holds."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from local_fleet import config_of, local_run
from observers_here import installed

ID = "0123456789abcdef0123456789abcdef"
SETTINGS = {"env": "frozen_lake", "seed": 7, "optim.lr": 1e-3, "agent.system": False}
VALUES = {
    "wandb": "trainer.observers.wandb:Wandb [wandb]",
    "trackio": "trainer.observers.trackio:Trackio [trackio]",
    "mlflow": "trainer.observers.mlflow:MLflow [mlflow]",
}
Records = list[dict[str, Any]]
SECRET = "sw0rdfish-hunter2"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """What a small run wrote, and a number that is none."""
    folder = tmp_path_factory.mktemp("run")
    local_run(folder, config_of())
    written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {each["kind"] for each in written} >= {"train", "eval", "warmup"}
    return [*written, {"step": 3, "kind": "train", "loss": math.nan, "pass@2": 0.1 + 0.2}]


def observe(folder: Path, name: str, records: Records, *, resume_step: int | None = None) -> None:
    """Have the process of an observer take the records, to its end."""
    if find_spec(name) is None:
        pytest.skip(f"the package {name} is not installed: pip install 'ale-rl[{name}]'")
    run = {"id": ID, "name": "lake", "folder": str(folder), "settings": SETTINGS, "resume_step": resume_step}
    lines: list[dict[str, Any]] = [{"begin": run}]
    for each in records:
        numbers = {key: value for key, value in each.items() if key not in ("step", "kind")}
        lines.append({"record": [each["step"], each["kind"], numbers]})
    lines.append({"end": "finished"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("TRACKIO_DIR", str(folder))
        patch.setenv("ALE_NOTIFY", SECRET)
        for variable in ("MLFLOW_TRACKING_URI", "WANDB_DIR"):
            patch.delenv(variable, raising=False)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "trainer.observers.process", name],
            input="".join(f"{json.dumps(line)}\n" for line in lines),
            capture_output=True,
            text=True,
            check=True,
        )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"ready": True}], done.stderr


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """The entry points of this tree, whichever ALE was installed."""
    (tmp_path / "site").mkdir()
    with installed(tmp_path / "site", VALUES):
        yield tmp_path


def same(kept: Records, written: Records) -> None:
    """Compare as text, in which a NaN is a NaN, and without telling 7 from 7.0."""
    one, other = (
        [
            {name: repr(float(value)) if name != "kind" else value for name, value in record.items()}
            for record in sorted(each, key=lambda record: (record["kind"], record["step"]))
        ]
        for each in (kept, written)
    )
    assert one == other


def number(text: str) -> float:
    return json.loads(text)  # type: ignore[no-any-return]


def wandb_items(path: Path) -> Iterator[Any]:
    """Yield the messages of a file of an offline run: a log of blocks as LevelDB writes it."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, piece = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        piece, at = piece + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # a whole message, or the last part of one
            record = Record()
            record.ParseFromString(piece)
            yield record
            piece = b""


def test_wandb_keeps_every_record(mine: Path, records: Records) -> None:
    observe(mine, "wandb", records)
    [path] = mine.glob("wandb/offline-run-*/*.wandb")
    kept, config = [], {}
    for record in wandb_items(path):
        if record.HasField("run"):
            assert (record.run.run_id, record.run.display_name) == (ID, "lake")
            config = {each.key: json.loads(each.value_json) for each in record.run.config.update}
        elif record.HasField("history"):
            items = {each.nested_key[0]: number(each.value_json) for each in record.history.item}
            [kind] = {name.partition("/")[0] for name in items if name[0] != "_"}
            values = {name.partition("/")[2]: value for name, value in items.items() if name[0] != "_"}
            kept.append({"kind": kind, **values})
    same(kept, records)
    config.pop("_wandb")
    assert config == SETTINGS
    assert not list(mine.glob("wandb/*/files/*"))  # neither code nor packages, diffs and metadata
    assert SECRET.encode() not in path.read_bytes()


def test_trackio_keeps_every_record(mine: Path, records: Records) -> None:
    observe(mine, "trackio", records)
    kept: dict[tuple[str, int], dict[str, Any]] = {}
    with sqlite3.connect(mine / "ale.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    database.close()
    assert {row[0] for row in rows} == {f"lake-{ID[:8]}"}
    for _, step, text in rows:
        for name, value in json.loads(text).items():
            kind, _, leaf = name.partition("/")
            kept.setdefault((kind, step), {"kind": kind, "step": step})[leaf] = value
    same(list(kept.values()), records)


def test_mlflow_keeps_every_record_and_goes_on_with_the_run(mine: Path, records: Records) -> None:
    observe(mine, "mlflow", records[:-1])
    observe(mine, "mlflow", records[-1:], resume_step=2)
    [run] = [path.parent for path in mine.glob("mlruns/*/*/params")]
    assert {path.name: path.read_text() for path in (run / "params").iterdir()} == {
        name: str(value) for name, value in SETTINGS.items()
    }
    found = {}
    for path in (run / "metrics").glob("*/*"):
        for line in path.read_text().splitlines():
            _, value, step = line.split(" ")
            found[path.parent.name, path.name, int(step)] = float(value)
    written = {
        (each["kind"], name.replace("/", ".").replace("@", "_"), each["step"]): float(value)
        for each in records
        for name, value in each.items()
        if name not in ("kind", "step")
    }
    assert {name: repr(value) for name, value in found.items()} == {
        name: repr(value) for name, value in written.items()
    }
