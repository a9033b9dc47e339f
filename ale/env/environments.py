"""`ale env list` and `ale env show`: which environments there are, and what they take.

Reads plugins and what was registered; never runs an environment.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from importlib import resources

from ale.terminal import print_fields, print_table, stdout
from rock_env import plugins
from rock_env.errors import RockError
from rock_env.spec import EnvSpec
from rock_env.tasksets import registered
from rock_env.tasksets.registered import EnvReport, Registration

__all__ = ["list_command", "list_library", "show_command"]

_SHOWN_TASKS = 20
_LINE = 80


def list_command(*, as_json: bool = False) -> None:
    """Print one line per environment: first the installed ones, then those that were registered."""
    installed, own = plugins.names("ale.envs"), registered.names()
    if as_json:
        sys.stdout.write(f"{json.dumps([_json(name) for name in plugins.env_names()], indent=1)}\n")
        return
    heads = ("name", "version", "resets", "sandbox", "what it is")
    print_table(heads, [_row(name) for name in installed], least=("version", "resets", "sandbox"))
    if own:
        stdout().print(f"\nregistered in {registered.home()}")
        heads = ("name", "digest", "tasks", "last check", "source")
        print_table(heads, [_own_row(name) for name in own], least=("digest", "tasks"))
    stdout().print("\nalso other libraries' environments by their own ids:")
    for name in plugins.names("ale.libraries"):
        stdout().print(f"{name}:ID  (ale env list --library {name})")


def list_library(name: str, *, as_json: bool = False) -> None:
    """Print the names of a library's environments. Raise `UnknownName`, or `InvalidArgument` if it is not installed."""
    found = [f"{name}:{env_id}" for env_id in plugins.load_library(name).ids()]
    sys.stdout.write(
        f"{json.dumps(found, indent=1)}\n" if as_json else "".join(f"{each}\n" for each in found)
    )


def show_command(name: str) -> None:
    """Print an environment's arguments, its splits and its README, or its last check. Raise `UnknownName`."""
    spec = plugins.load_env(name)
    out = stdout()
    out.print(f"{spec.key}: {spec.summary}\n")
    print_fields("argument", spec.params)
    if all(not field.is_required() for field in spec.params.model_fields.values()):
        source = spec.tasks(spec.params())
        counts = ", ".join(f"{source.count(split)} {split}" for split in source.splits)
        out.print(f"\nTasks with the default arguments: {counts}")
    if registered.known(name):
        _show_registered(registered.find(name))
    elif readme := _readme(spec):
        out.print(f"\n{readme}")


def _show_registered(record: Registration) -> None:
    out = stdout()
    out.print(f"\nRegistered {_day(record.registered_at)} from {record.source}\nDigest {record.digest}")
    for image in record.images:
        out.print(f"Image {image}")
    out.print("\nThe tasks:")
    rows = [
        (
            task.name,
            task.split or "by content",
            "yes" if task.solution else "no",
            _first_line(task.instruction),
        )
        for task in registered.tasks_of(record)[:_SHOWN_TASKS]
    ]
    print_table(("task", "split", "solution", "instruction"), rows)
    if record.tasks > _SHOWN_TASKS:
        out.print(f"and {record.tasks - _SHOWN_TASKS} more")
    report = registered.report_of(record)
    if report is None:
        out.print(f"\nNot checked yet: ale env check {record.name}")
        return
    out.print(f"\nChecked {_day(report.checked_at)}:")
    print_table(
        ("", "check", "evidence"), [(check.result, check.name, check.evidence) for check in report.checks]
    )


def _own_row(name: str) -> tuple[str, ...]:
    try:
        record = registered.find(name)
    except RockError as error:  # one that is damaged must not hide the others
        return name, "", "", "", f"broken: {error}"
    verdict = _verdict(registered.report_of(record))
    if name in plugins.names("ale.envs"):
        verdict = "unusable: an installed environment has this name"
    return name, record.version, str(record.tasks), verdict, record.source


def _verdict(report: EnvReport | None) -> str:
    if report is None:
        return "none"
    failed = sum(check.result == "FAIL" for check in report.checks)
    return f"{f'FAIL ({failed})' if failed else 'PASS'} {_day(report.checked_at)}"


def _json(name: str) -> dict[str, object]:
    own = registered.known(name)
    try:
        spec = plugins.load_env(name)
        described: dict[str, object] = {"name": name, "version": spec.version, "summary": spec.summary}
        if own:
            record = registered.find(name)
            report = registered.report_of(record)
            described |= {"digest": record.digest, "source": record.source, "tasks": record.tasks}
            described |= {"registered_at": record.registered_at, "images": list(record.images)}
            described["check"] = report and {"passed": report.passed, "checked_at": report.checked_at}
    except RockError as error:
        described = {"name": name, "broken": str(error)}
    return {**described, "registered": own}


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LINE else f"{line[: _LINE - 3]}..."


def _row(name: str) -> tuple[str, ...]:
    try:
        spec = plugins.load_env(name)
    except RockError as error:  # a third party's defect must not hide the others
        return name, "", "", "", f"broken plugin: {error}"
    resets = "snapshot" if spec.snapshots else "replay" if spec.replayable else "none"
    return spec.name, spec.version, resets, "yes" if spec.sandbox else "no", spec.summary


def _readme(spec: EnvSpec) -> str:
    """Return the README beside the plugin, or in a package above it; plugins need not have one."""
    package = spec.params.__module__
    while package:
        package = package.rpartition(".")[0]
        if package:
            file = resources.files(package) / "README.md"
            if file.is_file():
                return file.read_text(encoding="utf-8")
    return ""
