"""Waiting for a guest that has just been started: it opens and closes a FIFO once it listens.

Used by the `docker` backend only. Nothing is polled: the end of the FIFO, or of the container, is what wakes the server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rock_env.errors import InfraError

__all__ = ["ReadySignal"]

START_S = 60.0
"""How long the guest of a started container may take to listen; a machine under load is slow."""


class ReadySignal:
    """The server's end of the FIFO; used as a context, entered before the container starts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> ReadySignal:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._fd, self._readable)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    async def wait(self, *, died: Coroutine[Any, Any, str]) -> None:
        """Wait for the guest. Raise `InfraError` if `died` comes first, with the reason, or after `START_S`."""
        dying = asyncio.ensure_future(died)
        try:
            await asyncio.wait((self._came, dying), timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._came.done():
                said = f"its guest did not listen within {START_S:g} s"
                raise InfraError(f"a sandbox did not come up: {dying.result() if dying.done() else said}")
        finally:
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)

    def _readable(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        self._came.set_result(None)
