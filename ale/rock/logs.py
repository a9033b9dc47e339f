"""`ale rock logs`: what a background process of a sandbox wrote, or which there are.

Its two outputs stay apart, as they were written.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from ale.rock.boxes import age, find_box, print_json, server
from ale.rock.exec import show_output
from ale.terminal import print_table, stdout
from rock_env.sandbox import CommandEnd, ProcessInfo

__all__ = ["ending", "logs_command"]


def logs_command(address: str, where: str, *, follow: bool, as_json: bool) -> None:
    """Print the log of `SANDBOX/PROCESS`, or the processes of `SANDBOX`. Raise `RockError`."""
    box, _, name = where.partition("/")
    if name:
        asyncio.run(_logs(address, box, name, follow))
        return
    found = asyncio.run(_processes(address, box))
    if as_json:
        print_json([asdict(process) for process in found])
    elif found:
        rows = [[p.id, ending(p.end), age(p.running_for_s), str(p.pid), " ".join(p.argv)] for p in found]
        print_table(["process", "state", "for", "pid", "command"], rows)
    else:
        stdout().print("no background processes")


async def _logs(address: str, box: str, name: str, follow: bool) -> None:
    async with server(address) as client:
        attached = await client.sandboxes.attach((await find_box(client, box)).id)
        await show_output(attached.process(name).logs(follow=follow))


async def _processes(address: str, box: str) -> list[ProcessInfo]:
    async with server(address) as client:
        return await (await client.sandboxes.attach((await find_box(client, box)).id)).processes()


def ending(end: CommandEnd | None) -> str:
    """Return how a command ended in two words; None: it runs."""
    if end is None:
        return "running"
    if end.infra_error:
        return end.infra_error
    if end.timed_out:
        return "timed out"
    return f"signal {end.signal}" if end.signal is not None else f"exit {end.exit_code}"
