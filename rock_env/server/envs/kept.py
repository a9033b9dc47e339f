"""What is kept of an episode in the record of its sandbox, so that an environment of another server can go on with it.

Written by `server/envs/sandboxed` at a durable Reset, read by `server/envs/branches` at a TakeOver.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = ["MOST_KEPT_BYTES", "BoxedState", "KeptEpisode", "kept", "read_kept"]

MOST_KEPT_BYTES = 64 << 10
"""A record is read and written whole, so an episode that takes more is not kept."""


@dataclass(frozen=True, slots=True)
class BoxedState:
    """An episode at one moment: everything another environment of the same kind needs to go on from there."""

    env: str
    """Name, version and arguments: of no other environment can it be restored."""
    task_id: str
    seed: int
    actions: tuple[str, ...]
    hashes: tuple[bytes, ...]
    """Of the first observation and that of each action."""
    observation: str
    """The last one."""
    done: bool
    snapshot_id: str = ""
    """The box's file system; empty: the actions are repeated in a fresh box."""
    rules: bytes = b""
    """What the rules remember, beside a snapshot or a kept box."""

    @property
    def size(self) -> int:
        """Return about how many bytes of memory this takes."""
        return (
            sum(map(len, self.actions)) + 8 * len(self.hashes) + len(self.observation) + len(self.rules) + 500
        )


@dataclass(frozen=True, slots=True)
class KeptEpisode:
    """An episode whose box outlives its server."""

    env: str
    params_json: str
    state: BoxedState


_decoder = msgspec.msgpack.Decoder(KeptEpisode)


def kept(episode: KeptEpisode) -> bytes:
    """Return what stands in the record; empty for an episode that takes too much."""
    written = msgspec.msgpack.encode(episode)
    return written if len(written) <= MOST_KEPT_BYTES else b""


def read_kept(written: bytes) -> KeptEpisode | None:
    """Return what `kept` wrote; None where another release wrote it otherwise."""
    try:
        return _decoder.decode(written)
    except msgspec.DecodeError:
        return None
