"""Files of tasks with anything in them: a reader returns tasks or raises `InvalidArgument`, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rock_env.errors import InvalidArgument
from rock_env.tasksets.detect import read_tasks

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("${A}")
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab_", min_size=1, max_size=3), inner)
    ),
    max_leaves=5,
)
TABLES = ("task", "metadata", "agent", "verifier", "environment", "solution")
INNER = [
    "name",
    "timeout_sec",
    "user",
    "env",
    "network_mode",
    "allowed_hosts",
    "allow_internet",
    "cpus",
    "memory",
    "memory_mb",
    "storage",
    "gpus",
    "workdir",
    "healthcheck",
    "docker_image",
    "build_timeout_sec",
    "os",
    "environment_mode",
    "collect",
]
YAML = [
    "instruction",
    "parser_name",
    "max_agent_timeout_sec",
    "max_test_timeout_sec",
    "tags",
    "descriptions",
    "disable_asciinema",
]
SERVICE = [
    "build",
    "image",
    "command",
    "entrypoint",
    "environment",
    "volumes",
    "user",
    "network_mode",
    "cpus",
    "mem_limit",
    "deploy",
    "working_dir",
]
ROW = [
    "repo",
    "base_commit",
    "patch",
    "test_patch",
    "problem_statement",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
    "hints_text",
    "version",
]
ANY_FOLDER = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def fields(names: list[str] | tuple[str, ...], values: st.SearchStrategy[Any] = VALUES) -> Any:
    return st.dictionaries(st.sampled_from([*names, "other"]), values, max_size=5)


def toml(value: Any) -> str:
    """Write a value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return '""' if value is None else json.dumps(value, ensure_ascii=False).replace("\x7f", "")


def reads_or_refuses(path: Path, **options: Any) -> None:
    try:
        tasks = read_tasks(path, **options)
    except InvalidArgument:
        return
    assert tasks
    assert all(task.name and task.instruction for task in tasks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("instruction.md", "environment/Dockerfile", "tests/test.sh", "Dockerfile", "run-tests.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("FROM scratch\n")
    return tmp_path


@ANY_FOLDER
@given(
    st.dictionaries(st.sampled_from(TABLES), fields(INNER) | VALUES), fields(("version", "steps", "source"))
)
def test_any_task_toml(folder: Path, tables: dict[str, Any], top: dict[str, Any]) -> None:
    lines = [f"{json.dumps(name)} = {toml(value)}" for name, value in {**top, **tables}.items()]
    (folder / "task.toml").write_text("\n".join(lines))
    reads_or_refuses(folder)


@ANY_FOLDER
@given(fields(YAML), fields(("services", "version", "volumes")), fields(SERVICE) | VALUES)
def test_any_task_yaml(folder: Path, task: dict[str, Any], compose: dict[str, Any], service: Any) -> None:
    (folder / "task.yaml").write_text(json.dumps({"instruction": "x", **task}))
    made = {"services": {"client": service}, **compose}
    (folder / "docker-compose.yaml").write_text(json.dumps(made))
    reads_or_refuses(folder)


@ANY_FOLDER
@given(st.lists(fields(ROW), max_size=2))
def test_any_row(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "rows.json").write_text(json.dumps([{"instance_id": "a", **row} for row in rows]))
    reads_or_refuses(folder / "rows.json", image="some", contexts=folder / "contexts")
