"""The journal: what a killed process leaves is read, and what was lost or learned twice is found."""

from __future__ import annotations

import resource
from pathlib import Path

import msgspec
import pytest

from trainer.config import RolloutOptions, TrainConfig
from trainer.errors import RunFolderError
from trainer.rollout.tasks import train_requests
from trainer.scheduler.journal import JOURNAL, BatchTally, Entry, Journal, audit, entries

CONFIG = TrainConfig(rollout=RolloutOptions(groups_per_step=1, group_size=2))


def requests(step: int) -> list:
    return train_requests(CONFIG, "{}", step, tasks=["train/0"])


def journal(folder: Path, done: int | None) -> Journal:
    opened = Journal(folder, done=done)
    opened.begin()
    return opened


def test_a_finished_plan_is_taken_where_it_is_the_same_and_its_weights_are_there(tmp_path: Path) -> None:
    first = journal(tmp_path, None)
    for step, version in ((1, 0), (2, 1), (3, 2)):
        first.planned(step, version, requests(step))
        first.finished(step, requests(step), BatchTally(tokens=step))
    first.close()
    again = journal(tmp_path, 1)
    again.close()
    assert again.kept() == {2}, "1 is learned, and version 2 is in no checkpoint"
    assert again.finished_before(2, 0, requests(2)) is None, "other weights"
    again = Journal(tmp_path, done=1)
    assert again.finished_before(2, 1, requests(3)) is None, "another plan"
    again = Journal(tmp_path, done=1)
    assert again.finished_before(2, 1, requests(2)) == BatchTally(tokens=2)
    assert again.finished_before(2, 1, requests(2)) is None, "once"
    assert Journal(tmp_path, done=None).kept() == set(), "a run that begins anew"


def test_a_torn_line_is_cut_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    opened = journal(tmp_path, None)
    opened.planned(1, 0, requests(1))
    opened.close()
    path = tmp_path / JOURNAL
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"consu')
    opened = journal(tmp_path, 1)
    opened.close()
    assert path.read_bytes() == whole + msgspec.json.encode(Entry("begun", 1)) + b"\n"
    path.write_bytes(whole + msgspec.json.encode(Entry("consumed", 1)))
    journal(tmp_path, 1).close()
    assert path.read_bytes() == whole + msgspec.json.encode(Entry("begun", 1)) + b"\n", "as it was read"
    path.write_bytes(whole + b"{}\n" + whole)
    with pytest.raises(
        RunFolderError, match=r"journal.jsonl line 3 is no entry .* Put the file back, or remove it"
    ):
        Journal(tmp_path, done=1)


def test_the_audit_finds_what_was_lost_and_what_was_learned_twice(tmp_path: Path) -> None:
    ids = [request.id for request in requests(1)]
    planned = Entry("planned", 1, rollouts=ids)
    begun = Entry("begun", 0)

    def found(*lines: Entry) -> tuple[int, list[str], list[str]]:
        (tmp_path / JOURNAL).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        result = audit(entries(tmp_path / JOURNAL))
        return result.consumed, result.lost, result.twice

    assert found(begun, planned, Entry("consumed", 1, rollouts=[ids[0], f"{ids[1]}-r2"])) == (2, [], [])
    assert found(begun, planned, Entry("consumed", 1, rollouts=ids[:1])) == (1, ids[1:], [])
    assert found(begun, planned, Entry("consumed", 1, rollouts=ids[:1], set_aside=ids[1:])) == (1, [], [])
    twice = Entry("consumed", 2, rollouts=ids[:1])
    assert found(begun, planned, Entry("consumed", 1, rollouts=ids), twice) == (3, [], ids[:1])
    again = (begun, planned, Entry("consumed", 1, rollouts=ids))
    assert found(*again, *again) == (2, [], []), "what a later process did again counts once"


def test_a_line_that_a_full_disk_cuts_off_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    opened, soft_hard = journal(tmp_path, None), resource.getrlimit(resource.RLIMIT_FSIZE)
    opened.planned(1, 0, requests(1))
    whole = (tmp_path / JOURNAL).read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, soft_hard[1]))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(RunFolderError, match="Free space, then continue with --resume"):
            opened.planned(2, 1, requests(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
    assert (tmp_path / JOURNAL).read_bytes() == whole
    opened.consumed(1, [request.id for request in requests(1)], [])  # somebody made room meanwhile
    opened.close()
    assert [entry.kind for entry in entries(tmp_path / JOURNAL)] == ["begun", "planned", "consumed"]


def test_the_audit_knows_who_was_let_in_before_a_checkpoint_however_often_a_run_goes_on() -> None:
    def let_in(*ids: str) -> Entry:
        return Entry("admitted", 1, rollouts=list(ids))

    first = (
        Entry("begun", 0),
        let_in("a"),
        let_in("b"),
        Entry("formed", 1),
        Entry("consumed", 1, rollouts=["a"]),
    )
    again = (Entry("begun", 1), let_in("c"), Entry("formed", 2), Entry("consumed", 2, rollouts=["c"]))
    assert audit([*first, *again]).lost == ["b"]
    assert audit([*first, *again, *again]).lost == ["b"], "c was let in after the checkpoint: it is no loss"
    kept = Entry("begun", 1, rollouts=["b"])
    found = audit([*first, kept, let_in("c"), Entry("consumed", 2, rollouts=["b"]), kept])
    assert (found.lost, found.open, found.consumed) == ([], ["b"], 1), "what is undone is under way again"
