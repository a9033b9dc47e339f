import errno

import msgspec
import pytest

from trainer import checkpoint
from trainer.errors import CheckpointError


class State(msgspec.Struct):
    step: int


def write(folder):
    (folder / "weights").write_bytes(b"w" * 1000)


def test_the_newest_checkpoints_are_kept(tmp_path):
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, State(step), engine=write, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]
    assert checkpoint.read_state(checkpoint.latest(tmp_path), State).step == 3


def test_a_failed_save_leaves_the_one_before_and_no_rubbish(tmp_path):
    checkpoint.save(tmp_path, 1, State(1), engine=write, keep=2)

    def full(folder):
        write(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 2, State(2), engine=full, keep=2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_a_killed_save_is_not_seen(tmp_path):
    """What `kill -9` leaves behind: a temporary folder, or a folder without the controller's state."""
    checkpoint.save(tmp_path, 1, State(1), engine=write, keep=2)
    (tmp_path / ".step-000002.tmp").mkdir()
    (tmp_path / "step-000003").mkdir()
    assert checkpoint.latest(tmp_path).name == "step-000001"


def test_a_corrupt_state_is_one_clear_error(tmp_path):
    folder = checkpoint.save(tmp_path, 1, State(1), engine=write, keep=2)
    newest = checkpoint.save(tmp_path, 2, State(2), engine=write, keep=2)
    (newest / "state.msgpack").write_bytes(b"\xc1\xff")
    with pytest.raises(
        CheckpointError,
        match=r"cannot read checkpoint .*step-000002.*Remove the folder step-000002 .* step-000001",
    ):
        checkpoint.to_resume(tmp_path, State, steps_done=2)
    (folder / "state.msgpack").unlink()
    with pytest.raises(CheckpointError, match=r"step-000002.*There is none before it.*--run NAME"):
        checkpoint.to_resume(tmp_path, State, steps_done=2)


def test_a_run_whose_checkpoints_are_gone_does_not_start_over(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint is left .* done 3 steps: it would start over"):
        checkpoint.to_resume(tmp_path, State, steps_done=3)
    assert checkpoint.to_resume(tmp_path, State, steps_done=0) is None


def test_what_is_saved_in_the_warm_up_comes_before_any_step(tmp_path):
    for step in (-12, -3, 0):
        checkpoint.save(tmp_path, step, State(step), engine=write, keep=2)
        assert checkpoint.to_resume(tmp_path, State, steps_done=0)[1].step == step
    assert {path.name for path in tmp_path.iterdir()} == {"warmup-000003", "step-000000"}


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.latest(tmp_path / "absent") is None


def test_a_step_that_is_saved_twice_never_loses_its_checkpoint(tmp_path):
    """Ctrl-C right after a due save. The second write must not touch the first, even if it would fail."""

    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    first = checkpoint.save(tmp_path, 1, State(1), engine=write, keep=2)
    assert checkpoint.save(tmp_path, 1, State(1), engine=full, keep=2) == first
    assert checkpoint.read_state(checkpoint.latest(tmp_path), State).step == 1


def test_an_incomplete_checkpoint_is_replaced(tmp_path):
    (tmp_path / "step-000001").mkdir()
    (tmp_path / "step-000001" / "rubbish").touch()
    checkpoint.save(tmp_path, 1, State(1), engine=write, keep=2)
    assert sorted(path.name for path in (tmp_path / "step-000001").iterdir()) == ["state.msgpack", "weights"]


def test_a_run_of_a_million_steps_keeps_its_newest(tmp_path):
    for step in (999_998, 999_999, 1_000_000):
        checkpoint.save(tmp_path, step, State(step), engine=write, keep=2)
    assert checkpoint.read_state(checkpoint.latest(tmp_path), State).step == 1_000_000
    assert {path.name for path in tmp_path.iterdir()} == {"step-999999", "step-1000000"}
