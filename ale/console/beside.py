"""`python -m ale.console.beside RUN PORT`: the console of one run until standard input ends, for `ale.watching.page`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from agent_runtime.gateway.http_server import serving
from ale.console.app import application
from ale.console.catalog import Catalog, place_of
from ale.console.cli import LIMITS
from ale.console.guard import Door

__all__: list[str] = []

_HOST = "127.0.0.1"
_STOP_S = 0.5
"""How long an open page may hold its stream at the end: less than the run waits for this process."""


async def _serve(run: Path, port: int) -> None:
    door = Door(application(Catalog([str(run)])), _HOST)
    async with serving(door, f"{_HOST}:{port}", limits=replace(LIMITS, stop_s=_STOP_S)) as url:
        sys.stdout.write(f"{url}/#/run/{place_of(run)}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    try:
        asyncio.run(_serve(Path(sys.argv[1]).absolute(), int(sys.argv[2])))
    except OSError as error:
        sys.exit(error.strerror or f"{error}")
