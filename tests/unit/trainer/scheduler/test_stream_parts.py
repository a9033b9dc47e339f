"""What a stream is made of: settings, admission, the records that wait, why a rollout is set aside, and the audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent_runtime.store import encode
from agent_runtime.types import Trajectory, VersionTokens
from rock_env.errors import InvalidArgument
from trainer.config import TrainConfig
from trainer.records import Records
from trainer.rollout.filling import newest_version, why_set_aside
from trainer.scheduler.admission import Admission
from trainer.scheduler.journal import JOURNAL, Entry, Journal, audit, entries, learned_batches
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, record_of, script_of


def config(**rollout: object) -> TrainConfig:
    own = {
        "mode": "stream",
        "staleness": 2,
        "batching": "eager",
        "groups_per_step": 3,
        "group_size": 2,
        **rollout,
    }
    return TrainConfig.model_validate({"steps": 5, "rollout": own})


def played() -> Trajectory:
    request = Plans(config()).plan(1).requests[0]
    return record_of(request, replace(script_of(request, FleetTimes()), is_lost=False), 1, {0: 0, 1: 0})


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ({"batching": "lockstep"}, "got rollout.batching='lockstep', expected 'eager'"),
        (
            {"mode": "pipeline", "spare_groups": 1},
            "rollout.spare_groups=1 would do nothing: got rollout.mode='pipeline'",
        ),
        ({"staleness": 0, "spare_groups": 1}, "rollout.staleness=0, expected 'stream' with at least 1"),
    ],
)
def test_settings_that_make_no_stream_are_refused(rollout: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        config(**rollout)
    assert said in str(refused.value)


def test_a_stream_is_refused_where_samplers_sleep_while_the_learner_learns() -> None:
    placement = {"pool": [{"cpus": 8}]}
    with pytest.raises(ValidationError, match=r"rollout\.mode='stream' samples while it learns"):
        TrainConfig.model_validate({**config().model_dump(), "placement": placement})


def test_without_lag_a_stream_is_synchronous() -> None:
    rollout = config(staleness=0).rollout
    assert (rollout.overlaps, rollout.streams, rollout.oldest(4)) == (False, False, None)
    rollout = config().rollout
    assert (rollout.overlaps, rollout.streams, rollout.oldest(4)) == (True, True, 1)


def test_admission_follows_the_versions_and_ends_with_the_run() -> None:
    admission, let_in = Admission(config(spare_groups=1), done=0), []
    for version in range(6):
        admission.learned(version)
        count = 0
        while admission.is_open:
            admission.let_in()
            count += 1
        let_in.append(count)
    assert let_in == [3 * 3 + 1, 3, 2, 0, 0, 0]  # 5 steps of 3 groups
    admission.give_back()
    assert admission.is_open


def test_groups_that_wait_are_kept_until_a_checkpoint_has_learned_them(tmp_path: Path) -> None:
    records, request = Records(tmp_path), Plans(config()).plan(1).requests[0]
    encoded = encode(record_of(request, script_of(request, FleetTimes()), 1, {0: 0}))
    for number in range(4):
        records.keep(number, [encoded, encoded])
    assert records.waiting(2) == [encoded, encoded]
    records.forget_after(0)
    records.forget_waiting(3, but={1})
    assert [len(records.waiting(number)) for number in range(4)] == [0, 2, 0, 2]


def test_a_rollout_is_set_aside_for_its_age_where_no_token_is_within_the_lag() -> None:
    assert played().turns[0].spans == (VersionTokens(0, 1), VersionTokens(1, 1))
    assert newest_version(played()) == 1
    assert why_set_aside(played(), config(), 4) == "group without variance"
    assert why_set_aside(played(), config(), 5) == "too old"
    assert why_set_aside(played(), config(mode="pipeline"), 5) == "group without variance"


def written(folder: Path, *, learned: list[str], open_rollouts: list[str]) -> Path:
    first = Journal(folder, done=None)
    first.begin()
    first.admitted(1, 0, ["a", "b"])
    first.admitted(1, 0, ["c"])
    first.formed(1)
    first.admitted(2, 0, ["d"])
    first.consumed(1, ["a"], [], {"g": ("expert", 2, 0)})
    first.close()
    second = Journal(folder, done=1)
    second.begin(open_rollouts)
    second.formed(2)
    second.consumed(2, learned, [])
    second.close()
    return folder / JOURNAL


def test_the_audit_knows_what_a_stream_has_under_way(tmp_path: Path) -> None:
    found = audit(entries(written(tmp_path, learned=["b"], open_rollouts=["b", "c"])))
    assert (found.consumed, found.lost, found.twice, found.open) == (2, [], [], ["c"])


def test_the_audit_misses_what_a_checkpoint_forgot(tmp_path: Path) -> None:
    assert audit(entries(written(tmp_path, learned=["b"], open_rollouts=["b"]))).lost == ["c"]


def test_the_audit_tells_what_was_learned_twice(tmp_path: Path) -> None:
    assert audit(entries(written(tmp_path, learned=["a"], open_rollouts=["b", "c"]))).twice == ["a"]


def test_what_a_step_learned_is_what_the_last_process_learned(tmp_path: Path) -> None:
    written(tmp_path, learned=["b"], open_rollouts=["b", "c"])
    journal = Journal(tmp_path, done=1)
    journal.begin(["c"])
    journal.consumed(2, ["c"], [])
    journal.close()
    found = learned_batches(tmp_path)
    assert found[1] == Entry("consumed", 1, rollouts=["a"], anchors={"g": ("expert", 2, 0)})
    assert found[2].rollouts == ["c"]
    assert learned_batches(tmp_path / "no run") == {}


def test_a_journal_beyond_the_budget_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, learned=["b"], open_rollouts=["b", "c"])
    monkeypatch.setenv("ALE_MOST_DECODED_MIB", "1")
    with path.open("ab") as file:
        file.writelines(
            b'{"kind":"consumed","step":%d,"rollouts":["a","b"]}\n' % step for step in range(3, 10_003)
        )
    with pytest.raises(InvalidArgument, match="the budget is 1048576: it was not read"):
        learned_batches(tmp_path)


def test_a_file_that_is_no_group_stays_where_it_is(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep(1, [encode(played())])
    mine = tmp_path / "waiting" / "trajectories" / "group-000001 copy.rollouts"
    mine.write_bytes(b"")
    records.forget_waiting(but=())
    assert mine.exists()
    assert records.waiting(1) == []
