"""A real run that is killed and whose machine is gone goes on from its copies in S3, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import lines_of
from s3_server import S3Server, flip, s3_server
from test_train import ONE_EACH, SMALL, assert_same_weights, environment, train, train_command, train_records

pytestmark = [pytest.mark.ray, pytest.mark.turn(1), pytest.mark.timeout(600)]

RUN = ["--algo", "ipa", "--steps", "6", "--seed", "5", *SMALL, *ONE_EACH]
PLACE = "s3://bucket/lake"
COPIED = ["-s", f"checkpoint.copy_to={PLACE}"]
PATIENCE_S = 240


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def killed(run: Path, server: S3Server) -> list[str]:
    """Kill a run with SIGKILL once two checkpoints have copies; return them."""
    with subprocess.Popen(
        train_command(run, *RUN, *COPIED),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as process:
        until = time.monotonic() + PATIENCE_S
        while "step-000002" not in server.copies("lake") and time.monotonic() < until:
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it could be killed: give it more steps"
        process.send_signal(signal.SIGKILL)
    return server.copies("lake")


def test_a_killed_run_whose_folder_is_gone_goes_on_from_its_copies(tmp_path: Path, server: S3Server) -> None:
    done = train(tmp_path / "whole", *RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "run"
    newest = killed(run, server)[-1]
    before = server.copies("lake")[-2]
    shutil.rmtree(run)
    flip(server.object_of("lake", newest, "state.msgpack"))
    resumed = train(run, "--resume", "--from", PLACE)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    said = " ".join(resumed.stderr.split())
    assert f"the run goes on from {before}, because the copy of {newest} is damaged" in said
    assert_same_weights(tmp_path / "whole", run)
    assert [record["step"] for record in train_records(run)] == [*range(1, 7)]
    assert server.copies("lake") == ["step-000005", "step-000006"]
    again = train(run, "--resume", "--from", PLACE)
    assert again.returncode == 0, again.stderr


def test_credentials_that_are_refused_are_one_line_before_anything_starts(
    tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    done = train(tmp_path / "run", *RUN, *COPIED)
    assert done.returncode == 2
    (line,) = lines_of(done.stderr)
    assert line.startswith(f"ale: checkpoint.copy_to: cannot write {PLACE}/probe: ")
    assert "403 Forbidden" in line
    assert "another" not in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", PLACE], "give --resume"),
        (["--resume", "--dry-run", "--from", PLACE], "no --dry-run"),
        (["--resume", "--from", "s3://bucket"], "expected s3://BUCKET/PREFIX"),
        (["--resume", "--from", PLACE], "no whole copy of a run is in"),
    ],
)
def test_what_cannot_be_fetched_is_one_line(
    tmp_path: Path, server: S3Server, words: list[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ale", "train", "--run", str(tmp_path / "run"), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "500"},
        check=False,
    )
    assert done.returncode in (2, 65)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
