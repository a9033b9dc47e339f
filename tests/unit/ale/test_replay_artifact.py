"""`ale replay artifact`: one file out of the folder beside the records, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_runtime.artifacts import folder_in
from agent_runtime.recording import Recording
from agent_runtime.store import segment_path, write_segment
from agent_runtime.types import (
    OF_FIRST,
    OF_GRADE,
    AgentConfig,
    RecordedArtifact,
    RolloutRequest,
    SamplingParams,
    Start,
    StopReason,
)
from ale.cli import app
from rock_env.env import Verdict

CONTENT = b"\x89PNG\r\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a folder with one rollout, which came with a picture and a log that was not kept."""
    asked = RolloutRequest("r", "e", "{}", "train/0", "g", 0, 0, AgentConfig(), SamplingParams(), Start(0))
    record = Recording(asked)
    record.artifacts += [
        RecordedArtifact(OF_FIRST, "page.png", "image/png", DIGEST, len(CONTENT)),
        RecordedArtifact(OF_GRADE, "\x1b]52;c;aGk=\x07log", "text/plain", "", 0, "too large"),
    ]
    write_segment(
        segment_path(tmp_path, "rollout"), [record.trajectory(StopReason.TERMINATED, Verdict(1.0, True))]
    )
    folder_in(tmp_path).mkdir()
    (folder_in(tmp_path) / DIGEST).write_bytes(CONTENT)
    return tmp_path


def test_show_names_what_came_with_each_turn(run: Path) -> None:
    said = CliRunner().invoke(app, ["replay", "show", str(run)])
    assert said.exit_code == 0
    plain = " ".join(said.stdout.split())
    assert f"artifact page.png (image/png): {len(CONTENT)} bytes, {DIGEST}" in plain
    assert "(text/plain): not kept: too large" in plain
    assert "\x1b]52" not in said.stdout


def test_one_is_written_out_by_the_beginning_of_its_digest(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.png"
    said = CliRunner().invoke(app, ["replay", "artifact", str(run), DIGEST[:10], str(out)])
    assert said.exit_code == 0, said.stdout
    assert out.read_bytes() == CONTENT


@pytest.mark.parametrize("digest", ["../../etc/passwd", "*", "abc", "0" * 64, DIGEST[:-1] + "*", ""])
def test_what_is_no_digest_of_these_records_is_refused(run: Path, tmp_path: Path, digest: str) -> None:
    said = CliRunner().invoke(app, ["replay", "artifact", str(run), digest, str(tmp_path / "out")])
    assert said.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_over_and_nothing_damaged_written_out(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "there"
    out.write_bytes(b"mine")
    assert CliRunner().invoke(app, ["replay", "artifact", str(run), DIGEST, str(out)]).exit_code == 1
    assert out.read_bytes() == b"mine"
    (folder_in(run) / DIGEST).write_bytes(CONTENT + b"!")
    assert CliRunner().invoke(app, ["replay", "artifact", str(run), DIGEST, str(run / "out")]).exit_code == 1
    assert not (run / "out").exists()
