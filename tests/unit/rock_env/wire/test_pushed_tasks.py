"""The tasks of a pushed environment: what one message cannot take goes compressed, and unpacks within bounds."""

from __future__ import annotations

import lzma
import secrets

import pytest

from rock_env.errors import InvalidArgument
from rock_env.wire.channel import MOST_TO_SERVER_BYTES
from rock_env.wire.pushed import MOST_BYTES, pack, unpack


@pytest.mark.parametrize("size", [0, 1000, 9 << 20])
def test_tasks_arrive_as_they_were(size: int) -> None:
    content = b"\x91" + bytes(max(0, size - 1))
    sent = pack(content)
    assert len(sent) < MOST_TO_SERVER_BYTES
    assert unpack(sent) == content


def test_what_takes_too_much_is_refused_at_both_ends() -> None:
    for content in (bytes(MOST_BYTES + 1), secrets.token_bytes(8 << 20)):
        with pytest.raises(InvalidArgument, match="in parts"):
            pack(content)
    with pytest.raises(InvalidArgument, match="more than 60 MiB"):
        unpack(lzma.compress(bytes(MOST_BYTES + 1), preset=0))
    with pytest.raises(InvalidArgument, match="damaged"):
        unpack(lzma.compress(b"tasks")[:-5])
    with pytest.raises(InvalidArgument, match="damaged"):
        unpack(lzma.compress(b"tasks")[:20] + b"others")
