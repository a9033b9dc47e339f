"""The swe environment's text: actions read, results told, tasks loaded."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from rock_env.errors import UnknownName
from rock_env.sandbox import ExecResult
from sandboxes.swe.catalog import SweTasks, load_task, task_names
from sandboxes.swe.env import parse_action, render


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ls -la", "ls -la"),
        ("  submit\n", "submit"),
        ("I look first.\n```bash\nls\ncat x\n```\nThen I think.", "ls\ncat x"),
        ("```\nls\n```", "ls"),
        ("```sh\nsubmit\n```", "submit"),
        ("echo `date`", "echo `date`"),
    ],
)
def test_a_command_is_found(text: str, command: str) -> None:
    assert parse_action(text) == (command, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no command"),
        (" \n", "no command"),
        ("```bash\n\n```", "no command"),
        ("```bash\nls", "not closed"),
        ("```bash\na\n```\n```bash\nb\n```", "2 code blocks"),
        ("a\0b", "NUL"),
    ],
)
def test_a_bad_action_is_explained(text: str, problem: str) -> None:
    command, why = parse_action(text)
    assert command == ""
    assert problem in why


def told(result: ExecResult) -> str:
    return render(result, timeout_s=20.0, max_chars=200)


def ended(
    exit_code: int | None = 0, signal: int | None = None, stdout: bytes = b"", **more: bool
) -> ExecResult:
    return ExecResult(exit_code, signal, stdout, b"", 0.1, **more)


def test_the_end_of_a_command_is_told() -> None:
    assert told(ended(stdout=b"hi\n")) == "[exit code 0]\nhi"
    assert told(ended(1)) == "[exit code 1]"
    assert told(ended(None, 9)) == "[killed by signal 9]"
    assert told(ended(None, 9, timed_out=True)) == "[timed out after 20 s and was killed]"
    assert told(ended(stdout=b"\xff")) == "[exit code 0]\n\ufffd"


def test_cuts_are_told() -> None:
    assert told(ended(stdout=b"x" * 200)) == "[exit code 0]\n" + "x" * 200
    middle = "\n[... truncated: 1 characters left out ...]\n"
    assert (
        told(ended(stdout=b"a" * 100 + b"?" + b"b" * 100)) == f"[exit code 0]\n{'a' * 100}{middle}{'b' * 100}"
    )
    assert "output cut after" in told(ended(truncated=True))


def test_the_time_tests_took_is_not_told() -> None:
    assert told(ended(stdout=b"3 passed in 0.02s\n")) == "[exit code 0]\n3 passed"
    assert told(ended(stdout=b"= 1 failed in 75.10s (0:01:15) =\n")) == "[exit code 0]\n= 1 failed ="


@pytest.mark.parametrize("name", task_names())
def test_a_task_shows_the_agent_nothing_of_its_grading(name: str) -> None:
    data = load_task(name)
    source = SweTasks()
    spec = next(
        task
        for split in source.splits
        for index in range(source.count(split))
        if (task := source.get(split, index)).payload == name
    )
    assert data.report in spec.instruction
    assert [path for path, _ in spec.files] == [f"{name}/{path}" for path, _ in data.repo]
    assert not {content for _, content in data.hidden} & {content for _, content in spec.files}
    assert data.fail_to_pass
    assert data.pass_to_pass
    hidden = [
        f"{path}::{test}"
        for path, content in data.hidden
        for test in re.findall(r"^def (test_\w+)", content.decode(), re.M)
    ]
    assert hidden == [*data.fail_to_pass, *data.pass_to_pass]
    assert len(data.solution) > 1


def test_an_unknown_task_lists_the_known() -> None:
    with pytest.raises(UnknownName, match="tabsplit"):
        load_task("tabsplitt")


def test_importing_the_plugin_reads_no_task_and_loads_no_test_tool() -> None:
    code = (
        "import sys; from sandboxes.swe import ENV; from sandboxes.swe.catalog import load_task;"
        "assert load_task.cache_info().currsize == 0; assert 'pytest' not in sys.modules; print(ENV.key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "swe@0.1\n"
