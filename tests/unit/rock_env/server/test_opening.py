"""What is read of an HTTP/2 connection before its caller is known: little, and whoever comes next gets it whole."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from rock_env.server.strangers.opening import HELLO, NotHttp2, Opening, farewell, refusal

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, ACK, WINDOW = HELLO, b"\0\0\0\4\1\0\0\0\0", b"\0\0\4\x08\0\0\0\0\0\0\0\xff\xff"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def head(method: str = "/a/B", token: str = "Bearer x") -> bytes:
    return Encoder().encode([(":path", method), ("authorization", token), ("te", "trailers")])


def calls_of(said: bytes, cuts: list[int]) -> tuple[list[tuple[int, str, tuple[str, ...]]], bytes]:
    """Push bytes in pieces; return the first call, and all that is handed out, piece by piece."""
    opening, found, passed = Opening(), [], b""
    marks = [0, *sorted(cut % len(said) for cut in cuts), len(said)]
    for begin, end in pairwise(marks):
        opening.push(said[begin:end])
        if not found and (call := opening.next_call()) is not None:
            found.append((call.stream, call.method, call.authorization))
        if found:
            passed += opening.pass_on()
    return found, passed


@given(st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from(["before", "after", "beside"]))
def test_however_it_is_cut_the_call_is_found_and_all_but_the_acknowledgement_is_passed_on(
    cuts: list[int], when: str
) -> None:
    block = head()
    call = (
        frame(1, 4, 1, block) if when != "beside" else frame(1, 0, 1, block[:5]) + frame(9, 4, 1, block[5:])
    )
    rest = frame(0, 1, 1, b"\0\0\0\0\0")
    plain = PREFACE + SETTINGS + WINDOW + call + rest
    said = (
        PREFACE
        + SETTINGS
        + (ACK if when != "after" else b"")
        + WINDOW
        + call
        + (ACK if when == "after" else b"")
        + rest
    )
    found, passed = calls_of(said, cuts)
    assert found == [(1, "/a/B", ("Bearer x",))]
    assert passed == plain


def test_padding_and_priority_are_no_part_of_the_head() -> None:
    padded = frame(1, 4 | 8 | 32, 3, b"\3" + bytes(5) + head() + bytes(3))
    assert calls_of(PREFACE + padded, [])[0] == [(3, "/a/B", ("Bearer x",))]


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE + (1 << 20).to_bytes(3) + bytes(6),
        PREFACE + frame(9, 4, 1, head()),
        PREFACE + frame(1, 0, 1, head()) + frame(0, 0, 1),
        PREFACE + frame(1, 0, 1, head()) + frame(9, 4, 3),
        PREFACE + frame(1, 4 | 8, 1, b"\xff"),
        PREFACE + frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff"),
        PREFACE + frame(1, 0, 1) + frame(9, 0, 1, bytes(16_000)) * 2,
        PREFACE + SETTINGS * 601,
        PREFACE + bytes(200_000),
        PREFACE + b"".join(frame(1, 4, 1 + 2 * n, head()) for n in range(101)),
    ],
)
def test_what_is_no_opening_or_too_much_of_one_is_refused(said: bytes) -> None:
    opening = Opening()

    def read_all() -> None:
        opening.push(said)
        while opening.next_call() is not None:
            pass

    with pytest.raises(NotHttp2):
        read_all()


def test_a_refusal_is_the_trailers_and_a_message_stands_before_them() -> None:
    decoder, encoder = Decoder(), Encoder()
    told = refusal(encoder, 5, [("grpc-status", "16")])
    assert told[3:9] == bytes([1, 5, 0, 0, 0, 5])
    assert ("grpc-status", "16") in decoder.decode(told[9:])
    answered = refusal(encoder, 7, [("grpc-status", "0")], b"\x08\x01")
    assert b"\0\0\0\0\2\x08\x01" in answered
    assert farewell(7)[9:13] == (7).to_bytes(4)


def test_nothing_is_kept_of_a_connection_that_was_refused() -> None:
    opening = Opening()
    opening.push(PREFACE + SETTINGS + frame(1, 4, 1, head()))
    assert opening.next_call() is not None
    opening.forget()
    opening.push(frame(0, 0, 1, bytes(10_000)) + frame(1, 4, 3, head()))
    assert opening.next_call() is not None
    assert opening.pass_on() == b""
