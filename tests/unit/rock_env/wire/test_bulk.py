"""Messages of bulk transfer are protobuf's, however they were written."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.wire.bulk import CHUNK, TAR, serialize

SIZES = st.sampled_from([1, 126, 127, 128, 129, 16383, 16384, 1 << 20, (1 << 21) - 1, 1 << 21])


@given(st.one_of(st.binary(min_size=1), SIZES.map(bytes)))
def test_bytes_are_written_and_read_as_protobuf_does(data: bytes) -> None:
    for field, message in ((TAR, pb.UploadRequest(tar=data)), (CHUNK, pb.FileChunk(data=data))):
        assert field.pack(memoryview(data)) == serialize(message)
        read = field.unpack(serialize(message))
        assert isinstance(read, memoryview)
        assert field.data(read) == data


@given(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=300))
def test_other_messages_are_left_to_protobuf(sandbox: str, path: str, data: bytes) -> None:
    message = pb.UploadRequest(sandbox_id=sandbox, path=path, tar=data)
    raw = serialize(message)
    twice = TAR.unpack(raw + TAR.pack(data))  # a field that comes twice: the last one counts
    assert TAR.data(twice) == data
    read = TAR.unpack(raw)
    assert TAR.data(read) == data
    if sandbox or path:
        assert read == message


@given(st.binary(max_size=12))
def test_what_protobuf_refuses_is_refused(raw: bytes) -> None:
    try:
        expected = pb.UploadRequest.FromString(raw).tar
    except DecodeError:
        with pytest.raises(DecodeError):
            TAR.unpack(raw)
    else:
        assert TAR.data(TAR.unpack(raw)) == expected
