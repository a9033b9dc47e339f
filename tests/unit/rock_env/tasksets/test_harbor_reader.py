"""Harbor folders: every field is honoured, told as a label or named in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rock_env.errors import InvalidArgument, UnknownName
from rock_env.grading.model import Build, Task
from rock_env.spec import NetworkPolicy
from rock_env.tasksets.detect import read_tasks

ALL = """
schema_version = "1.4"
source = "shop"
[task]
name = "shop/fix"
version = "3"
authors = [{ name = "A Team" }]
[metadata]
difficulty = "hard"
nested = { a = 1 }
[agent]
timeout_sec = 11.0
user = "root"
[verifier]
timeout_sec = 22
env = { KEY = "${SECRET}", MODE = "${MODE:-plain}" }
[solution]
env = { STEPS = "two words" }
[environment]
build_timeout_sec = 33
cpus = 2
memory_mb = 256
storage_mb = 512
workdir = "/srv"
network_mode = "allowlist"
allowed_hosts = ["example.org"]
env = { A = "1" }
os = "Linux"
mcp_servers = []
"""


def make(folder: Path, toml: str = "", **files: str) -> Path:
    """Write a task's folder; a file given as None is left out."""
    texts = {
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM scratch\n",
        "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
        **{name.replace("__", "/"): text for name, text in files.items()},
        "task.toml": toml,
    }
    for name, text in texts.items():
        if text is not None:
            path = folder / "task" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder / "task"


def read(folder: Path, toml: str = "", options: dict[str, Any] | None = None, **files: Any) -> Task:
    (task,) = read_tasks(make(folder, toml, **files), **(options or {}))
    return task


def problem(folder: Path, toml: str, options: dict[str, Any] | None = None, **files: Any) -> str:
    with pytest.raises(InvalidArgument) as raised:
        read(folder, toml, options, **files)
    return str(raised.value)


def test_all_that_a_task_may_say_is_honoured(tmp_path: Path) -> None:
    solve = {"solution/solve.sh": "#!/bin/sh\n", "solution/data/x.bin": "x", "tests/more/helper.py": "1\n"}
    task = read(tmp_path, ALL, {"variables": "SECRET=s3,OTHER=x"}, **solve)
    assert (task.name, task.instruction) == ("shop/fix", "Do it.")
    assert task.build == Build(context=tmp_path / "task" / "environment", timeout_s=33.0)
    assert (task.agent_timeout_s, task.verifier.timeout_s) == (11.0, 22.0)
    assert task.verifier.env == (("KEY", "s3"), ("MODE", "plain"))
    assert [file.path for file in task.verifier.files] == ["/tests/more/helper.py", "/tests/test.sh"]
    assert [file.mode for file in task.verifier.files] == [0o644, 0o755]
    assert task.verifier.command[-1] == "/tests/test.sh"
    assert (task.verifier.report, task.verifier.parser) == ("/logs/verifier", "reward_file")
    assert task.solution == ("bash env 'STEPS=two words' /solution/solve.sh",)
    assert [file.path for file in task.solution_files] == ["/solution/data/x.bin", "/solution/solve.sh"]
    assert (task.resources.cpus, task.resources.memory_bytes, task.resources.disk_bytes) == (
        2,
        256 << 20,
        512 << 20,
    )
    assert task.network == NetworkPolicy(enabled=True, allow=("example.org",))
    assert (task.workdir, task.env) == ("/srv", (("A", "1"),))
    assert dict(task.labels) == {
        "authors": '[{"name": "A Team"}]',
        "difficulty": "hard",
        "nested": '{"a": 1}',
        "source": "shop",
        "version": "3",
    }


def test_a_bare_task_has_the_formats_defaults_and_no_network(tmp_path: Path) -> None:
    task = read(tmp_path)
    assert (task.name, task.agent_timeout_s, task.verifier.timeout_s) == ("task", 600.0, 600.0)
    assert (task.resources.memory_bytes, task.network, task.solution) == (2 << 30, NetworkPolicy(), ())
    assert task.verifier.grade_in == "fork"
    assert read(tmp_path, options={"grade_in": "same"}).verifier.grade_in == "same"
    assert read(tmp_path, options={"grade_in": f"{task.name}=same,fork"}).verifier.grade_in == "same"
    assert read(tmp_path, options={"grade_in": {"": "same", task.name: "fork"}}).verifier.grade_in == "fork"
    own = '[metadata]\ngrade_in = "same"\n'
    assert read(tmp_path, own).verifier.grade_in == "same"
    assert read(tmp_path, own, options={"grade_in": "fork"}).verifier.grade_in == "same", (
        "one for all is a default"
    )
    assert read(tmp_path, own, options={"grade_in": f"{task.name}=fork"}).verifier.grade_in == "fork"
    with pytest.raises(InvalidArgument, match="bad grade_in 'there'"):
        read(tmp_path, '[metadata]\ngrade_in = "there"\n')
    with pytest.raises(UnknownName, match="unknown task in the option grade_in 'other'"):
        read(tmp_path, options={"grade_in": "other=same"})


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[agent]\nprompt = 'x'", "agent.prompt: this field is not one of the format's"),
        ("extra = 1", "extra: this field is not one of the format's"),
        ("schema_version = '2.0'", "schema_version: schema '2.0' is not known here"),
        ("version = 1.0", "version: got 1.0, expected a string"),
        ("[[steps]]\nname = 'a'", "steps: tasks of several steps"),
        ("artifacts = ['/a']", "artifacts: nothing is copied out of a box"),
        ("[agent]\nuser = 'bob'", "agent.user: every command of a box runs as its image's user (root)"),
        ("[agent]\ntimeout_sec = -1", "agent.timeout_sec: got -1, expected more than 0"),
        ("[agent]\ntimeout_sec = '9'", "agent.timeout_sec: got '9', expected a number"),
        (
            "[agent]\nnetwork_mode = 'public'",
            "agent.network_mode: the agent and the rest of the task share one box",
        ),
        (
            "[verifier]\nenvironment_mode = 'separate'",
            "verifier.environment_mode: a verifier in a box of its own",
        ),
        ("[verifier.environment]\ncpus = 1", "verifier.environment: the verifier's box is the task's own"),
        ("[[verifier.collect]]\ncommand = 'x'", "verifier.collect: "),
        ("[verifier]\nenv = { K = '${NOBODY}' }", "verifier.env.K: nothing says what NOBODY is"),
        ("[environment]\nmcp_servers = [{ name = 'm' }]", "environment.mcp_servers: "),
        ("[environment]\nskills_dir = '/s'", "environment.skills_dir: "),
        ("[environment]\nos = 'windows'", "environment.os: only Linux boxes"),
        ("[environment]\ngpu_types = ['H100']", "environment.gpu_types: "),
        ("[environment.tpu]\ntype = 'v4'", "environment.tpu: boxes have no TPUs"),
        ("[environment]\nmemory = 'much'", "environment.memory: got 'much', expected a size"),
        (
            "[environment]\nmemory = '1G'\nmemory_mb = 5",
            "environment.memory: it says '1G' and memory_mb says 5",
        ),
        ("[environment]\nnetwork_mode = 'some'", "environment.network_mode: got 'some'"),
        (
            "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['*.x.org']",
            "environment.allowed_hosts: patterns",
        ),
        ("[environment.healthcheck]\nretries = 1", "environment.healthcheck.command: it is missing"),
        ("environment = 3", "'environment' is a int, expected a table of fields"),
        ("[task", "task.toml is no TOML"),
    ],
)
def test_what_cannot_be_honoured_is_named(tmp_path: Path, toml: str, said: str) -> None:
    message = problem(tmp_path, toml)
    assert said in message
    assert str(tmp_path / "task" / "task.toml") in message


def test_one_error_names_all_fields(tmp_path: Path) -> None:
    message = problem(tmp_path, "what = 1\n[environment]\nskills_dir = '/s'\nallow_internet = 'yes'\n")
    assert "3 fields cannot be honoured" in message
    assert all(
        f"\n  - {name}:" in message
        for name in ("what", "environment.skills_dir", "environment.allow_internet")
    )


def test_a_user_may_do_without_a_field(tmp_path: Path) -> None:
    toml = "what = 1\n[environment]\nskills_dir = '/s'\n"
    assert read(tmp_path, toml, {"leave_out": "what, environment.skills_dir"}).name == "task"
    assert "environment.skills_dir" in problem(tmp_path, toml, {"leave_out": ["what"]})


@pytest.mark.parametrize("missing", ["instruction.md", "environment/Dockerfile", "tests/test.sh"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    message = problem(tmp_path, "", **{missing: None})
    assert missing in message
    assert "is missing" in message


def test_a_task_of_several_steps_is_told_what_it_is(tmp_path: Path) -> None:
    message = problem(tmp_path, "[[steps]]\nname = 'a'\n", **{"tests/test.sh": None})
    assert "steps: tasks of several steps are not played here" in message
    assert "tests/test.sh: the file is missing" in message


def test_programs_that_an_image_would_start_are_named(tmp_path: Path) -> None:
    served = {
        "environment/Dockerfile": 'FROM a AS b\nENTRYPOINT ["x"]\nFROM b\nENTRYPOINT ["tini", "--"]\nCMD serve\n'
    }
    assert read(tmp_path, **served).build.context is not None, (
        "the format runs no CMD, and tini alone does nothing"
    )
    served = {"environment/Dockerfile": 'FROM a\nENTRYPOINT ["/serve", \\\n "--all"]\n'}
    assert "'/serve --all' would be missing" in problem(tmp_path, "", **served)
    other = {"environment/Dockerfile": "FROM a\nUSER bob\n"}
    assert "USER in Dockerfile: the tests write to /logs/verifier, which 'bob' may not make" in problem(
        tmp_path, "", **other
    )
    compose = {"environment/docker-compose.yaml": "services: {}"}
    assert "a task has one box here" in problem(tmp_path, "", **compose)


def test_a_ready_image_is_taken_unless_the_dockerfile_is_asked_for(tmp_path: Path) -> None:
    toml = "[environment]\ndocker_image = 'shop/fix:1'\n"
    assert read(tmp_path, toml).build.image == "shop/fix:1"
    assert read(tmp_path, toml, {"force_build": "true"}).build.context is not None


def test_a_health_check_becomes_a_wait(tmp_path: Path) -> None:
    (_, script) = read(
        tmp_path, "[environment.healthcheck]\ncommand = 'test -e \"a b\"'\nretries = 2\n"
    ).setup
    assert "timeout 30 sh -c 'test -e \"a b\"'" in script
    assert '"$failed" -ge 2' in script


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "tests" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(InvalidArgument, match="leads out of the folder"):
        read_tasks(folder)


def test_unknown_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'grade_in'"):
        read(tmp_path, options={"gradein": "fork"})
    assert "bad option 'grade_in'" in problem(tmp_path, "", {"grade_in": "space"})
