"""Terminal-Bench folders: every field is honoured, told as a label or named in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rock_env.errors import InvalidArgument
from rock_env.grading.model import Build, Task
from rock_env.spec import NetworkPolicy
from rock_env.tasksets.detect import read_tasks

YAML = "instruction: Do it.\n"
CLIENT = """
services:
  client:
    build: {context: sub, dockerfile: D, args: [A=1, "B=${GIVEN}"]}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: {TEST_DIR: "${T_BENCH_TEST_DIR}", N: 3}
    volumes: ["${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}"]
    working_dir: /srv
    network_mode: bridge
    deploy: {resources: {limits: {cpus: "0.5", memory: 256M}}}
"""


def make(folder: Path, yaml: str, **files: Any) -> Path:
    """Write a task's folder; a file given as None is left out."""
    texts = {
        "task.yaml": yaml,
        "Dockerfile": "FROM scratch\n",
        "run-tests.sh": "#!/bin/bash\n",
        "tests/a/test_x.py": "1\n",
        **files,
    }
    for name, text in texts.items():
        if text is not None:
            path = folder / "bench" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder / "bench"


def read(folder: Path, yaml: str = YAML, options: dict[str, Any] | None = None, **files: Any) -> Task:
    (task,) = read_tasks(make(folder, yaml, **files), **(options or {}))
    return task


def problem(folder: Path, yaml: str = YAML, **files: Any) -> str:
    with pytest.raises(InvalidArgument) as raised:
        read(folder, yaml, **files)
    return str(raised.value)


def test_what_a_task_says_is_honoured(tmp_path: Path) -> None:
    yaml = f"{YAML}max_agent_timeout_sec: 7\nmax_test_timeout_sec: 8.5\nparser_name: pytest\ntags: [a, b]\nauthor_name: x\n"
    task = read(tmp_path, yaml, **{"solution.sh": "#!/bin/bash\n"})
    assert (task.name, task.instruction, task.agent_timeout_s) == ("bench", "Do it.", 7.0)
    assert task.build == Build(context=tmp_path / "bench")
    verifier = task.verifier
    assert (verifier.command, verifier.parser, verifier.timeout_s) == (
        ("bash", "/tests/run-tests.sh"),
        "pytest",
        8.5,
    )
    assert [(file.path, file.mode) for file in verifier.files] == [
        ("/tests/a/test_x.py", 0o644),
        ("/tests/run-tests.sh", 0o755),
    ]
    assert verifier.env == (("TEST_DIR", "/tests"),)
    assert task.solution == ("bash bash /oracle/solution.sh",)
    assert [file.path for file in task.solution_files] == ["/oracle/solution.sh"]
    assert dict(task.labels) == {"author_name": "x", "tags": '["a", "b"]'}
    assert (task.network, verifier.grade_in) == (NetworkPolicy(), "fork")


def test_the_one_service_makes_the_box(tmp_path: Path) -> None:
    files = {"docker-compose.yaml": CLIENT, "sub/D": "FROM scratch\n"}
    task = read(tmp_path, YAML, {"variables": {"GIVEN": "2"}}, **files)
    build = Build(context=tmp_path / "bench" / "sub", dockerfile="D", args=(("A", "1"), ("B", "2")))
    assert task.build == build
    assert task.env == (("N", "3"), ("TEST_DIR", "/tests"))
    assert (task.workdir, task.resources.cpus, task.resources.memory_bytes) == ("/srv", 0.5, 256 << 20)
    assert task.network == NetworkPolicy(enabled=True, allow=("0.0.0.0/0",))
    image = {"docker-compose.yaml": "services: {client: {image: 'shop:1', command: sleep infinity}}"}
    assert read(tmp_path, **image).build == Build(image="shop:1")


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("difficulty: easy\n", "instruction: it is missing or empty"),
        (f"{YAML}parser_name: mine\n", "parser_name: no parser 'mine' here"),
        (f"{YAML}run_tests_in_same_shell: 1\n", "run_tests_in_same_shell: got 1, expected true or false"),
        (f"{YAML}max_test_timeout_sec: soon\n", "max_test_timeout_sec: got 'soon', expected a number"),
        (f"{YAML}descriptions: [x]\n", "descriptions: one task has one instruction"),
        ("descriptions: [x]\n", "'descriptions[0]' is a str, expected a table"),
        (
            "descriptions: [{key: a, description: x}, {key: b, description: y}]\n",
            "none has the key 'base' (a, b)",
        ),
        (f"{YAML}reward: 1\n", "reward: this field is not one of the format's"),
        ("- a\n", "the file is a list, expected a table"),
        ("a: [\n", "task.yaml is no YAML"),
    ],
)
def test_what_cannot_be_honoured_is_named(tmp_path: Path, yaml: str, said: str) -> None:
    message = problem(tmp_path, yaml)
    assert said in message
    assert str(tmp_path / "bench" / "task.yaml") in message


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("{build: ., privileged: true}", "services.client.privileged: a box cannot have this"),
        ("{build: ., cap_add: [NET_ADMIN]}", "services.client.cap_add: a box cannot have this"),
        (
            "{build: ., volumes: ['./data:/data']}",
            "services.client.volumes: './data:/data' is not in the box",
        ),
        ("{build: ., network_mode: host}", "services.client.network_mode: a box cannot have 'host'"),
        ("{build: ., environment: [KEY]}", "services.client.environment.KEY: nothing says what KEY is"),
        ("{build: {context: ..}}", "services.client.build.context: '..' leads out of the task's folder"),
        (
            "{build: {context: ., target: dev}}",
            "services.client.build.target: this field is not one of the format's",
        ),
        ("{build: ., command: python serve.py}", "command: no program is started with a box"),
        (
            "{build: ., tmpfs: ['/run:size=9m']}",
            "services.client.tmpfs: '/run:size=9m': expected an absolute",
        ),
        ("{build: ., user: bob}", "user: every command of a box runs as its image's user (root)"),
        ("{build: ., mem_limit: lots}", "services.client.mem_limit: got 'lots'"),
        ("{build: ., platform: linux/arm64}", "services.client.platform: "),
        ("{build: ., deploy: {replicas: 2}}", "services.client.deploy.replicas: a box cannot have this"),
        (
            "{build: ., deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}}",
            "services.client.deploy.resources.reservations: a box cannot have this",
        ),
        (
            "{build: ., deploy: {resources: {limits: {pids: 9}}}}",
            "services.client.deploy.resources.limits.pids: a box cannot have this",
        ),
        ("{build: .}\n  db: {image: postgres}", "services.db: a task has one box here"),
    ],
)
def test_what_no_box_can_be_is_named(tmp_path: Path, service: str, said: str) -> None:
    compose = {"docker-compose.yaml": f"services:\n  client: {service}\n"}
    message = problem(tmp_path, YAML, **compose)
    assert said in message
    assert "docker-compose.yaml" in message


def test_variants_in_use_are_honoured(tmp_path: Path) -> None:
    old = "descriptions:\n- {key: hard, description: Do.}\n- {key: base, description: Do it so.}\n"
    more = "run_tests_in_same_shell: true\nlanguage: cpp\nenv_name: shapes\nparser_name: swebench\n"
    compose = "services: {client: {build: ., tmpfs: [/run, '/var/spool:mode=755']}}"
    task = read(tmp_path, old + more, **{"docker-compose.yaml": compose})
    assert (task.instruction, task.verifier.in_shell, task.verifier.parser) == ("Do it so.", True, "swebench")
    assert dict(task.labels) == {"language": "cpp", "env_name": "shapes"}
    assert [command.partition(" -mindepth")[0] for command in task.setup[1:]] == [
        "mkdir -p /run && find /run",
        "mkdir -p /var/spool && find /var/spool",
    ]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("cd /app\napt-get -y update\n", "/tests/run-tests.sh line 2: apt-get -y update"),
        ("curl -LsSf https://example.org/install.sh | sh\n", "curl -LsSf https://example.org/install.sh"),
        ("set -e; python -m pip install pytest\n", "python -m pip install "),
        ("if true; then uvx pytest; fi\n", "uvx"),
        ("npm install\n", "npm install"),
        ("git clone https://example.org/x\n", "git clone https://example.org/x"),
        ("# apt-get update\n", ""),
        ("curl -s http://localhost:8080/x\n", ""),
        ("echo apt-get update\npip install --no-index x\npytest /tests\n", ""),
    ],
)
def test_a_test_script_that_needs_a_network_is_told(tmp_path: Path, script: str, found: str) -> None:
    offline = read(tmp_path, **{"run-tests.sh": script}).verifier.download
    assert found in offline
    assert bool(offline) is bool(found)
    compose = {"compose.yaml": "services: {client: {build: ., network_mode: bridge}}"}
    assert read(tmp_path, **{"run-tests.sh": script}, **compose).verifier.download == ""


def test_a_service_that_the_image_runs_is_named(tmp_path: Path) -> None:
    assert "CMD: no program is started" in problem(tmp_path, YAML, Dockerfile="FROM a\nCMD nginx\n")
    assert read(tmp_path, Dockerfile="FROM a\nCMD exec sleep infinity\n").name == "bench"
    assert "USER: the tests go to /tests" in problem(tmp_path, YAML, Dockerfile="FROM a\nUSER bob\n")


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("descriptions", {"task.yaml": f"{YAML}descriptions: [x]\n"}),
        ("reward", {"task.yaml": f"{YAML}reward: 1\n"}),
        ("USER", {"Dockerfile": "FROM a\nUSER bob\n"}),
        ("services.db", {"compose.yaml": "services: {client: {build: .}, db: {image: postgres}}"}),
        ("services.client.build.target", {"compose.yaml": "services: {client: {build: {target: dev}}}"}),
        ("services.client.build.context", {"compose.yaml": "services: {client: {build: {context: ..}}}"}),
        ("[0].append_enter", {"solution.yaml": "- {command: vim, append_enter: false}\n"}),
    ],
)
def test_a_field_is_given_up_by_its_name_in_the_error(
    tmp_path: Path, name: str, files: dict[str, str]
) -> None:
    assert f"{name}: " in problem(tmp_path, **files)
    assert read(tmp_path, options={"leave_out": name}, **files).build == Build(context=tmp_path / "bench")


def test_no_other_parser_can_be_given_up(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="parser_name: no parser 'mine' here"):
        read(tmp_path, f"{YAML}parser_name: mine\n", {"leave_out": "parser_name"})


@pytest.mark.parametrize("missing", ["run-tests.sh", "Dockerfile"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    assert f"{missing} is missing" in problem(tmp_path, YAML, **{missing: None})


def test_a_typed_solution_becomes_actions(tmp_path: Path) -> None:
    typed = (
        "- {command: cd /x, min_timeout_sec: 1}\n- {command: 'make > log', block: true, append_enter: true}\n"
    )
    assert read(tmp_path, **{"solution.yaml": typed}).solution == ("bash cd /x", "bash make > log")
    keys = "- {command: vim}\n- {command: ':wq', append_enter: false}\n- {comand: x}\n"
    message = problem(tmp_path, YAML, **{"solution.yaml": keys})
    assert "[1].append_enter: no keys are typed" in message
    assert "[2].command: it is missing" in message
    assert "[2].comand: this field is not one of the format's" in message
    assert "expected a list of commands" in problem(tmp_path, YAML, **{"solution.yaml": "command: x"})
