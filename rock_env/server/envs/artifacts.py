"""Artifacts of episodes: files that environments attach to replies, read out of their sandboxes, and kept by digest.

The server reads and hashes them itself, and within bounds: of one file, of an episode, of a tenant and of all. What goes
beyond one is named with why it is missing, and changes nothing else. They live in memory, until the episode ends.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rock_env.env import Artifact, Attachment
from rock_env.errors import NotFound, ResourceExhausted, RockError
from rock_env.sandbox import Sandbox
from rock_env.security.auth import current_tenant
from rock_env.threads import for_callers

__all__ = ["ArtifactBounds", "ArtifactRoom", "EpisodeArtifacts"]

_MOST_NAME = 200
_READ_S = 30.0


@dataclass(frozen=True, slots=True)
class ArtifactBounds:
    """Bounds of what is kept; counts are of different files, sizes in bytes."""

    file_bytes: int = 16 << 20
    reply_files: int = 32
    """Attachments of one reply that are looked at."""
    episode_files: int = 512
    episode_bytes: int = 64 << 20
    tenant_bytes: int = 256 << 20
    all_bytes: int = 1 << 30


class ArtifactRoom:
    """What the artifacts of all episodes of a server take. Use only on its event loop."""

    def __init__(self, bounds: ArtifactBounds | None = None) -> None:
        self.bounds = bounds or ArtifactBounds()
        self._taken: Counter[str] = Counter()
        """Bytes by tenant."""

    def take(self, tenant: str, size: int) -> None:
        """Take room. Raise `ResourceExhausted` where there is none left."""
        for taken, most, whose in (
            (self._taken[tenant], self.bounds.tenant_bytes, "your episodes'"),
            (self._taken.total(), self.bounds.all_bytes, "all episodes'"),
        ):
            if taken + size > most:
                raise ResourceExhausted(f"{whose} artifacts would have more than {most} bytes")
        self._taken[tenant] += size

    def give_back(self, tenant: str, size: int) -> None:
        """Give room back."""
        self._taken[tenant] -= size
        if not self._taken[tenant]:
            del self._taken[tenant]


class EpisodeArtifacts:
    """The artifacts of one environment's episode, of the tenant in whose name it is made."""

    def __init__(self, room: ArtifactRoom) -> None:
        self._room, self._tenant = room, current_tenant()
        self._kept: dict[str, bytes] = {}

    async def take(self, box: Sandbox, attachments: Sequence[Attachment]) -> list[Artifact]:
        """Read what a reply attaches, all within a time; each that cannot be read or kept says why."""
        late = asyncio.get_running_loop().time() + _READ_S
        return [await self._one(box, each, late) for each in attachments[: self._room.bounds.reply_files]]

    def read(self, sha256: str) -> bytes:
        """Return a kept file. Raise `NotFound`."""
        content = self._kept.get(sha256)
        if content is None:
            raise NotFound(
                f"this episode has no artifact {sha256[:64]!r}: they are kept until its environment is reset, restored or "
                "closed. Read one when the reply that names it comes."
            )
        return content

    def forget(self) -> None:
        """Drop all: the episode ended."""
        self._room.give_back(self._tenant, sum(map(len, self._kept.values())))
        self._kept.clear()

    async def _one(self, box: Sandbox, attachment: Attachment, late: float) -> Artifact:
        name, media_type = attachment.name[:_MOST_NAME], attachment.media_type[:_MOST_NAME]
        try:
            async with asyncio.timeout_at(late) as limit:
                content = await self._content(box, attachment.path)
                try:
                    digest = await for_callers(self._tenant, _digest, content)
                    self._keep(digest, content)
                except BaseException:
                    self._room.give_back(self._tenant, len(content))
                    raise
        except TimeoutError:
            if not limit.expired():
                raise
            return Artifact(
                name, media_type, "", 0, missing=f"a reply's files took longer than {_READ_S:g} s"
            )
        except RockError as error:
            return Artifact(name, media_type, "", 0, missing=str(error)[:500])
        return Artifact(name, media_type, digest, len(content))

    async def _content(self, box: Sandbox, path: str) -> bytes:
        """Return a file; room for it is taken as it comes, so that many at once stay within the tenant's bytes."""
        most = self._room.bounds.file_bytes
        content = bytearray()
        try:
            async for block in box.read_stream(path, offset=0, length=most + 1):
                self._room.take(self._tenant, len(block))
                content += block
                if len(content) > most:
                    raise ResourceExhausted(f"it has more than {most} bytes")
        except BaseException:
            self._room.give_back(self._tenant, len(content))
            raise
        return bytes(content)

    def _keep(self, digest: str, content: bytes) -> None:
        """Keep a file whose room is taken; that of one which is kept already is given back."""
        if digest in self._kept:
            self._room.give_back(self._tenant, len(content))
            return
        bounds, taken = self._room.bounds, sum(map(len, self._kept.values()))
        if len(self._kept) >= bounds.episode_files or taken + len(content) > bounds.episode_bytes:
            raise ResourceExhausted(
                f"an episode has at most {bounds.episode_files} artifacts of {bounds.episode_bytes} bytes together"
            )
        self._kept[digest] = content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
