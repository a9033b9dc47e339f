"""Snapshots of pods: what of a box's files is no more as its image has it, one file each in a folder.

The folder is the server's own, or one that all servers of a store share.

Used by the `kubernetes` backend only. Each is whole by itself: no snapshot and no pod builds upon another one. What is in
one is a guest's word, and read by guests alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from rock_env.errors import FailedPrecondition, InfraError, NotFound, ResourceExhausted, UnfitFiles
from rock_env.threads import for_callers, for_life

__all__ = ["Archives"]

_ENDING = ".tar"
_PART = ".part"
_ABANDONED_S = 3600.0
"""For so long no snapshot is written: a server gives up sooner."""
_FULL_RETRY_S = 60.0
_BLOCK_BYTES = 1 << 20
_HEADS_BYTES = 256 << 20
"""What names and properties may take beside the files: less than a guest's most files need."""


class Archives:
    """The snapshots in `folder`; without one they end with this object. `share` names whose threads an act takes.

    One holds at most `most_bytes` of files, and all together `room_bytes`. Where others write to the folder, too (`shared`),
    what it holds is looked at for each; several that are written at a time may exceed the room by what they hold.
    """

    def __init__(
        self, folder: Path | None, *, shared: bool = False, most_bytes: int, room_bytes: int
    ) -> None:
        self._folder = folder
        self._shared = shared
        self._temporary: Path | None = None
        self._most_bytes = most_bytes + _HEADS_BYTES
        self._room_bytes = room_bytes
        self._held_bytes: int | None = None
        """Of what is kept and of what is being written; None until the folder was looked at."""

    async def keep(self, snapshot_id: str, blocks: AsyncGenerator[bytes], *, share: str) -> int:
        """Write a snapshot as a whole or not at all; return its bytes.

        Raise `FailedPrecondition` if the id is taken, and `ResourceExhausted` where there is no room.
        """
        path = await for_life(self._path, snapshot_id)
        if self._held_bytes is None or self._shared:
            held = await for_life(_bytes_below, path.parent)
            self._held_bytes = held if self._held_bytes is None or self._shared else self._held_bytes
        part = path.with_name(f".{snapshot_id}.{secrets.token_hex(4)}{_PART}")
        size, kept = 0, False
        try:
            with await for_life(part.open, "xb", 0) as file:
                async with aclosing(blocks):
                    async for block in blocks:
                        size += len(block)
                        self._held_bytes += len(block)
                        if size > self._most_bytes:
                            raise UnfitFiles(f"its changes take more than {self._most_bytes} bytes")
                        if self._held_bytes > self._room_bytes:
                            raise ResourceExhausted(
                                f"the snapshots of this server would hold more than {self._room_bytes} bytes. Delete some, "
                                "or have the room made larger (snapshot_room of the backend).",
                                retry_after_s=_FULL_RETRY_S,
                            )
                        await for_callers(share, _write, file.fileno(), block)
            await for_life(os.link, part, path)
            kept = True
        except FileExistsError as error:
            raise FailedPrecondition(f"there is a snapshot {snapshot_id!r} already") from error
        except OSError as error:
            raise InfraError(f"a snapshot could not be kept: {error}") from error
        finally:
            self._held_bytes -= 0 if kept else size
            await for_life(part.unlink, missing_ok=True)
        return size

    async def need(self, snapshot_id: str) -> None:
        """Raise `NotFound` for a snapshot that is not here."""
        if not await for_life(self._path(snapshot_id).exists):
            raise NotFound(
                f"there is no snapshot {snapshot_id!r} where this server keeps them. Ask the server that made it."
            )

    async def read(self, snapshot_id: str, *, share: str) -> AsyncGenerator[bytes]:
        """Yield a snapshot in blocks. Raise `NotFound`."""
        try:
            with await for_life(self._path(snapshot_id).open, "rb", 0) as file:
                while block := await for_callers(share, file.read, _BLOCK_BYTES):
                    yield block
        except FileNotFoundError as error:
            raise NotFound(f"the snapshot {snapshot_id!r} was deleted meanwhile") from error

    async def all(self) -> set[str]:
        """Return the ids of all snapshots."""
        folder = self._temporary if self._folder is None else self._folder
        return await for_life(_names, folder) if folder is not None else set()

    async def delete(self, snapshot_id: str) -> None:
        """Remove a snapshot, if it is there."""
        freed = await for_life(_removed, self._path(snapshot_id))
        if self._held_bytes is not None:
            self._held_bytes -= freed

    async def close(self) -> None:
        """Remove those that only this object knows."""
        folder, self._temporary = self._temporary, None
        if folder is not None:
            await for_life(shutil.rmtree, folder, ignore_errors=True)

    def _path(self, snapshot_id: str) -> Path:
        if self._folder is not None:
            folder = self._folder
            if not self._shared:  # that one is mounted, or the disk behind it would be filled instead
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="rock-snapshots-"))
            folder = self._temporary
        return folder / f"{snapshot_id}{_ENDING}"


def _write(fd: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(fd, view) :]


def _removed(path: Path) -> int:
    """Remove a file, if it is there, and return its bytes."""
    try:
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return size


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*{_ENDING}"))


def _names(folder: Path) -> set[str]:
    """Return the ids of a folder's snapshots; what a killed server was writing goes meanwhile."""
    found = set()
    for path in folder.iterdir() if folder.exists() else ():
        if path.suffix == _ENDING:
            found.add(path.name.removesuffix(_ENDING))
        elif path.suffix == _PART and path.stat().st_mtime < time.time() - _ABANDONED_S:
            path.unlink(missing_ok=True)
    return found
