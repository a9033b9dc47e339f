"""Bad tasks among good ones: each gets one clear verdict, and costs no other task anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integration.command_line import ale
from integration.docker_engine import engine, skip_without

__all__ = ["engine"]

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.timeout(240)]

BASE = "debian:bookworm-slim"
GOOD = """
if [ "$(cat /desk/answer)" = {answer} ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
NOISY = 'head -c 104857600 /dev/zero | tr "\\\\0" x; printf "\\\\377\\\\376 no text\\\\n"\n'


def write_task(
    folder: Path, answer: str, *, dockerfile: str = "", test: str = "", solution: str = ""
) -> None:
    """Write a task whose agent is to write a word into a file."""
    for name in ("environment", "tests", "solution"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text('schema_version = "1.4"\n[verifier]\ntimeout_sec = 3.0\n')
    (folder / "instruction.md").write_text(f"Write the word {answer} into the file answer.\n")
    (folder / "environment" / "Dockerfile").write_text(f"FROM {BASE}\nWORKDIR /desk\n{dockerfile}")
    (folder / "tests" / "test.sh").write_text(f"#!/bin/sh\n{test}{GOOD.format(answer=answer)}")
    (folder / "solution" / "solve.sh").write_text(solution or f"#!/bin/sh\necho {answer} > answer\n")


VERDICTS = {
    "broken-build": "no-such-program: not found",
    "failing-gold": "oracle scores 1: reward 0",
    "no-dockerfile": "Dockerfile is missing",
    "no-instruction": "instruction.md is missing",
    "passes-before": "doing nothing scores 0: reward 1",
    "unknown-field": "color",
    "waits": "did not finish within 3 s",
}
"""Each bad task, and what its verdict says."""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    skip_without(BASE)
    folder = tmp_path / "tasks"
    write_task(folder / "broken-build", "one", dockerfile="RUN no-such-program\n")
    write_task(folder / "failing-gold", "two", solution="#!/bin/sh\necho wrong > answer\n")
    write_task(folder / "good", "three")
    write_task(folder / "no-dockerfile", "four")
    (folder / "no-dockerfile" / "environment" / "Dockerfile").unlink()
    write_task(folder / "no-instruction", "five")
    (folder / "no-instruction" / "instruction.md").unlink()
    write_task(folder / "noisy", "six", test=NOISY)
    write_task(folder / "passes-before", "seven", dockerfile="RUN echo seven > answer\n")
    write_task(folder / "unknown-field", "eight")
    with (folder / "unknown-field" / "task.toml").open("a") as file:
        file.write('color = "blue"\n')
    write_task(folder / "waits", "nine", test="sleep 60\n")
    return folder


def test_each_bad_task_gets_a_verdict_and_the_good_ones_are_kept(tasks: Path) -> None:
    home = {"ALE_HOME": str(tasks.parent / "home")}
    refused = ale("env", "register", str(tasks), cwd=tasks, **home)
    assert refused.returncode == 2
    for name in ("no-dockerfile", "no-instruction", "unknown-field"):
        assert name in refused.stderr, "all that cannot be read is said at once"

    done = ale("env", "register", str(tasks), "--skip-bad", cwd=tasks, **home)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("left out ")]
    assert sorted(line.split()[2].rstrip(":") for line in said) == sorted(VERDICTS)
    text = done.stderr
    for name, verdict in VERDICTS.items():
        about = text[text.index(f"left out {name}:") :]
        about = about.partition("\nleft out ")[0]
        assert verdict in about, f"{name}: {about}"

    listed = json.loads(ale("env", "list", "--json", cwd=tasks, **home).stdout)
    (entry,) = [env for env in listed if env["registered"]]
    assert (entry["name"], entry["tasks"], entry["check"]["passed"]) == ("tasks", 2, True)
    played = ale("rollout", "--env", "tasks", "-n", "2", cwd=tasks, **home)
    assert "2 of 2 passed, 0 failed to run" in played.stdout + played.stderr
