"""The project of `hacked_env` as registered tasks: one of Harbor's, one of Terminal-Bench's and one of SWE-bench's.

Their image has pytest, taken from the Python that runs this: no network is needed.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hacked_env import FIX, HIDDEN, TASK

from rock_env.grading.model import Task
from rock_env.tasksets.detect import read_tasks

__all__ = ["FORMATS", "IMAGE", "INSTRUCTION", "read_hacked", "write_context"]

FORMATS = ("harbor", "terminal_bench", "swe_bench")
IMAGE = "python:3.11-slim"
INSTRUCTION = "The price of a heavy parcel is wrong: each further kilogram begun costs 120 more. Repair the package parcel."
_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
_PLACE = "$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
_INSTALL = f"mkdir -p {_PLACE} && cp -r {{site}}/* {_PLACE} && rm -r {{site}}"
_DOCKERFILE = f"""\
FROM {IMAGE}
COPY site/ /tmp/site/
COPY pytest /usr/local/bin/pytest
RUN {_INSTALL.format(site="/tmp/site")} && chmod 755 /usr/local/bin/pytest
WORKDIR /workspace/depot
COPY depot/ .
"""
_PROGRAM = """\
#!/usr/bin/env python3
import sys

import pytest

sys.exit(pytest.main())
"""
_HARBOR_TEST = """\
#!/bin/bash
cd /workspace/depot
if python3 -m pytest -rA -p no:cacheprovider /tests/test_hidden.py; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
_TERMINAL_TEST = """\
#!/bin/bash
cd /workspace/depot
pytest -rA --rootdir=$TEST_DIR $TEST_DIR/test_hidden.py
"""
_COMPOSE = """\
services:
  client:
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
"""
_TASK_YAML = f"""\
instruction: {json.dumps(INSTRUCTION)}
parser_name: pytest
max_agent_timeout_sec: 300
max_test_timeout_sec: 60
"""


def read_hacked(folder: Path) -> list[Task]:
    """Write the three tasks below `folder` and read them; each is named after its format."""
    _write_harbor(folder / "harbor" / "harbor")
    _write_terminal_bench(folder / "terminal" / "terminal_bench")
    rows = _write_swe_bench(folder / "swe")
    tasks = [*read_tasks(folder / "harbor"), *read_tasks(folder / "terminal")]
    tasks += read_tasks(
        rows,
        repos=folder / "swe" / "repos",
        contexts=folder / "swe" / "contexts",
        image=IMAGE,
        install=_INSTALL.format(site="/testbed/site"),
        workdir="/testbed",
        test_timeout_s=60,
    )
    return tasks


def write_context(folder: Path) -> None:
    """Write what the image of a task is built from: pytest, and the project."""
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text(_DOCKERFILE)
    (folder / "pytest").write_text(_PROGRAM)
    _copy_packages(folder / "site")
    _write_project(folder / "depot")


def _copy_packages(folder: Path) -> None:
    for name in _PACKAGES:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), folder / file)


def _write_project(folder: Path) -> None:
    for path, content in TASK.repo:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def _script(lines: Sequence[str]) -> str:
    return "#!/bin/bash\nset -e\n" + "\n".join(lines) + "\n"


def _write_harbor(folder: Path) -> None:
    write_context(folder / "environment")
    (folder / "tests").mkdir()
    (folder / "solution").mkdir()
    (folder / "task.toml").write_text('schema_version = "1.4"\n[verifier]\ntimeout_sec = 60.0\n')
    (folder / "instruction.md").write_text(INSTRUCTION)
    (folder / "tests" / "test.sh").write_text(_HARBOR_TEST)
    (folder / "tests" / "test_hidden.py").write_bytes(HIDDEN)
    (folder / "solution" / "solve.sh").write_text(_script(["cd /workspace/depot", FIX]))


def _write_terminal_bench(folder: Path) -> None:
    write_context(folder)
    (folder / "tests").mkdir()
    (folder / "task.yaml").write_text(_TASK_YAML)
    (folder / "docker-compose.yaml").write_text(_COMPOSE)
    (folder / "run-tests.sh").write_text(_TERMINAL_TEST)
    hidden = b'import sys\n\nsys.path.insert(0, "/workspace/depot")\n' + HIDDEN
    (folder / "tests" / "test_hidden.py").write_bytes(hidden)
    (folder / "solution.sh").write_text(_script(["cd /workspace/depot", FIX]))


def _write_swe_bench(folder: Path) -> Path:
    repository = folder / "repos" / "acme__depot"
    _write_project(repository)
    _copy_packages(repository / "site")
    git = ["git", "-C", str(repository), "-c", "user.name=task", "-c", "user.email=task"]

    def run(*arguments: str) -> str:
        done = subprocess.run([*git, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    run("init", "-q", "-b", "main")
    run("add", "-A")
    run("commit", "-qm", "base")
    base = run("rev-parse", "HEAD").strip()
    subprocess.run(["sh", "-c", FIX], cwd=repository, check=True)
    patch = run("diff")
    run("checkout", "-q", ".")
    (repository / "tests" / "test_hidden.py").write_bytes(HIDDEN)
    run("add", "-AN")
    test_patch = run("diff")
    run("reset", "-q", "--hard")
    (repository / "tests" / "test_hidden.py").unlink(missing_ok=True)
    passing = [f"tests/{name}" for name in TASK.pass_to_pass]
    failing = [
        f"tests/test_hidden.py::test_each_kilogram_begun_counts[{grams}]"
        for grams in ("1001-420", "2001-540")
    ]
    failing += [f"tests/{name}" for name in TASK.fail_to_pass[1:]]
    row = {
        "repo": "acme/depot",
        "instance_id": "swe_bench",
        "base_commit": base,
        "patch": patch,
        "test_patch": test_patch,
        "problem_statement": INSTRUCTION,
        "version": "1",
        "FAIL_TO_PASS": json.dumps(failing),
        "PASS_TO_PASS": json.dumps(passing),
    }
    rows = folder / "instances.jsonl"
    rows.write_text(json.dumps(row) + "\n")
    return rows
