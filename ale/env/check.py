"""`ale env check`: play an environment's tasks and say whether they are fit to train on.

The checks are `rock_env.vetting`'s; here they are printed, and kept for an environment that was registered.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict

from rich.text import Text

from ale.own_class import bring
from ale.rock.reach import connected
from ale.terminal import stdout
from ale.waiting import awaited
from rock_env import plugins
from rock_env.client import Client
from rock_env.client.registry import RegistryClient
from rock_env.errors import FailedPrecondition
from rock_env.spec import EnvSpec
from rock_env.tasksets import registered
from rock_env.tasksets.registered import CheckEntry, EnvReport, Registration
from rock_env.vetting.episodes import Subject
from rock_env.vetting.vet import Vetted, sample, vet

__all__ = ["check_command", "checked", "report_on"]

_COLOURS = {"PASS": "green", "FAIL": "red", "SKIP": "yellow", "WARN": "yellow"}


def check_command(
    name: str,
    env_args: Mapping[str, object],
    *,
    tasks: int,
    hacks: int = 0,
    rock: str,
    as_json: bool,
    backends: Sequence[str] = (),
) -> int:
    """Check an environment, print a line per check, and return 1 if one failed. Raise `RockError`."""
    bring(name)
    spec = plugins.load_env(name)

    async def act() -> list[Vetted]:
        async with connected(rock, backends) as client:
            return await checked(client, spec, env_args, tasks=tasks, hacks=hacks, quiet=as_json)

    reports = awaited(act(), f"the checks of {name}")
    failed = sum(report.result == "FAIL" for report in reports)
    if as_json:
        sys.stdout.write(f"{json.dumps([asdict(report) for report in reports], indent=1)}\n")
    else:
        passed = sum(report.result == "PASS" for report in reports)
        verdict = (
            f"{failed} of {len(reports)} checks failed"
            if failed
            else f"fit to train on: {passed} checks passed"
        )
        stdout().print(f"\n{spec.key}: {verdict}")
    return int(bool(failed))


async def checked(
    client: Client,
    spec: EnvSpec,
    env_args: Mapping[str, object],
    *,
    tasks: int,
    hacks: int = 0,
    quiet: bool = False,
) -> list[Vetted]:
    """Run the checks on a server and keep the report of a registered environment with its default arguments.

    The catalogue of hacks is played on `hacks` tasks.
    """
    params = plugins.env_params(spec, json.dumps(env_args))
    await _need_same(client, spec, params.canonical())
    own = registered.known(spec.name)
    made_of = {task.name: task for task in registered.tasks_of(registered.find(spec.name))} if own else None
    subject = Subject(client, spec, params, sample(spec, params, tasks), made_of, hacks)
    found: list[Vetted] = []
    async with RegistryClient(client.address) as registry, aclosing(vet(subject, registry)) as reports:
        async for report in reports:
            found.append(report)
            if not quiet:
                _show(report)
    if own and params == spec.params():
        record = registered.find(spec.name)
        registered.store_report(record, report_on(record, found))
    return found


async def _need_same(client: Client, spec: EnvSpec, params_json: str) -> None:
    """Raise `UnknownName` or `FailedPrecondition` where the server does not have this very environment."""
    env = await client.make(spec.name, params_json)
    await env.close()
    if env.version != spec.version:
        raise FailedPrecondition(
            f"the server at {client.address} has {spec.name}@{env.version}, and here it is {spec.key}. Register the same "
            "tasks on its machine (`ale env register`), or install the same version there."
        )


def report_on(record: Registration, found: Sequence[Vetted]) -> EnvReport:
    """Return a check as it is kept."""
    entries = tuple(CheckEntry(check.name, check.result, check.evidence, check.duration_s) for check in found)
    return EnvReport(digest=record.digest, checked_at=time.time(), checks=entries)


def _show(report: Vetted) -> None:
    line = Text(f"{report.result:<5}", style=_COLOURS[report.result])
    evidence = report.evidence.replace("\n", "\n" + " " * 49)
    line.append(f"{report.name:<32}{report.duration_s:8.2f} s  {evidence}", style="default")
    stdout().print(line)
