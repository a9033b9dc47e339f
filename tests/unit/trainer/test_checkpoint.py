import errno
import shutil
from functools import partial

import msgspec
import pytest

from trainer import checkpoint
from trainer.errors import CheckpointError
from trainer.files import digests
from trainer.files.folder import remove_unfinished


class State(msgspec.Struct):
    step: int


def write(folder):
    (folder / "weights").write_bytes(b"w" * 1000)
    (folder / "inner").mkdir()
    (folder / "inner" / "optimizer").write_bytes(b"o" * 1000)


def save(*what, engine, **how):
    """Write a checkpoint at once."""
    return checkpoint.begin(*what, engine=lambda folder: partial(engine, folder), **how)()


def test_the_newest_checkpoints_are_kept(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, State(step), engine=write, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]
    assert checkpoint.read_state(checkpoint.latest(tmp_path), State).step == 3


def test_a_failed_save_leaves_the_one_before_and_no_rubbish(tmp_path):
    save(tmp_path, 1, State(1), engine=write, keep=2)

    def full(folder):
        write(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 2, State(2), engine=full, keep=2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_a_killed_save_is_not_seen(tmp_path):
    """What `kill -9` leaves behind: a temporary folder, or a folder without the controller's state."""
    save(tmp_path, 1, State(1), engine=write, keep=2)
    (tmp_path / ".step-000002.tmp").mkdir()
    (tmp_path / "step-000003").mkdir()
    assert checkpoint.latest(tmp_path).name == "step-000001"


def damage(path):
    """Flip one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["weights", "inner/optimizer", "state.msgpack", "digests.json"])
def test_the_state_before_a_damaged_one_is_taken_and_nothing_is_lost(tmp_path, name):
    first = save(tmp_path, 1, State(1), engine=write, keep=2)
    newest = save(tmp_path, 2, State(2), engine=write, keep=2)
    damage(newest / name)
    before = (newest / name).read_bytes()
    found = checkpoint.to_resume(tmp_path, State, steps_done=2)
    assert (found.checkpoint, found.state) == (first, State(1))
    (said,) = found.said
    assert "goes on from step-000001" in said
    assert str(newest / name) in said
    assert (tmp_path / "step-000002.damaged" / name).read_bytes() == before
    again = save(tmp_path, 2, State(2), engine=write, keep=2)
    assert checkpoint.to_resume(tmp_path, State, steps_done=2) == (again, State(2), ())
    damage(again / name)
    assert checkpoint.to_resume(tmp_path, State, steps_done=2).checkpoint == first
    assert (tmp_path / "step-000002.damaged-2" / name).is_file()


def test_where_no_state_is_whole_the_first_is_named_and_nothing_changes(tmp_path):
    for step in (1, 2):
        damage(save(tmp_path, step, State(step), engine=write, keep=2) / "weights")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(
        CheckpointError,
        match=r"step-000002/weights: expected the digest \w{32}, got \w{32}.*none of its 2 checkpoints is whole",
    ):
        checkpoint.to_resume(tmp_path, State, steps_done=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def cut(folder):
    (folder / "weights").write_bytes(b"w" * 999)


def lose(folder):
    (folder / "weights").unlink()


def add(folder):
    (folder / "version-00000001.safetensors").touch()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cut, "weights: expected 1000 bytes, got 999"),
        (lose, "weights: No such file"),
        (add, "version-00000001.safetensors: expected no such file"),
    ],
)
def test_what_differs_is_named(tmp_path, change, said):
    change(save(tmp_path, 1, State(1), engine=write, keep=2))
    with pytest.raises(CheckpointError, match=said):
        checkpoint.to_resume(tmp_path, State, steps_done=1)


def test_files_of_the_run_are_checked_with_its_states(tmp_path):
    experts = tmp_path / "trajectories" / "expert.rollouts"
    experts.parent.mkdir()
    experts.write_bytes(b"experts")
    beside = digests.listed(tmp_path, [experts, experts.with_name("absent")])
    folder = tmp_path / "checkpoints"
    save(folder, 1, State(1), engine=write, keep=2, beside=beside)
    assert checkpoint.to_resume(folder, State, steps_done=1).state == State(1)
    damage(experts)
    with pytest.raises(CheckpointError, match=r"expert\.rollouts: expected the digest"):
        checkpoint.to_resume(folder, State, steps_done=1)


def test_a_state_of_an_earlier_version_is_read_and_said_to_be_unchecked(tmp_path):
    (save(tmp_path, 1, State(1), engine=write, keep=2) / "digests.json").unlink()
    found = checkpoint.to_resume(tmp_path, State, steps_done=1)
    assert found.state == State(1)
    assert ["read unchecked" in said for said in found.said] == [True]


def test_what_killed_writers_left_is_removed(tmp_path):
    for name in (
        ".step-000002.tmp/weights",
        "checkpoints/.step-000002.tmp/weights",
        "trajectories/.a.rollouts.1.tmp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "mine.tmp").touch()
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checkpoints", "mine.tmp", "trajectories"]


def test_a_run_whose_checkpoints_are_gone_does_not_start_over(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint is left .* done 3 steps: it would start over"):
        checkpoint.to_resume(tmp_path, State, steps_done=3)
    assert checkpoint.to_resume(tmp_path, State, steps_done=0) is None


def test_what_is_saved_in_the_warm_up_comes_before_any_step(tmp_path):
    for step in (-12, -3, 0):
        save(tmp_path, step, State(step), engine=write, keep=2)
        assert checkpoint.to_resume(tmp_path, State, steps_done=0).state.step == step
    assert {path.name for path in tmp_path.iterdir()} == {"warmup-000003", "step-000000"}


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.latest(tmp_path / "absent") is None


def test_a_step_that_is_saved_twice_never_loses_its_checkpoint(tmp_path):
    """Ctrl-C right after a due save. The second write must not touch the first, even if it would fail."""

    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    first = save(tmp_path, 1, State(1), engine=write, keep=2)
    assert save(tmp_path, 1, State(1), engine=full, keep=2) == first
    assert checkpoint.read_state(checkpoint.latest(tmp_path), State).step == 1


def test_an_incomplete_checkpoint_is_replaced(tmp_path):
    (tmp_path / "step-000001").mkdir()
    (tmp_path / "step-000001" / "rubbish").touch()
    save(tmp_path, 1, State(1), engine=write, keep=2)
    names = sorted(path.name for path in (tmp_path / "step-000001").iterdir())
    assert names == ["digests.json", "inner", "state.msgpack", "weights"]


def test_a_run_of_a_million_steps_keeps_its_newest(tmp_path):
    for step in (999_998, 999_999, 1_000_000):
        save(tmp_path, step, State(step), engine=write, keep=2)
    assert checkpoint.read_state(checkpoint.latest(tmp_path), State).step == 1_000_000
    assert {path.name for path in tmp_path.iterdir()} == {"step-999999", "step-1000000"}


def kept(folder):
    return sorted(int(path.name.removeprefix("step-")) for path in folder.iterdir())


def test_older_ones_are_thinned_out_evenly_and_the_warm_ups_end_stays(tmp_path):
    for step in range(0, 161, 10):
        save(tmp_path, step, State(step), engine=write, keep=2, history_bytes=10**6)
    assert kept(tmp_path) == list(range(0, 161, 10))  # all of them fit
    for step in range(170, 401, 10):
        save(tmp_path, step, State(step), engine=write, keep=2, history_bytes=8 * 2600)
    steps = kept(tmp_path)
    assert {*range(0, 390, 80), 390, 400} <= set(steps)  # as 5 fit, and the 10 of every 40th do not
    assert len(steps) - 2 <= 8
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("most", "expected"),
    [(10**9, {0, 10, 20, 25, 30}), (4, {0, 10, 20, 30}), (3, {0, 20}), (1, {0}), (0, set())],
)
def test_the_same_ones_stay_however_often_it_is_asked(most, expected):
    sizes = dict.fromkeys((0, 10, 20, 25, 30), 1)
    found = checkpoint.history(sizes, most)
    assert found == expected
    assert checkpoint.history({step: sizes[step] for step in found}, most) == expected


def test_no_room_for_history_leaves_what_a_resumed_run_needs(tmp_path):
    for step in (-2, 0, 10, 20):
        save(tmp_path, step, State(step), engine=write, keep=1, history_bytes=0)
    assert kept(tmp_path) == [20]
    with pytest.raises(CheckpointError, match=r"got 20: only later steps can be computed again.*history_gb"):
        checkpoint.before_step(tmp_path, 20)


def test_a_removal_that_is_killed_leaves_none_that_looks_complete(tmp_path, monkeypatch):
    for step in (0, 10):
        save(tmp_path, step, State(step), engine=write, keep=2)
    remove = shutil.rmtree

    def killed(path, **options):
        if path.exists():
            (path / "weights").unlink()
            raise KeyboardInterrupt
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 20, State(20), engine=write, keep=2)
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == ["step-000010", "step-000020"]
    assert checkpoint.before_step(tmp_path, 20)[1] == 10
