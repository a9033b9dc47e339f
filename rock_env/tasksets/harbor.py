"""Reads a Harbor task folder: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh` and maybe `solution/solve.sh`.

Written from the format's public description, schema 1.0 to 1.4. The tests go to /tests and the solution to /solution; the
grade is what the tests leave in /logs/verifier, and their exit code means nothing. What differs from Harbor is in
docs/tasksets.md.
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from rock_env.foreign.files import parsed, plain_values
from rock_env.foreign.folder import place_inside
from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.spec import NetworkPolicy, Resources
from rock_env.tasksets.downloads import first_download
from rock_env.tasksets.fields import MOST_BYTES, Fields, content_of, required_text, text_of
from rock_env.tasksets.folder import PUBLIC, ROOT, files_of, image_words, is_idle, resolved, run_script
from rock_env.tasksets.options import FolderOptions

__all__ = ["HarborOptions", "is_harbor", "read_harbor"]

_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG])B?", re.IGNORECASE | re.ASCII)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FOLDERS = "mkdir -p /logs/verifier /logs/agent /logs/artifacts"
_TESTS = f'{_FOLDERS} && exec "$@"'
"""The grader has emptied /tests and removed /logs/verifier before."""


class HarborOptions(FolderOptions):
    """How Harbor folders are read."""

    force_build: bool = Field(default=False)
    """Build `environment/Dockerfile` also where `docker_image` names an image; as published ones cannot be pulled."""


def is_harbor(path: Path) -> bool:
    """Return whether this is a Harbor task's folder."""
    return (path / "task.toml").is_file()


def read_harbor(path: Path, options: HarborOptions) -> Task:
    """Read one task's folder. Raise `InvalidArgument`, one for all that is wrong in `task.toml`."""
    file = path / "task.toml"
    values = plain_values(parsed(tomllib.loads, text_of(file, path), f"{file} is no TOML"), str(file))
    top = Fields(values, file=file, leave_out=options.leave_out)
    return _Reader(path, options, top).task()


class _Reader:
    """One folder while it is read."""

    def __init__(self, path: Path, options: HarborOptions, top: Fields) -> None:
        self._path = path
        self._options = options
        self._top = top
        self._labels: dict[str, str] = {}
        self._grade_in = ""

    def task(self) -> Task:
        top = self._top
        self._version()
        self._whole_task()
        package = top.table("task")
        name = package.text("name") or self._path.resolve().name
        self._labels |= package.labels("version", "description", "authors", "keywords")
        package.close("name", "version", "description", "authors", "keywords")
        metadata = top.table("metadata")
        self._grade_in = metadata.text("grade_in")
        self._labels |= metadata.all_labels()
        agent = top.table("agent")
        environment = top.table("environment")
        verifier = top.table("verifier")
        solution = top.table("solution")
        network = self._network(environment, agent, verifier)
        agent_timeout_s = agent.number("timeout_sec", 600.0)
        build = self._build(environment)
        self._user(agent, "agent")
        self._user(verifier, "verifier")
        resources = _resources(environment)
        env = self._values(environment, "environment.env")
        workdir = environment.text("workdir")
        setup = (_FOLDERS, *_healthcheck(environment))
        actions, files = self._solution(solution)
        graded = self._verifier(verifier, name)
        if not network.enabled:
            graded = replace(graded, download=first_download(graded.files))
        for table in (agent, environment, verifier, solution):
            table.close()
        top.end()
        return Task(
            name=name,
            instruction=required_text(self._path / "instruction.md", self._path),
            build=build,
            verifier=graded,
            solution=actions,
            solution_files=files,
            setup=setup,
            workdir=workdir,
            env=env,
            resources=resources,
            network=network,
            agent_timeout_s=agent_timeout_s,
            labels=tuple(sorted(self._labels.items())),
            source=f"Harbor folder {self._path}",
        )

    def _version(self) -> None:
        top = self._top
        name = "version" if top.has("version") and not top.has("schema_version") else "schema_version"
        version = top.text(name, _VERSIONS[-1])
        if version not in _VERSIONS:
            top.wrong(
                name,
                f"schema {version!r} is not known here",
                f"Known are {', '.join(_VERSIONS)}; check it by hand.",
            )

    def _whole_task(self) -> None:
        top = self._top
        top.refuse(
            "steps", "tasks of several steps are not played here", "Split it into one task for each step."
        )
        top.refuse("multi_step_reward_strategy", "tasks of several steps are not played here", "Take it out.")
        why = "nothing is copied out of a box when a task ends"
        top.refuse("artifacts", why, "Have tests/test.sh judge the files in the box, and take it out.")
        self._labels |= top.labels("source")

    def _network(self, environment: Fields, agent: Fields, verifier: Fields) -> NetworkPolicy:
        """Return the network of the box; off where the task does not ask for any."""
        asked = environment.text("network_mode")
        mode = asked
        if environment.has("allow_internet"):
            allowed = environment.flag("allow_internet", True)
            mode = mode or ("public" if allowed else "no-network")
        hosts = environment.texts("allowed_hosts")
        for table, phase in ((agent, "agent"), (verifier, "verifier")):
            own = table.text("network_mode")
            if own and own != (mode or "no-network"):
                why = (
                    f"the {phase} and the rest of the task share one box, whose network is {mode or 'off'!r}"
                )
                table.wrong("network_mode", why, "Give both the same.")
            if table.texts("allowed_hosts") not in ([], hosts):
                table.wrong(
                    "allowed_hosts", "agent and verifier share one box", "List them in [environment]."
                )
        match mode:
            case "" | "no-network":
                return NetworkPolicy()
            case "public":
                return PUBLIC
            case "allowlist":
                if any("*" in host for host in hosts):
                    environment.wrong(
                        "allowed_hosts", "patterns of host names cannot be allowed", "List each host."
                    )
                return NetworkPolicy(enabled=bool(hosts), allow=tuple(hosts))
        environment.wrong("network_mode", f"got {mode!r}", "Expected 'no-network', 'public' or 'allowlist'.")
        return NetworkPolicy()

    def _build(self, environment: Fields) -> Build:
        folder = self._path / "environment"
        timeout_s = environment.number("build_timeout_sec", 600.0)
        image = environment.text("docker_image")
        if environment.text("os", "linux").lower() != "linux":
            environment.wrong("os", "only Linux boxes can be made", "Leave this task out.")
        why = "the tools of an agent here are bash, view, edit, run_tests and submit"
        environment.refuse("mcp_servers", why, "Leave this task out.")
        environment.refuse("skills_dir", "agents here know no skills", "Take it out.")
        for name in ("docker-compose.yaml", "docker-compose.yml"):
            if (folder / name).exists():
                environment.wrong(
                    f"{name} (a file in environment/)",
                    "a task has one box here",
                    "Put everything into one Dockerfile.",
                )
        if image and not self._options.force_build:
            return Build(image=image, timeout_s=timeout_s)
        dockerfile = folder / "Dockerfile"
        if not dockerfile.is_file():
            why = "environment/Dockerfile is missing, and nothing else says what the task runs in"
            environment.lacks("docker_image", why, "Write one of the two.")
            return Build()
        words = image_words(dockerfile, self._path)
        if not is_idle(words.entrypoint):
            environment.wrong(
                f"ENTRYPOINT in {dockerfile.name}",
                f"no program of the image is started with a box, and {shlex.join(words.entrypoint)!r} would be missing",
                "Start it in a script that the agent or the tests run.",
            )
        if words.user not in ROOT:
            why = f"the tests write to /logs/verifier, which {words.user!r} may not make"
            environment.wrong(
                f"USER in {dockerfile.name}",
                why,
                "Take it out, or make /logs and /tests for it and name this in the option leave_out.",
            )
        return Build(context=place_inside(self._path, folder), timeout_s=timeout_s)

    def _user(self, table: Fields, who: str) -> None:
        user = table.raw("user")
        if user is None:
            return
        dockerfile = self._path / "environment" / "Dockerfile"
        own = image_words(dockerfile, self._path).user if dockerfile.is_file() else "?"
        if str(user) != own and not {str(user), own} <= ROOT:
            why = f"every command of a box runs as its image's user ({own or 'root'})"
            table.wrong(
                "user", why, f"Set USER {user} in the Dockerfile if {who} and all others should be that."
            )

    def _values(self, table: Fields, place: str) -> tuple[tuple[str, str], ...]:
        """Return a table `env`, with what it asks of the host filled in from the option `variables`."""
        given: Mapping[str, str] = self._options.variables
        filled = {}
        for name, value in table.pairs("env").items():
            filled[name], missing = resolved(value, dict(given))
            if missing:
                why = f"nothing says what {', '.join(missing)} is; this machine's environment is never looked at"
                table.wrong(f"env.{name}", why, f"Give it by the option variables (of {place}).")
        return tuple(sorted(filled.items()))

    def _solution(self, solution: Fields) -> tuple[tuple[str, ...], tuple[TaskFile, ...]]:
        script = self._path / "solution" / "solve.sh"
        env = self._values(solution, "solution.env")
        if not script.is_file():
            return (), ()
        files = files_of(script.parent, "/solution", self._path)
        content = next(file.content for file in files if file.path == "/solution/solve.sh")
        words = [*(["env", *(f"{name}={value}" for name, value in env)] if env else [])]
        return (f"bash {shlex.join([*words, *run_script('/solution/solve.sh', content)])}",), files

    def _verifier(self, verifier: Fields, task: str) -> Verifier:
        mode = verifier.text("environment_mode", "shared")
        if mode != "shared":
            why = f"a verifier in a box of its own ({mode!r}) needs artifacts, which are not copied out of boxes here"
            verifier.wrong("environment_mode", why, "Make it 'shared'.")
        why = "the verifier's box is the task's own"
        verifier.refuse("environment", why, "Put what the tests need into tests/ or environment/Dockerfile.")
        verifier.refuse("collect", why, "Do it at the beginning of tests/test.sh.")
        script = self._path / "tests" / "test.sh"
        if not script.is_file():
            verifier.lacks("tests/test.sh", "the file is missing")
            return Verifier((), "reward_file")
        return Verifier(
            command=("sh", "-c", _TESTS, "sh", *run_script("/tests/test.sh", content_of(script, self._path))),
            parser="reward_file",
            files=files_of(script.parent, "/tests", self._path),
            env=self._values(verifier, "verifier.env"),
            report="/logs/verifier",
            timeout_s=verifier.number("timeout_sec", 600.0),
            grade_in=self._options.where(task, self._grade_in),
        )


def _resources(environment: Fields) -> Resources:
    default = Resources()
    memory = _bytes(environment, "memory", "memory_mb")
    storage = _bytes(environment, "storage", "storage_mb")
    gpus = environment.count("gpus", 0)
    environment.refuse(
        "gpu_types", "boxes are not chosen by kind of GPU", "Take it out, or leave this task out."
    )
    environment.refuse("tpu", "boxes have no TPUs", "Leave this task out.")
    return Resources(
        cpus=environment.number("cpus", default.cpus),
        memory_bytes=memory or 2 << 30,
        disk_bytes=storage or 10 << 30,
        pids=default.pids,
        gpus=gpus,
    )


def _bytes(environment: Fields, old: str, new: str) -> int:
    megabytes = environment.count(new, 0)
    text = environment.text(old)
    if not text:
        return megabytes << 20
    size = _SIZE.fullmatch(text.strip())
    amount = float(size[1]) * _UNITS[size[2].upper()] if size is not None else math.inf
    if amount > MOST_BYTES:
        why = f"got {text!r}, expected a size such as '2G', at most {MOST_BYTES} bytes"
        environment.wrong(old, why, "Correct it.")
        return 0
    said = math.floor(amount)
    if megabytes and said != megabytes << 20:
        environment.wrong(old, f"it says {text!r} and {new} says {megabytes}", "Keep one of them.")
    return said


def _healthcheck(environment: Fields) -> tuple[str, ...]:
    """Return the script that waits until the box is ready."""
    if not environment.has("healthcheck"):
        environment.raw("healthcheck")
        return ()
    check = environment.table("healthcheck")
    command = check.need_text("command")
    limit_s = math.ceil(check.number("timeout_sec", 30.0))
    grace_s = check.number("start_period_sec", 0.0, least=-1.0)
    early_s = check.number("start_interval_sec", 5.0, least=1e-3)
    pause_s = check.number("interval_sec", 5.0)
    retries = check.count("retries", 3)
    check.close()
    grace = math.ceil(grace_s / early_s)
    script = (
        f"failed=0; early={grace}; until timeout {limit_s} sh -c {shlex.quote(command)}; do "
        f'if [ "$early" -gt 0 ]; then early=$((early - 1)); sleep {early_s:g}; '
        f'else failed=$((failed + 1)); if [ "$failed" -ge {retries} ]; then exit 1; fi; sleep {pause_s:g}; fi; done'
    )
    return (script,)
