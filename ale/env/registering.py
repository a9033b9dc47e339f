"""`ale env register` and `ale env remove`: from a folder of tasks to an environment that is found by name.

Reads the tasks, has a server build their images, keeps both (`rock_env.tasksets.registered`), and checks what came of it.
Without `--skip-bad` a task that cannot be read or built stops it with nothing changed, and one that fails its check is
kept, as the report says; with it such tasks are left out, each with its verdict.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ale.docker import engine_version
from ale.env.check import checked, report_on
from ale.env.task_images import BuiltImages, built_images
from ale.rock.reach import connected
from ale.terminal import stdout
from ale.waiting import awaited
from rock_env import plugins
from rock_env.client.registry import RegistryClient
from rock_env.errors import InvalidArgument, Unavailable
from rock_env.grading.model import Build, Task, Unread
from rock_env.tasksets import registered
from rock_env.tasksets.detect import read_each, read_tasks
from rock_env.tasksets.registered import Registration
from rock_env.vetting.vet import Vetted

__all__ = ["RegisterCommand", "register_command", "remove_command"]


@dataclass(frozen=True, slots=True)
class RegisterCommand:
    """What the user typed."""

    path: Path
    name: str | None
    options: Mapping[str, object]
    check: bool
    tasks: int
    skip_bad: bool
    rock: str


@dataclass(slots=True)
class _Wanted:
    """An environment on its way."""

    name: str
    source: Path
    tasks: list[Task]
    bad: dict[str, str] = field(default_factory=dict)
    """Tasks that were left out, and why."""


def register_command(command: RegisterCommand) -> int:
    """Register and check; return 1 if a check failed. Raise `RockError`, with nothing changed."""
    source = command.path.absolute()
    name = registered.check_name(command.name or _name_of(source))
    _need_free(name, source)
    wanted = _Wanted(name, source, [])
    if command.skip_bad:
        _leave_unread(wanted, command.options)
    else:
        wanted.tasks = read_tasks(source, **command.options)
    return awaited(_register(command, wanted), f"the checks of {name}")


def remove_command(name: str) -> None:
    """Forget a registered environment. Raise `UnknownName`; an installed one is not ours to remove."""
    if name in plugins.names("ale.envs") and not registered.known(name):
        raise InvalidArgument(f"{name!r} was installed, not registered: uninstall the package that ships it.")
    registered.remove(name)
    stdout().print(f"{name} is removed. Its folder and its images stay.")


def _leave_unread(wanted: _Wanted, options: Mapping[str, object]) -> None:
    """Read the tasks and leave out those that cannot be read. Raise `InvalidArgument` where no other is."""
    for found in read_each(wanted.source, **options):
        if isinstance(found, Unread):
            wanted.bad[found.name] = found.why
        else:
            wanted.tasks.append(found)
    if not wanted.tasks:
        _tell_bad(wanted.bad)
        raise InvalidArgument(
            f"{wanted.source} holds no task that can be read. See `ale env register --help`."
        )


async def _register(command: RegisterCommand, wanted: _Wanted) -> int:
    if not command.rock:
        try:
            await engine_version()  # rather than to wait for an engine that the server cannot reach
        except Unavailable as error:
            raise Unavailable(f"{error.message} Or name a ROCK server that has it with --rock.") from error
    async with connected(command.rock) as client:
        async with RegistryClient(client.address) as registry:
            built = await built_images(registry, wanted.tasks)
        _leave_unbuilt(command, wanted, built)
        record = _store(wanted, built)
        if not command.check:
            _tell_bad(wanted.bad)
            _tell_registered(record)
            return 0
        # To leave out what is bad, every task has to be looked at.
        count = len(wanted.tasks) if command.skip_bad else command.tasks
        found = await checked(client, plugins.load_env(wanted.name), {}, tasks=count)
    if command.skip_bad:
        found = _leave_failed(wanted, found)
        record = _store(wanted, built)
        registered.store_report(record, report_on(record, found))
    _tell_bad(wanted.bad)
    _tell_registered(record)
    if failed := [report.name for report in found if report.result == "FAIL"]:
        _say(
            f"{len(failed)} checks failed: {', '.join(failed)}. Correct the tasks and register {command.path} again "
            f"(docs/environments.md says what each check means); until then {wanted.name} is there as it is."
        )
        return 1
    stdout().print(f"\n{wanted.name} is ready: ale env play {wanted.name}, ale train --env {wanted.name}")
    return 0


def _leave_unbuilt(command: RegisterCommand, wanted: _Wanted, built: BuiltImages) -> None:
    """Leave out the tasks whose image does not build. Raise `InvalidArgument` where that is not asked for."""
    if not built.failures:
        return
    kept = [task for task in wanted.tasks if task.build not in built.failures]
    if command.skip_bad and kept:
        bad = {task.name: built.failures[task.build] for task in wanted.tasks if task not in kept}
        wanted.bad |= bad
        wanted.tasks = kept
        return
    _say("\n".join(built.failures.values()))
    raise InvalidArgument(
        f"{len(built.failures)} of {len(built.failures) + len(built.images)} images did not build; the ends of their "
        "logs are above. Correct the Dockerfile, or leave such tasks out with --skip-bad. Nothing was registered."
    )


def _leave_failed(wanted: _Wanted, found: Sequence[Vetted]) -> list[Vetted]:
    """Leave out the tasks that failed a check, and return what the checks say of those that are kept."""
    bad: dict[str, str] = {}
    for report in found:
        for title, what in report.wrong.items():
            bad.setdefault(title.rpartition(" (")[0], f"{report.name}: {what}")
    if len(bad) == len(wanted.tasks):
        return list(found)  # nothing would be left: the report says why
    wanted.bad |= bad
    wanted.tasks = [task for task in wanted.tasks if task.name not in bad]
    kept = f"on {len(wanted.tasks)} tasks that were kept"
    return [
        replace(report, result="PASS", evidence=kept, wrong={}) if report.wrong else report
        for report in found
    ]


def _store(wanted: _Wanted, built: BuiltImages) -> Registration:
    tasks = wanted.tasks
    record = Registration(
        name=wanted.name,
        digest=registered.digest_of(tasks, [built.contents[task.build] for task in tasks]),
        source=str(wanted.source),
        registered_at=time.time(),
        tasks=len(tasks),
        images=tuple(sorted({built.images[task.build] for task in tasks})),
    )
    registered.store(record, [replace(task, build=Build(image=built.images[task.build])) for task in tasks])
    return record


def _name_of(source: Path) -> str:
    """Return the name that a folder or file suggests; one that cannot be a name is refused by `check_name`."""
    stem = source.name if source.is_dir() else source.name.partition(".")[0]
    return re.sub(r"[^a-z0-9_-]+", "_", (stem or source.name).lower()).strip("_-") or source.name


def _need_free(name: str, source: Path) -> None:
    """Raise `InvalidArgument` where another environment has the name."""
    if name in plugins.names("ale.envs"):
        raise InvalidArgument(
            f"an installed environment is called {name!r}. Choose another name with --name."
        )
    if not registered.known(name):
        return
    record = registered.find(name)
    if record.source != str(source):
        raise InvalidArgument(
            f"{name!r} is registered already, from {record.source}. Choose another name with --name, or make room with "
            f"`ale env remove {name}`."
        )


def _tell_bad(bad: Mapping[str, str]) -> None:
    for name, what in bad.items():
        _say(f"left out {name}: {what}")


def _tell_registered(record: Registration) -> None:
    _say(
        f"registered {record.name}: {record.tasks} tasks, {len(record.images)} images, digest {record.version}"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
