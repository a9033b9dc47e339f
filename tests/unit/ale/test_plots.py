"""The picture of a run, from the records the loop writes."""

import json
from pathlib import Path

import pytest

from ale.errors import RecordError
from ale.training.plots import success_curve
from ale.training.reading import read_metrics

RECORDS = [
    {"step": -1, "kind": "warmup", "loss": 1.0},
    {"step": 0, "kind": "eval", "success": 0.3, "share_of_optimum": 0.4, "env_steps": 0.0},
    {"step": 1, "kind": "train", "success": 0.5, "env_steps": 900.0},
    {
        "step": 1,
        "kind": "train",
        "success": 0.5,
        "env_steps": 900.0,
        "groups": 8,
        "mixed_groups": 2,
        "entropy": 0.3,
    },
    {"step": 2, "kind": "train", "failed": 8.0, "env_steps": 900.0},
    {"step": 2, "kind": "eval", "success": 0.6, "share_of_optimum": 0.8, "env_steps": 1800.0},
]


def _write(folder: Path, text: str) -> None:
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_the_curve_is_a_picture(tmp_path: Path) -> None:
    _write(tmp_path, "".join(json.dumps(record) + "\n" for record in RECORDS))
    path = success_curve(tmp_path)
    assert path == tmp_path / "success.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5000


def test_without_evaluations_there_is_no_picture(tmp_path: Path) -> None:
    _write(tmp_path, json.dumps(RECORDS[0]) + "\n")
    assert success_curve(tmp_path) is None


def test_a_torn_last_line_is_left_out_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, '{"step": 1, "kind": "train"}\n{"step": 2, "ki')
    assert len(read_metrics(tmp_path)) == 1
    _write(tmp_path, '{"step": 1, "ki\n{"step": 2, "kind": "train"}\n')
    with pytest.raises(RecordError, match="line 1"):
        read_metrics(tmp_path)
    with pytest.raises(RecordError, match="cannot read"):
        read_metrics(tmp_path / "absent")
