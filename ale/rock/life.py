"""`ale rock create` and `ale rock rm`: a sandbox from the command line, from its start to its end.

A sandbox made here has no lease, since nobody stays to renew one: its lifetime ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ale.rock.boxes import find_box, pairs, server
from ale.terminal import stdout
from ale.waiting import awaited
from rock_env.spec import SandboxSpec

__all__ = ["create_command", "rm_command"]


def create_command(
    address: str, image: str, *, snapshot: str, labels: Sequence[str], lifetime_s: float | None
) -> None:
    """Make a sandbox and print its id. Raise `RockError`."""
    given = pairs(labels, "--label")
    making = _create(address, image, snapshot, given, lifetime_s)
    stdout().print(
        awaited(making, f"the ROCK server at {address} to make a sandbox of {image or 'no image'}")
    )


def rm_command(address: str, boxes: Sequence[str]) -> None:
    """Delete sandboxes, none where one of the ids fits none or several. Raise `RockError`."""
    for deleted in awaited(_delete(address, boxes), f"the ROCK server at {address} to delete sandboxes"):
        sys.stderr.write(f"{deleted} is deleted\n")


async def _create(
    address: str, image: str, snapshot: str, labels: dict[str, str], lifetime_s: float | None
) -> str:
    spec = SandboxSpec(image=image) if lifetime_s is None else SandboxSpec(image=image, lifetime_s=lifetime_s)
    inherited = bool(snapshot) and not image and lifetime_s is None  # then the snapshot's own spec holds
    async with server(address) as client:
        box = await client.sandboxes.create(
            spec=None if inherited else spec, lease_s=None, labels=labels, snapshot=snapshot
        )
        box.let_go()
        return box.id


async def _delete(address: str, boxes: Sequence[str]) -> list[str]:
    async with server(address) as client:
        found = [(await find_box(client, box)).id for box in boxes]
        for box in dict.fromkeys(found):
            await (await client.sandboxes.attach(box)).delete()
    return list(dict.fromkeys(found))
