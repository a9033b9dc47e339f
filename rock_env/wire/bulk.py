"""Messages of bulk transfer that carry nothing but bytes, written and read without protobuf's copies of them.

Used by the server's file calls and by clients. On the wire they are what protobuf would write: a tag, a length, the bytes.
Whatever is laid out otherwise is left to protobuf.
"""

from __future__ import annotations

from typing import Any

import grpc

from rock_env.proto.v1 import sandbox_pb2 as pb

__all__ = ["CHUNK", "TAR", "BytesField", "add_bulk_calls", "keep_large_blocks", "serialize"]

_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name
_LENGTH_DELIMITED = 2
_LARGE_BYTES = 8 << 20


class BytesField:
    """The message `kind` with its field `name` alone."""

    def __init__(self, kind: Any, name: str) -> None:
        self._kind, self._name = kind, name
        self._tag = kind.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED

    def pack(self, data: bytes | memoryview) -> bytes:
        """Return the serialized message."""
        head = bytearray([self._tag])
        left = len(data)
        while left > 0x7F:
            head.append(left & 0x7F | 0x80)
            left >>= 7
        head.append(left)
        return b"".join((head, data))

    def unpack(self, raw: bytes) -> Any:
        """Return a view of the bytes, or the message where it has more fields or is laid out otherwise."""
        size = shift = 0
        for at in range(1, min(len(raw), 6)):
            size |= (raw[at] & 0x7F) << shift
            shift += 7
            if raw[at] < 0x80:
                if raw[0] == self._tag and at + 1 + size == len(raw):
                    return memoryview(raw)[at + 1 :]
                break
        return self._kind.FromString(raw)

    def data(self, message: Any) -> bytes | memoryview:
        """Return the bytes of what `unpack` returned."""
        return message if isinstance(message, memoryview) else getattr(message, self._name)


CHUNK = BytesField(pb.FileChunk, "data")
TAR = BytesField(pb.UploadRequest, "tar")


def serialize(message: Any) -> bytes:
    """Return a message's bytes; what `BytesField.pack` returned is that already."""
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


def add_bulk_calls(stub: Any, channel: grpc.aio.Channel) -> None:
    """Let a SandboxService stub take and give, in the calls of bulk transfer, what `TAR` and `CHUNK` pack and unpack."""
    stub.Upload = channel.stream_unary(
        f"/{_SERVICE}/Upload",
        request_serializer=serialize,
        response_deserializer=pb.TreeSummary.FromString,
    )
    for rpc in ("Download", "ReadFile"):
        reader = channel.unary_stream(
            f"/{_SERVICE}/{rpc}", request_serializer=serialize, response_deserializer=CHUNK.unpack
        )
        setattr(stub, rpc, reader)


def keep_large_blocks() -> None:
    """Let freed blocks of up to 8 MiB be used again instead of going back to the kernel.

    Each message of bulk transfer is a few allocations of about its size. As glibc starts, each of those is mapped
    anew, faulted in page by page and unmapped: more than half of the time of a transfer. It learns from the first
    large block that is freed, so that is what this does; thresholds set by the environment (`MALLOC_…`) stay.
    """
    bytes(_LARGE_BYTES)
