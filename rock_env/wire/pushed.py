"""The tasks of a pushed environment as they go to a server: compressed where they would take more than one message may.

Used by both ends of PutEnv.
"""

from __future__ import annotations

import lzma

from rock_env.errors import InvalidArgument
from rock_env.wire.channel import MOST_TO_SERVER_BYTES

__all__ = ["MOST_BYTES", "pack", "unpack"]

MOST_BYTES = 60 << 20
"""Of the tasks of one environment."""
_PLAIN_BYTES = 4 << 20
_PACKED_BYTES = MOST_TO_SERVER_BYTES - (1 << 20)
"""The rest is for what is said beside the tasks."""
_MAGIC = b"\xfd7zXZ"
"""How xz begins, and no list of tasks."""
_MEMORY_BYTES = 32 << 20


def pack(content: bytes) -> bytes:
    """Return what to send. Raise `InvalidArgument` for what takes too much."""
    packs = _PLAIN_BYTES < len(content) <= MOST_BYTES
    sent = lzma.compress(content, preset=1) if packs else content
    if len(content) > MOST_BYTES or len(sent) > _PACKED_BYTES:
        raise InvalidArgument(
            f"the tasks take {len(content) >> 20} MiB, {len(sent) >> 20} MiB as sent; a server takes "
            f"{MOST_BYTES >> 20} MiB at once, and {_PACKED_BYTES >> 20} MiB compressed. Register them in parts."
        )
    return sent


def unpack(sent: bytes) -> bytes:
    """Return the tasks. Raise `InvalidArgument` for what is no xz or unpacks to too much."""
    if not sent.startswith(_MAGIC):
        return sent
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)
    try:
        content = reader.decompress(sent, MOST_BYTES + 1)
    except lzma.LZMAError as error:
        raise InvalidArgument(f"the tasks are damaged: {error}. Push them again.") from error
    if len(content) > MOST_BYTES:
        raise InvalidArgument(f"the tasks take more than {MOST_BYTES >> 20} MiB. Register them in parts.")
    if not reader.eof:
        raise InvalidArgument("the tasks are damaged: their end is missing. Push them again.")
    return content
