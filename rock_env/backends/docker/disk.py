"""How much disk a container may fill: measured from outside, since the engine's usual storage has no quota.

Used by the `docker` backend only. One file can never exceed the limit (RLIMIT_FSIZE); their sum is watched: when the
disk of the engine has lost space, or from time to time, each box's writable layer is measured, and one beyond its
limit is reported. A box can thus exceed its limit by what it writes between two looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from rock_env.backends.docker.engine import Engine, EngineRefusal
from rock_env.errors import RockError, Unavailable

__all__ = ["DiskWatch"]

LOOK_S = 0.5
"""How often free space is asked for: one system call."""
MEASURE_S = 30.0
"""How long a box may go unmeasured while the disk loses no space."""
_SLACK = 8
"""Boxes are measured when the disk lost more than this part (1/8) of the smallest limit since the last time."""

log = logging.getLogger(__name__)


class DiskWatch:
    """Watches the boxes of one backend while its `run` is awaited.

    `boxes` tells the limit in bytes by container name; `on_full(name, message)` is awaited for a box beyond it.
    """

    def __init__(
        self,
        engine: Engine,
        storage: Path,
        *,
        boxes: Callable[[], Mapping[str, int]],
        on_full: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._boxes = boxes
        self._on_full = on_full

    async def run(self) -> None:
        """Watch until cancelled."""
        free, measured_at = self._free(), time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            boxes = dict(self._boxes())
            if not boxes:
                free = self._free()
                continue
            now_free = self._free()
            lost = free - now_free
            if lost <= min(boxes.values()) // _SLACK and time.monotonic() - measured_at < MEASURE_S:
                free = max(free, now_free)
                continue
            with contextlib.suppress(Unavailable):  # the stream of events says so already
                for name, limit in boxes.items():
                    await self._check(name, limit)
            free, measured_at = self._free(), time.monotonic()

    async def _check(self, name: str, limit: int) -> None:
        try:
            used = await self._measure(name)
        except Unavailable:
            raise
        except RockError as error:
            log.warning("disk use of a sandbox could not be measured container=%s: %s", name, error)
            return
        if used > limit:
            await self._on_full(
                name, f"the sandbox was ended: its files take {used} bytes, its disk limit is {limit}"
            )

    async def _measure(self, name: str) -> int:
        """Return the bytes of a container's writable layer, counted by the engine; 0 for one that is gone."""
        try:
            described = await self._engine.heavy("GET", f"/containers/{name}/json", params={"size": "1"})
        except EngineRefusal as refusal:
            if refusal.status == 404:
                return 0
            raise
        return int(described.get("SizeRw") or 0)

    def _free(self) -> int:
        """Return the free bytes of the engine's disk; 0, so that time alone decides, where it cannot be seen."""
        try:
            status = os.statvfs(self._storage)
        except OSError:
            return 0
        return status.f_bavail * status.f_frsize
