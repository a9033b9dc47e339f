"""How much disk a container may fill: measured from outside, since the engine's usual storage has no quota.

Used by the `docker` backend only. One file can never exceed the limit (RLIMIT_FSIZE); their sum is watched: when the
disk of the engine has lost space, or from time to time, each box's writable layer is measured, and one beyond its
limit is reported. A box can thus exceed its limit by what it writes between two looks. Files are counted as well, where the
engine's layers can be read from here: empty ones take no bytes, and the disk of the engine has so many of them.
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
from rock_env.errors import OwnLimit, RockError, Unavailable
from rock_env.threads import for_life

__all__ = ["DiskWatch"]

BYTES_PER_FILE, LEAST_FILES = 4096, 1024
"""A box may have a file for so many bytes of its disk, and so many at least, as process sandboxes may."""
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
        on_full: Callable[[str, OwnLimit], Awaitable[None]],
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
            least = min(boxes.values())
            lost = (
                free[0] - now_free[0] > least // _SLACK
                or free[1] - now_free[1] > _most_files(least) // _SLACK
            )
            if not lost and time.monotonic() - measured_at < MEASURE_S:
                free = max(free[0], now_free[0]), max(free[1], now_free[1])
                continue
            with contextlib.suppress(Unavailable):  # the stream of events says so already
                for name, limit in boxes.items():
                    await self._check(name, limit)
            free, measured_at = self._free(), time.monotonic()

    async def _check(self, name: str, limit: int) -> None:
        try:
            used, layer = await self._measure(name)
        except Unavailable:
            raise
        except RockError as error:
            log.warning("disk use of a sandbox could not be measured container=%s: %s", name, error)
            return
        most = _most_files(limit)
        if used > limit:
            reason = f"the sandbox was ended: its files take {used} bytes, its disk limit is {limit}"
            await self._on_full(name, OwnLimit(reason))
        elif layer != "" and await for_life(_holds_more, layer, most):
            reason = f"the sandbox was ended: it has more than {most} files, which its disk limit of {limit} bytes allows"
            await self._on_full(name, OwnLimit(reason))

    async def _measure(self, name: str) -> tuple[int, str]:
        """Return the bytes of a container's writable layer, as the engine counts, and its folder; 0 for one that is gone."""
        try:
            described = await self._engine.heavy("GET", f"/containers/{name}/json", params={"size": "1"})
        except EngineRefusal as refusal:
            if refusal.status == 404:
                return 0, ""
            raise
        layer = ((described.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
        return int(described.get("SizeRw") or 0), str(layer or "")

    def _free(self) -> tuple[int, int]:
        """Return the free bytes and files of the engine's disk; 0, so that time alone decides, where it cannot be seen."""
        try:
            status = os.statvfs(self._storage)
        except OSError:
            return 0, 0
        return status.f_bavail * status.f_frsize, status.f_favail


def _most_files(limit: int) -> int:
    return max(LEAST_FILES, limit // BYTES_PER_FILE)


def _holds_more(folder: str, most: int) -> bool:
    """Return whether there are more than `most` files and folders in a folder; what cannot be read is not counted."""
    folders, count = [folder], 0
    while folders and count <= most:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > most:
                    break
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return count > most
