"""The rows kept beside the records: the same answers with and without them, whatever became of them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from trajectory_logs import write_log

from agent_runtime.errors import CorruptTrajectory
from agent_runtime.store import (
    TrajectoryReader,
    encode,
    read_at,
    read_segment,
    segment_path,
    write_segment,
)
from agent_runtime.types import Trajectory
from ale.errors import RecordError
from ale.replay import rows as rows_module
from ale.replay.records import find, iterate
from ale.replay.rows import INDEX, row_of, rows

KEPT = Path(__file__).parents[1] / "kept" / "every_field.traj"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (1, 2, 3):
        named = [replace(t, id=f"{step}-{t.id}") for t in read_segment(KEPT)]
        write_segment(segment_path(tmp_path, "step", step), named)
    return tmp_path


def expected(run: Path) -> list[tuple[Path, object]]:
    return [(path, row_of(each).id) for path, each in iterate(str(run))]


def ids(run: Path) -> list[tuple[Path, object]]:
    return [(path, row.id) for path, row in rows(str(run))]


def test_rows_are_those_of_the_records_and_lead_to_them(run: Path) -> None:
    for _ in range(2):  # made, then read
        for (path, row), (same, trajectory) in zip(rows(str(run)), iterate(str(run)), strict=True):
            assert path == same
            assert row == replace_offset(row_of(trajectory), row.offset)
            assert encode(read_at(path, row.offset)) == encode(trajectory)
    assert len(list((run / "trajectories" / INDEX).iterdir())) == 3


def replace_offset(row: rows_module.Row, offset: int) -> rows_module.Row:
    return rows_module.Row(*[*list(row_values(row))[:-1], offset])


def row_values(row: rows_module.Row) -> list[object]:
    return [getattr(row, name) for name in row.__struct_fields__]


def test_kept_rows_are_read_and_no_record(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ids(run)
    monkeypatch.setattr(rows_module, "TrajectoryReader", None)
    assert ids(run) == first


def test_a_changed_file_gets_new_rows(run: Path) -> None:
    ids(run)
    path = segment_path(run, "step", 2)
    write_segment(path, [replace(each, id="other") for each in read_segment(KEPT)])
    os.utime(path, ns=(1, 1))
    assert ids(run) == expected(run)
    log = run / "trajectories" / "log.rollouts"
    for number in range(3):
        write_log(
            log, (replace(next(iter(read_segment(KEPT))), id=f"log-{each}") for each in range(number + 1))
        )
        assert ids(run) == expected(run)


@pytest.mark.parametrize("content", [b"", b"\x00", b"nonsense" * 100, b"\x94\x01\x00\x00\x90"])
def test_rows_that_cannot_be_read_are_made_again(run: Path, content: bytes) -> None:
    ids(run)
    for kept in (run / "trajectories" / INDEX).iterdir():
        kept.write_bytes(content)
    assert ids(run) == expected(run)
    shutil.rmtree(run / "trajectories" / INDEX)
    assert ids(run) == expected(run)


def test_a_folder_that_may_not_be_written_does_without(run: Path) -> None:
    (run / "trajectories" / INDEX).write_text("in the way")
    assert ids(run) == expected(run) == ids(run)
    assert find(str(run), f"3-{second().id}").id == f"3-{second().id}"


def second() -> Trajectory:
    return list(read_segment(KEPT))[1]


def test_damage_is_told_each_time_and_hides_no_row(run: Path) -> None:
    ids(run)
    path = segment_path(run, "step", 2)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    found: list[str] = []

    def read() -> None:
        found.extend(row.id for _, row in rows(str(run)))

    for count in (5, 10):
        with pytest.raises((CorruptTrajectory, RecordError)):
            read()
        assert len(found) == count


def test_a_rollout_is_found_by_its_row_and_checked(run: Path) -> None:
    name = f"2-{second().id}"
    assert find(str(run), name).id == name
    kept = run / "trajectories" / INDEX / "step-000002.rollouts.msgpack"
    path = segment_path(run, "step", 2)
    wrong = [rows_module.Row(*[*row_values(row)[:-1], row.offset + 1]) for _, row in rows(str(path))]
    state = rows_module._state(path)
    assert state is not None
    rows_module._write(path, state, wrong)
    assert kept.is_file()
    assert find(str(run), name).id == name  # its row leads nowhere, so the records are searched
    with pytest.raises(RecordError, match="no trajectory 'x'"):
        find(str(run), "x")


@pytest.mark.parametrize("offset", [-1, 0, 17, 1 << 40])
def test_no_record_is_read_where_none_begins(offset: int) -> None:
    with pytest.raises(CorruptTrajectory):
        read_at(KEPT, offset)
    places = [at for at, _ in TrajectoryReader(KEPT).located()]
    assert [read_at(KEPT, at).id for at in places] == [each.id for each in read_segment(KEPT)]


def test_no_row_is_kept_through_a_link(run: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (run / "trajectories" / INDEX).symlink_to(elsewhere)
    assert ids(run) == expected(run)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_file_of_rows_is_replaced_and_not_opened(run: Path, tmp_path: Path, kind: str) -> None:
    kept = run / "trajectories" / INDEX / "step-000002.rollouts.msgpack"
    other = tmp_path / "other"
    other.write_text("mine")
    ids(run)
    kept.unlink()
    if kind == "pipe":
        os.mkfifo(kept)
    else:
        kept.symlink_to(other)
    assert ids(run) == expected(run)
    assert kept.is_file()
    assert not kept.is_symlink()
    assert other.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_no_row_is_kept_in_the_folder_of_another_user(run: Path) -> None:
    index = run / "trajectories" / INDEX
    index.mkdir()
    os.chown(index, 12345, 12345)
    assert ids(run) == expected(run)
    assert not list(index.iterdir())
