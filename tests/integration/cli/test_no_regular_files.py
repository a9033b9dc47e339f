"""Files that a user names and that are no files, or say what no parser takes: one line that names them, at once."""

import os
from pathlib import Path

import pytest
from command_line import ale, refused

READERS = (
    (2, "train --config {}.toml --dry-run"),
    (2, "train --env swe --agent {}.yaml --dry-run"),
    (74, "replay list {}.run"),
    (65, "replay unpack {}.tar.gz --out out"),
    (65, "replay import {}.traj --out out"),
    (65, "rock token list --tokens {}.json"),
    (2, "env register {}.jsonl"),
)


@pytest.mark.parametrize("kind", ["fifo", "zero"])
@pytest.mark.parametrize(("code", "words"), READERS, ids=lambda value: str(value))
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, code: int, words: str, kind: str) -> None:
    place = next(word for word in words.split() if word.startswith("{}")).replace("{}", "named")
    path = tmp_path / place
    if place.endswith(".run"):
        path = path / "trajectories" / "a.rollouts"
        path.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif place.endswith((".run", ".yaml")):
        pytest.skip("a link to a device is followed before it is asked for here")
    else:
        path.symlink_to("/dev/zero")
    refused(ale(*words.format("named").split(), cwd=tmp_path), code, "named")


@pytest.mark.parametrize(
    "value", ["9" * 5000, "0x" + "f" * 5000, "[" * 5000, "1e" + "9" * 5000], ids=lambda value: value[:4]
)
def test_a_value_that_no_parser_takes_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "bad.toml").write_text(f"steps={value}\n")
    refused(
        ale("train", "--config", "bad.toml", "--dry-run", cwd=tmp_path),
        2,
        "steps" if "e" in value else "bad.toml",
    )
