"""`ale rock ps` and `ale rock gc`, and how every command finds the sandbox that a user means.

An id may be abbreviated as long as it fits one.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

from ale.terminal import print_table, stdout
from ale.waiting import awaited, waiting_for
from rock_env.client import Client
from rock_env.client.admin import AdminClient
from rock_env.client.sandbox.types import SandboxInfo
from rock_env.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from rock_env.inventory import BackendCensus
from rock_env.lifecycle import SandboxState

__all__ = ["age", "find_box", "gc_command", "pairs", "print_json", "ps_command", "server"]

_FULL_ID = re.compile(r"sb-[0-9a-f]{16}", re.ASCII)
_SHOWN = 5


@asynccontextmanager
async def server(address: str) -> AsyncIterator[Client]:
    """Yield a client of a server that answers. Raise `Unavailable` at once where there is none."""
    with waiting_for(f"the ROCK server at {address}"):
        async with AdminClient(address) as admin:
            if not await admin.serving():
                raise Unavailable(f"the ROCK server at {address} is stopping and takes no new calls.")
    async with Client(address) as client:
        yield client


async def find_box(client: Client, wanted: str) -> SandboxInfo:
    """Return the sandbox whose id is, or begins with, `wanted`; `sb-` may be left out.

    Raise `NotFound`, or `InvalidArgument` where it fits several.
    """
    if _FULL_ID.fullmatch(wanted):
        return await client.sandboxes.get(wanted)
    prefix = wanted if wanted.startswith("sb-") else f"sb-{wanted}"
    known = await client.sandboxes.list()
    fitting = [info for info in known if wanted and info.id.startswith(prefix)]
    if len(fitting) > 1:
        some = ", ".join(info.id for info in fitting[:_SHOWN])
        more = f" and {len(fitting) - _SHOWN} more" if len(fitting) > _SHOWN else ""
        raise InvalidArgument(f"{wanted!r} fits {len(fitting)} sandboxes: {some}{more}. Give more of the id.")
    if not fitting:
        raise NotFound(
            f"no sandbox {wanted!r} among the {len(known)} of yours on {client.address}. `ale rock ps` lists them "
            "(--all: deleted ones too); another tenant's are not shown."
        )
    return fitting[0]


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Return the mapping that words of the form KEY=VALUE say. Raise `InvalidArgument`."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise InvalidArgument(f"bad {option} {word!r}: expected KEY=VALUE.")
        found[key] = value
    return found


def age(seconds: float) -> str:
    """Return a time span in its two largest units, such as `3h 12m`."""
    whole = max(0, round(seconds))
    for unit, size, below, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // small}{below}"
    return f"{whole}s"


def print_json(value: object) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True) + "\n")


# -- ps


def ps_command(address: str, *, everything: bool, labels: Sequence[str], as_json: bool) -> None:
    """List sandboxes. Raise `RockError`."""
    wanted = pairs(labels, "--label")
    found = awaited(_list(address, everything, wanted), f"the ROCK server at {address}")
    if as_json:
        print_json([asdict(info) for info in found])
    elif found:
        now = time.time()
        heads = ["id", "state", "backend", "environment", "labels", "age", "ends", "reason"]
        print_table(heads, [_row(info, now) for info in found])
    else:
        stdout().print("no sandboxes" + (" with these labels" if wanted else ""))


async def _list(address: str, everything: bool, labels: Mapping[str, str]) -> list[SandboxInfo]:
    async with server(address) as client:
        states = tuple(SandboxState) if everything else ()
        return await client.sandboxes.list(labels=labels, states=states)


def _row(info: SandboxInfo, now: float) -> list[str]:
    deadlines = (info.expires_at, info.lease_expires_at, info.idle_expires_at)
    ends = min(at for at in deadlines if at is not None)
    gone = info.state is SandboxState.DELETED
    labels = ",".join(f"{key}={value}" for key, value in sorted(info.labels.items()))
    return [
        info.id,
        info.state,
        info.backend,
        info.environment or "-",
        labels or "-",
        age(now - info.created_at),
        "-" if gone else f"in {age(ends - now)}",
        info.reason,
    ]


# -- gc


def gc_command(address: str, *, dry_run: bool, as_json: bool) -> None:
    """Delete sandboxes that failed, and on the node what no sandbox needs. Raise `RockError`."""
    failed, counted, unseen = awaited(
        _collect(address, dry_run), f"the ROCK server at {address} to look for garbage"
    )
    garbage = [(info.id, f"{info.state}: {info.reason}") for info in failed]
    for census in counted:
        garbage += [(box, f"orphan of {census.backend}: {what}") for box, what in census.orphans.items()]
        garbage += [(layer, f"layer of {census.backend} that nothing needs") for layer in census.stray_layers]
    if as_json:
        print_json([{"id": one, "what": what, "deleted": not dry_run} for one, what in garbage])
    else:
        for one, what in garbage:
            stdout().print(f"{one}  {what}")
        stdout().print(f"{len(garbage)} {'would be deleted' if dry_run else 'deleted'}")
    for census in counted:
        if census.error:
            sys.stderr.write(f"ale: not all was looked at on {census.backend}: {census.error}\n")
    if unseen:
        sys.stderr.write(f"ale: only your own failed sandboxes were looked at: {unseen}\n")


async def _collect(address: str, dry_run: bool) -> tuple[list[SandboxInfo], list[BackendCensus], str]:
    """Return what was or would be deleted, and why the node was not looked at, if so."""
    async with server(address) as client, AdminClient(address) as admin:
        failed = await client.sandboxes.list(states=[SandboxState.FAILED])
        if not dry_run:
            for info in failed:
                await (await client.sandboxes.attach(info.id)).delete()
        try:
            return failed, await admin.census(sweep=not dry_run), ""
        except (PermissionDenied, Unauthenticated, Unimplemented) as error:
            return failed, [], error.message
