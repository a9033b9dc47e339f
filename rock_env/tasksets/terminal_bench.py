"""Reads a Terminal-Bench task folder: `task.yaml`, a Dockerfile or docker-compose file, `run-tests.sh`, a solution.

Written from the format's public description, version 1. Tests and run-tests.sh go to /tests, the solution to /oracle. The
grade is what the parser finds in the output of run-tests.sh: resolved if there are tests and all of them passed. What
differs from Terminal-Bench is in docs/tasksets.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rock_env.errors import InvalidArgument
from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.spec import Resources
from rock_env.tasksets.compose import Service, check_idle, read_service, yaml_of
from rock_env.tasksets.downloads import first_download
from rock_env.tasksets.fields import Fields, content_of, refused
from rock_env.tasksets.folder import ROOT, files_of, image_words
from rock_env.tasksets.options import FolderOptions

__all__ = ["TerminalBenchOptions", "is_terminal_bench", "read_terminal_bench"]

_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_PARSERS = {"pytest": "pytest", "swebench": "swebench"}
"""Their names for parsers, and ours."""
_LABELS = (
    "author_name",
    "author_email",
    "difficulty",
    "category",
    "tags",
    "disable_asciinema",
    "env_name",
    "estimated_duration_sec",
    "expert_time_estimate_min",
    "junior_time_estimate_min",
    "language",
)
_HARNESS = {
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_CONTAINER_LOGS_PATH": "/logs",
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs",
}
"""What the harness says in a compose file that concerns the inside of the container."""


class TerminalBenchOptions(FolderOptions):
    """How Terminal-Bench folders are read."""


def is_terminal_bench(path: Path) -> bool:
    """Return whether this is a Terminal-Bench task's folder."""
    return (path / "task.yaml").is_file()


def read_terminal_bench(path: Path, options: TerminalBenchOptions) -> Task:
    """Read one task's folder. Raise `InvalidArgument`, one for all that is wrong in a file."""
    file = path / "task.yaml"
    top = Fields(yaml_of(file, path), file=file, leave_out=options.leave_out)
    instruction = _instruction(top)
    labels = top.labels(*_LABELS)
    parser = top.text("parser_name", "pytest")
    if parser not in _PARSERS:
        top.lacks("parser_name", f"no parser {parser!r} here", f"Known are {', '.join(sorted(_PARSERS))}.")
    grade_in = top.text("grade_in")
    in_shell = top.flag("run_tests_in_same_shell", False)
    agent_timeout_s = top.number("max_agent_timeout_sec", 360.0)
    test_timeout_s = top.number("max_test_timeout_sec", 60.0)
    top.end()
    service, build = _service(path, options)
    actions, files = _solution(path, options)
    tests = path / "run-tests.sh"
    if not tests.is_file():
        raise InvalidArgument(f"{tests} is missing; the format requires it.")
    default = Resources()
    graded = (
        *(files_of(path / "tests", "/tests", path) if (path / "tests").is_dir() else ()),
        TaskFile("/tests/run-tests.sh", content_of(tests, path), 0o755),
    )
    return Task(
        name=path.resolve().name,
        instruction=instruction,
        build=build,
        verifier=Verifier(
            command=("bash", "/tests/run-tests.sh"),
            parser=_PARSERS[parser],
            files=graded,
            env=(("TEST_DIR", "/tests"),),
            timeout_s=test_timeout_s,
            grade_in=options.where(path.resolve().name, grade_in),
            in_shell=in_shell,
            download="" if service.network.enabled else first_download(graded),
        ),
        solution=actions,
        solution_files=files,
        setup=("mkdir -p /logs /agent-logs", *service.setup),
        workdir=service.workdir,
        env=service.env,
        resources=replace(
            default,
            cpus=service.cpus or default.cpus,
            memory_bytes=service.memory_bytes or 2 << 30,
            disk_bytes=10 << 30,
        ),
        network=service.network,
        agent_timeout_s=agent_timeout_s,
        labels=tuple(sorted(labels.items())),
        source=f"Terminal-Bench folder {path}",
    )


def _instruction(top: Fields) -> str:
    """Take the instruction, or of `descriptions`, as older tasks have it, the one of the key `base` or the only one."""
    said = top.raw("descriptions")
    if not said or top.has("instruction"):
        if said:
            top.wrong("descriptions", "one task has one instruction", "Keep one as `instruction`.")
        return top.need_text("instruction")
    found: dict[str, str] = {}
    for number, entry in enumerate(said if isinstance(said, list) else [said]):
        fields = top.inner(f"descriptions[{number}]", entry)
        key = fields.text("key", "base")
        text = "instruction" if fields.has("instruction") else "description"
        found[key] = fields.need_text(text)
        fields.close("key", "description", "instruction")
    if "base" not in found and len(found) > 1:
        top.lacks(
            "descriptions", f"none has the key 'base' ({', '.join(found)})", "Keep one as `instruction`."
        )
    return found.get("base") or next(iter(found.values()))


def _service(path: Path, options: TerminalBenchOptions) -> tuple[Service, Build]:
    """Return what the compose file says, if there is one, and what is built."""
    files = [path / name for name in _COMPOSE if (path / name).is_file()]
    variables = {**_HARNESS, **options.variables}
    service = read_service(files[0], "client", variables, options.leave_out) if files else Service(build=None)
    build = service.build or Build(context=path)
    if build.context is None:
        return service, build
    dockerfile = build.context / build.dockerfile
    if not dockerfile.is_file():
        raise InvalidArgument(f"{dockerfile} is missing; the task's image is built from it.")
    words = image_words(dockerfile, path)
    found = Fields({}, file=files[0] if files else dockerfile, leave_out=options.leave_out)
    check_idle(found, "entrypoint", words.entrypoint if service.entrypoint is None else service.entrypoint)
    if service.command is None and service.entrypoint is None:
        check_idle(found, "CMD", words.command)
    check_idle(found, "command", service.command or ())
    if service.user is not None and service.user != words.user and not {service.user, words.user} <= ROOT:
        why = f"every command of a box runs as its image's user ({words.user or 'root'})"
        found.wrong("user", why, f"Set USER {service.user} in the Dockerfile.")
    if words.user not in ROOT:
        why = f"the tests go to /tests, which {words.user!r} may not make"
        found.wrong(
            "USER", why, "Take it out, or make /tests, /oracle and /logs for it and give leave_out=USER."
        )
    found.end()
    return service, build


def _solution(path: Path, options: TerminalBenchOptions) -> tuple[tuple[str, ...], tuple[TaskFile, ...]]:
    script, typed = path / "solution.sh", path / "solution.yaml"
    if script.is_file():
        return ("bash bash /oracle/solution.sh",), (
            TaskFile("/oracle/solution.sh", content_of(script, path), 0o755),
        )
    if not typed.is_file():
        return (), ()
    lines = yaml_of(typed, path)
    if not isinstance(lines, list):
        raise InvalidArgument(f"{typed} holds a {type(lines).__name__}, expected a list of commands.")
    problems: list[str] = []
    actions = []
    for number, line in enumerate(lines):
        prefix, leave_out = f"[{number}].", options.leave_out
        actions.append(
            _typed(Fields(line, file=typed, prefix=prefix, problems=problems, leave_out=leave_out))
        )
    if problems:
        raise refused(typed, problems)
    return tuple(actions), ()


def _typed(line: Fields) -> str:
    """Return the action that stands for one command typed into the terminal."""
    command = line.need_text("command")
    (
        line.raw("min_timeout_sec"),
        line.raw("max_timeout_sec"),
    )  # how long to look at the terminal: an action waits itself
    line.raw("block")  # likewise
    if not line.flag("append_enter", True):
        line.wrong("append_enter", "no keys are typed into a running program here", "Leave this task out.")
    line.close()
    return f"bash {command}"
