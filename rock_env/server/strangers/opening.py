"""The first bytes of an HTTP/2 connection (RFC 9113), as far as they tell which call is made and with what token.

Used by `front`. It keeps a few KiB, reads no message, and can hand out all that was read so that somebody else begins
the connection anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpack import Decoder, Encoder, HPACKError

__all__ = ["HELLO", "Asked", "NotHttp2", "Opening", "farewell", "refusal"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY, _CONTINUATION = 0, 1, 3, 4, 7, 9
_ACK = _END_STREAM = 1
_END_HEADERS, _PADDED, _PRIORITY = 4, 8, 32
_FRAME_BYTES = 16 << 10
"""The largest frame that a peer may send which was told nothing else (RFC 9113, 4.2)."""
_HEAD_BYTES = 16 << 10
"""Of one call, its headers; gRPC takes no more by itself."""
_MOST_BYTES, _MOST_FRAMES, _MOST_CALLS = 128 << 10, 600, 100
"""In all. The peer may send 64 KiB of messages, which is the window of a new connection."""


def _framed(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


HELLO = _framed(_SETTINGS, 0, 0)
"""What a server says first, without which clients of gRPC make no call. All is as it is by default, so what the next
server says on this connection holds."""


def farewell(last_stream: int) -> bytes:
    """Return what sends a client to a new connection, with the calls after this one."""
    return _framed(_GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + bytes(4))


def refusal(encoder: Encoder, stream: int, headers: Sequence[tuple[str, str]], message: bytes = b"") -> bytes:
    """Return the answer to a call: these trailers, after a message if there is one."""
    start = [(":status", "200"), ("content-type", "application/grpc")]
    if not message:
        return _framed(_HEADERS, _END_HEADERS | _END_STREAM, stream, encoder.encode([*start, *headers]))
    return (
        _framed(_HEADERS, _END_HEADERS, stream, encoder.encode(start))
        + _framed(_DATA, 0, stream, b"\0" + len(message).to_bytes(4, "big") + message)
        + _framed(_HEADERS, _END_HEADERS | _END_STREAM, stream, encoder.encode(headers))
    )


class NotHttp2(Exception):
    """A peer that does not speak HTTP/2, or more of it than anybody needs who has not shown a token."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The head of a call."""

    stream: int
    method: str
    """/service/Method."""
    authorization: tuple[str, ...]


class Opening:
    """What one peer has sent."""

    def __init__(self) -> None:
        self._decoder = Decoder(_HEAD_BYTES)
        self._rest = bytearray()
        self._read = bytearray()
        self._begun = False
        self._kept = True
        self._settled = False
        self._block: tuple[int, int, bytearray] | None = None
        self._bytes = self._frames = self._calls = 0
        self.over: set[int] = set()
        """The streams on which the peer sends no more."""

    @property
    def settled(self) -> bool:
        """Return whether the peer has acknowledged `HELLO`, so that all else is for who comes after."""
        return self._settled

    def push(self, data: bytes | memoryview) -> None:
        """Take more bytes. Raise `NotHttp2` where they are too many."""
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES:
            raise NotHttp2
        self._rest += data

    def pass_on(self) -> bytes:
        """Return what came since the last time, for who begins the connection anew; whole frames until it is settled."""
        while not self._settled and self._whole() is not None:
            self._frame()
        said = bytes(self._read + (self._rest if self._settled else b""))
        self._read.clear()
        if self._settled:
            self._rest.clear()
        return said

    def forget(self) -> None:
        """Keep nothing of what was read, and is: nobody begins this connection anew."""
        self._kept = False
        self._read.clear()

    def next_call(self) -> Asked | None:
        """Return the next call whose head is there. Raise `NotHttp2`."""
        if not self._begun:
            if not _PREFACE.startswith(self._rest[: len(_PREFACE)]):
                raise NotHttp2
            if len(self._rest) < len(_PREFACE):
                return None
            self._begun = True
            self._take(len(_PREFACE))
        while self._whole() is not None:
            kind, flags, stream, payload = self._frame()
            if (self._block is not None) != (kind == _CONTINUATION):
                raise NotHttp2
            if kind == _HEADERS:
                self._block = stream, flags, bytearray(_unpadded(payload, flags))
            elif kind == _CONTINUATION and self._block is not None:
                self._block[2].extend(payload)
            if self._block is not None and (len(self._block[2]) > _HEAD_BYTES or stream != self._block[0]):
                raise NotHttp2
            if self._block is not None and flags & _END_HEADERS:
                return self._head()
        return None

    def _take(self, count: int) -> None:
        if self._kept:
            self._read += self._rest[:count]
        del self._rest[:count]

    def _whole(self) -> int | None:
        """Return the length of the next frame if all of it is there. Raise `NotHttp2`."""
        if len(self._rest) < 9:
            return None
        length = int.from_bytes(self._rest[:3], "big")
        if length > _FRAME_BYTES:
            raise NotHttp2
        return length if len(self._rest) >= 9 + length else None

    def _frame(self) -> tuple[int, int, int, bytes]:
        """Take a frame that is there: its kind, flags, stream and payload. Raise `NotHttp2`."""
        self._frames += 1
        if self._frames > _MOST_FRAMES:
            raise NotHttp2
        length, kind, flags = int.from_bytes(self._rest[:3], "big"), self._rest[3], self._rest[4]
        stream = int.from_bytes(self._rest[5:9], "big") & 0x7FFFFFFF
        payload = bytes(self._rest[9 : 9 + length]) if kind in (_HEADERS, _CONTINUATION) else b""
        if kind == _RESET or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self.over.add(stream)
        if kind == _SETTINGS and flags & _ACK and not self._settled:
            self._settled = True
            del self._rest[: 9 + length]
        else:
            self._take(9 + length)
        return kind, flags, stream, payload

    def _head(self) -> Asked:
        assert self._block is not None
        (stream, _, block), self._block = self._block, None
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise NotHttp2
        try:
            fields = self._decoder.decode(bytes(block), raw=True)
        except HPACKError as error:
            raise NotHttp2 from error
        method = b"".join(value for name, value in fields if name == b":path").decode("latin-1")
        shown = tuple(value.decode("latin-1") for name, value in fields if name == b"authorization")
        return Asked(stream, method, shown)


def _unpadded(payload: bytes, flags: int) -> bytes:
    start = (1 if flags & _PADDED else 0) + (5 if flags & _PRIORITY else 0)
    pad = payload[0] if flags & _PADDED and payload else 0
    if start + pad > len(payload):
        raise NotHttp2
    return payload[start : len(payload) - pad]
