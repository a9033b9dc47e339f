"""`ale rock serve` and `ale rock status`: a ROCK server in the foreground, and a look at one.

Called by the command line. What a server does is in `rock_env.server`; here it gets its log level and its words.
"""

from __future__ import annotations

import asyncio
import logging

from ale.terminal import stdout
from rock_env.backends.process import ProcessBackend
from rock_env.client.admin import AdminClient
from rock_env.errors import Unavailable
from rock_env.server.app import serve
from rock_env.server.options import ServerOptions

__all__ = ["serve_command", "status_command"]


def serve_command(options: ServerOptions, log_level: str) -> None:
    """Serve until Ctrl-C. Raise `RockError` if it cannot."""
    logging.getLogger().setLevel(log_level)
    asyncio.run(serve(options, ProcessBackend(isolation=options.sandbox_isolation)))


def status_command(address: str) -> None:
    """Print the state of a server. Raise `RockError` if it is not serving or does not answer."""
    asyncio.run(_status(address))


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
