"""What pages download: kept in the box, so many files of such a size, and waited for no longer than a page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from playwright.async_api import Error as PlaywrightError

__all__ = ["MOST_DOWNLOADS", "MOST_DOWNLOAD_BYTES", "Downloads"]

MOST_DOWNLOADS = 20
MOST_DOWNLOAD_BYTES = 8 << 20
_FINISH_S = 8.0
_STRANGE = re.compile(r"[^A-Za-z0-9_. -]")


def _size(path: Path) -> int:
    return path.stat().st_size


class Downloads:
    """The downloads of one episode. `running` says how many are on their way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun = 0
        self.running = 0

    async def take(self, download: Any) -> str:
        """Keep one, and return what is to be said of it."""
        self.running += 1
        try:
            return await self._taken(download)
        finally:
            self.running -= 1

    async def _taken(self, download: Any) -> str:
        wanted = _STRANGE.sub("_", str(download.suggested_filename))[:100].lstrip(". ") or "download"
        self._begun += 1
        if self._begun > MOST_DOWNLOADS:
            await download.cancel()
            return f"a download of {wanted!r} was refused: there were {MOST_DOWNLOADS} already"
        try:
            async with asyncio.timeout(_FINISH_S):
                arrived = Path(await download.path())
        except TimeoutError:
            await download.cancel()
            return f"the download of {wanted!r} did not end in {_FINISH_S:g} s and was given up"
        except PlaywrightError:
            return f"the download of {wanted!r} failed"
        size = _size(arrived)
        if size > MOST_DOWNLOAD_BYTES:
            await download.delete()
            return f"the download of {wanted!r} has {size} bytes, of at most {MOST_DOWNLOAD_BYTES}, and was not kept"
        name = self._free(wanted)
        self._folder.mkdir(parents=True, exist_ok=True)
        await download.save_as(self._folder / name)
        await download.delete()
        return f"downloaded {name!r}, {size} bytes"

    def _free(self, name: str) -> str:
        """Return the name, or one like it that is not taken."""
        number, stem, suffix = 1, Path(name).stem, Path(name).suffix
        while (self._folder / name).exists():
            number += 1
            name = f"{stem}-{number}{suffix}"
        return name
