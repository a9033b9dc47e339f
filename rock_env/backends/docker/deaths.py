"""Why containers died: the engine's one stream of events, read for all boxes of a backend.

Used by the `docker` backend only. That a box is gone its connection says at once; what ended it, only the engine knows.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rock_env.backends.docker.engine import Engine
from rock_env.errors import RockError

__all__ = ["Deaths"]

EXPLAIN_S = 2.0
"""How long an ended box's event may take; then the reason is given without it."""
_OOM_S = 0.05
"""The engine tells of an OOM by another way, which may be the slower one."""
_RETRY_S = 1.0
_KILLED = 137

log = logging.getLogger(__name__)


class _Watched:
    def __init__(self) -> None:
        self.reason = ""
        self.oom = False
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class Deaths:
    """The containers of one backend and how they ended. `label` selects their events."""

    def __init__(self, engine: Engine, label: str) -> None:
        self._engine = engine
        self._label = label
        self._watched: dict[str, _Watched] = {}
        self._listening = asyncio.Event()

    async def run(self) -> None:
        """Read events until cancelled; an engine that went away is asked again every second."""
        filters = {"type": ["container"], "event": ["die", "oom"], "label": [self._label]}
        told = False
        while True:
            try:
                async for event in self._engine.events(filters):
                    self._listening.set()
                    told = False
                    if event:
                        self._take(event)
            except RockError as error:
                if not told:  # once for each time the engine goes away
                    log.warning("the ends of sandboxes cannot be explained for now: %s", error)
                told = True
            await asyncio.sleep(_RETRY_S)

    async def listening(self) -> None:
        """Wait until the stream has been opened once."""
        await self._listening.wait()

    def watch(self, container: str) -> None:
        """Keep what is told of a container, by its id, until `forget`."""
        self._watched.setdefault(container, _Watched())

    def forget(self, container: str) -> None:
        """Drop what is known of a container."""
        self._watched.pop(container, None)

    def blame(self, container: str, reason: str) -> None:
        """Say in advance why a container is about to be killed."""
        if container in self._watched:
            self._watched[container].reason = reason

    async def died(self, container: str) -> str:
        """Wait for the end of a container; return the reason."""
        watched = self._watched[container]
        code = await asyncio.shield(watched.exit_code)
        if code == _KILLED and not watched.oom and not watched.reason:
            await asyncio.sleep(_OOM_S)
        return watched.reason or _in_words(code, oom=watched.oom)

    async def explain(self, container: str) -> str:
        """Return the reason for an end that was noticed already; without an event it stays a general one."""
        if container not in self._watched:
            return ""
        try:
            async with asyncio.timeout(EXPLAIN_S):
                return await self.died(container)
        except TimeoutError:
            return (
                self._watched[container].reason
                or "its container ended, and the Docker engine did not say why"
            )

    def _take(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        watched = self._watched.get(actor.get("ID", ""))
        if watched is None:
            return
        if event.get("Action") == "oom":
            watched.oom = True
        elif not watched.exit_code.done():
            watched.exit_code.set_result(int((actor.get("Attributes") or {}).get("exitCode") or 0))


def _in_words(code: int, *, oom: bool) -> str:
    if code == 0:
        return "the sandbox ended by itself: its lease or its lifetime was over, or its server had gone"
    if code == _KILLED and oom:
        return "the sandbox was killed: it ran out of memory (container status 137)"
    if code == _KILLED:
        return "the sandbox was killed from outside (container status 137)"
    return f"the sandbox's guest ended with status {code}"
