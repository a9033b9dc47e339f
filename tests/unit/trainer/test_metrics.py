"""The record of a run: appended at once, cut back on resume, and one clear error where the disk is full."""

import json
import math
import resource
import signal
from contextlib import contextmanager

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer.errors import RunFolderError
from trainer.metrics import MetricsLog, RunSummary, read_summary, write_summary


@contextmanager
def file_size_limit(size: int):
    """A disk that is full after `size` bytes of a file, as far as this process can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def steps_of(folder):
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def write_steps(folder, steps, *, resume_step=None):
    log = MetricsLog(folder, resume_step=resume_step)
    for step in steps:
        log.write(step, "train", {"loss": step / 2})
    log.close()


def test_a_resumed_record_goes_on_where_the_checkpoint_was(tmp_path):
    write_steps(tmp_path, [1, 2, 3])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')  # torn by kill -9
    write_steps(tmp_path, [3, 4], resume_step=2)
    assert steps_of(tmp_path) == [1, 2, 3, 4]


def test_a_record_whose_line_end_found_no_room_does_not_swallow_the_next(tmp_path):
    write_steps(tmp_path, [1, 2])
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    write_steps(tmp_path, [3], resume_step=2)
    assert steps_of(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("damage", [b"\xff\xfe\n", b"[1]\n", b"{}\n", b"x\n"])
def test_a_damaged_record_does_not_stop_the_run(damage, tmp_path):
    write_steps(tmp_path, [1, 2])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(damage)
    write_steps(tmp_path, [3], resume_step=2)
    assert steps_of(tmp_path) == [1, 2, 3]


def test_tensorboard_shows_every_step_once(tmp_path):
    write_steps(tmp_path, [1, 2, 3])
    write_steps(tmp_path, [3, 4], resume_step=2)
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [
        (1, 0.5),
        (2, 1.0),
        (3, 1.5),
        (4, 2.0),
    ]


def test_a_run_that_began_again_has_nothing_of_the_attempt_before(tmp_path):
    write_steps(tmp_path, [-1, 0])
    write_steps(tmp_path, [-1, 0, 1])
    assert steps_of(tmp_path) == [-1, 0, 1]


@pytest.mark.parametrize("name", ["metrics.jsonl", "events"])
def test_a_full_disk_is_one_error_at_the_step_and_none_at_the_end(name, tmp_path):
    log = MetricsLog(tmp_path, resume_step=None)
    log.write(1, "train", {"loss": 1.0})
    path = tmp_path / name
    path = path if path.is_file() else next(path.iterdir())
    used = path.stat().st_size
    # The other file is the smaller one, or written first: the limit meets `path` alone.
    with (
        file_size_limit(used + 5),
        pytest.raises(
            RunFolderError, match=r"cannot write metrics in .*: File too large.*Free space.*--resume"
        ),
    ):
        log.write(2, "train", {"loss": 1.0})
    log.close()
    write_steps(tmp_path, [2], resume_step=1)
    assert steps_of(tmp_path) == [1, 2]


def test_a_summary_is_written_whole_or_not_at_all(tmp_path):
    summary = RunSummary("e", "a", 0, 0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 2, 3, 4)
    with file_size_limit(20), pytest.raises(RunFolderError, match=r"cannot write summary.json"):
        write_summary(tmp_path, summary)
    assert list(tmp_path.iterdir()) == []
    write_summary(tmp_path, summary)
    assert json.loads((tmp_path / "summary.json").read_text())["success_final"] == 0.5


def test_a_summary_leaves_out_what_is_no_number_of_an_evaluation(tmp_path):
    said = {"success": 0.5, "text_nll": math.inf, "text_nll_rise": math.nan}
    memory = {"learner": {"estimated": 2}}
    summary = RunSummary(
        "e", "a", 0, math.nan, 0.5, 1.0, 0.0, 0.5, 1.0, 2, 3, 4, memory=memory, eval_final=said
    )
    write_summary(tmp_path, summary)
    read = read_summary(tmp_path)
    assert read is not None
    assert math.isnan(read.success_warmup)
    assert (read.eval_final, read.memory) == ({"success": 0.5}, memory)
