"""`ale rock serve`, `status` and `drain`: a ROCK server in the foreground, a look at one, and its end.

What a server does is in `rock_env.server`; here it gets its log level and its words.
"""

from __future__ import annotations

import asyncio
import sys

from ale.terminal import stdout
from rock_env.client.admin import AdminClient, Drained
from rock_env.errors import Unavailable
from rock_env.platforms import check_hosting
from rock_env.server.app import serve
from rock_env.server.options import ServerOptions
from rock_env.telemetry.setup import set_up_telemetry

__all__ = ["drain_command", "serve_command", "status_command"]


def serve_command(options: ServerOptions, log_level: str) -> None:
    """Serve until Ctrl-C. Raise `RockError` if it cannot."""
    set_up_telemetry(log_level, options.log_format)
    check_hosting(sys.platform)
    asyncio.run(serve(options))


def status_command(address: str) -> None:
    """Print the state of a server. Raise `RockError` if it is not serving or does not answer."""
    asyncio.run(_status(address))


def drain_command(address: str, *, within_s: float | None) -> None:
    """Make a server end gracefully. Raise `RockError` if it does not answer."""
    drained = asyncio.run(_drain(address, within_s))
    stdout().print(
        f"{address} is stopping; sandboxes: {drained.durable} live on, {drained.ending} end with it"
    )


async def _drain(address: str, within_s: float | None) -> Drained:
    async with AdminClient(address) as admin:
        return await admin.drain(within_s=within_s)


async def _status(address: str) -> None:
    async with AdminClient(address) as admin:
        if not await admin.serving():
            raise Unavailable(f"the ROCK server at {address} is stopping and takes no new calls.")
        stdout().print(f"{address} is serving")  # said before the next question, which may be refused
        load = await admin.capacity()
    stdout().print(
        f"up {load.uptime_s:.0f} s; environments: {load.envs_in_workers} in {load.workers} of {load.max_workers} "
        f"workers, {load.envs_in_sandboxes} in sandboxes"
    )
