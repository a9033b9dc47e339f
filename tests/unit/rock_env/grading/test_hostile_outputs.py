"""Outputs that are made to be slow to read: they cost a process of their own some time, and the server nothing."""

from __future__ import annotations

import asyncio
import operator
import time

import pytest

from rock_env.errors import InfraError
from rock_env.grading import apart as module
from rock_env.grading.apart import apart
from rock_env.grading.guard import unwritten
from rock_env.grading.outcomes import Unreadable
from rock_env.grading.parsers import PARSERS, Left
from rock_env.grading.parsers.reward_file import parse_reward

SIZE = 100_000
STARTS = ("", "test_a (a.B) ... ", "==== short test summary info ====\n", "SWEBench results starts here\n\n")
PIECES = (
    *(
        "x",
        " ",
        "\t",
        "\n",
        "= ",
        "a::b ",
        "[",
        "1%]",
        "a.",
        "... ",
        "test_a (a.b.c.",
        "test x ... ",
        "::",
        "/",
    ),
    *(
        "SWEBench results starts here\n",
        "ok, ",
        "1 passed, ",
        "--- PASS: ",
        "✓ a ",
        "SUBFAIL ",
        "skipped '",
        "{[",
        "<a>",
    ),
)


def left_of(text: str) -> Left:
    said = text.encode()
    return Left(1, said, said, None)


@pytest.mark.timeout(60)  # what grows with the square of the text takes minutes
@pytest.mark.parametrize("name", PARSERS)
def test_no_parser_takes_long_for_what_repeats(name: str) -> None:
    for start in STARTS:
        for piece in PIECES:
            try:
                read = PARSERS[name](left_of(start + piece * (SIZE // len(piece))))
            except Unreadable:
                continue
            assert not (read.reward or 0) > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece", ["x", "reward.txt ", "denied ", "denied reward.tx", "\n", "reward.txt\ndenied\n"]
)
def test_a_long_output_without_a_refusal_is_none(piece: str) -> None:
    assert unwritten(piece.encode() * ((8 << 20) // len(piece))) == ""


def test_a_refusal_to_write_the_reward_is_found() -> None:
    line = b"sh: 3: cannot create /logs/verifier/reward.txt: Permission denied"
    assert unwritten(b"x" * 1000 + b"\n" + line + b"\nmore") == line.decode()
    assert unwritten(b"reward.txt is 1\nother.txt: Permission denied") == ""


@pytest.mark.parametrize("size", [10, 100_000])
async def test_little_and_much_are_read_alike(size: int) -> None:
    assert await apart(len, size, b"x" * size) == size
    with pytest.raises(Unreadable, match=r"neither reward.json nor reward.txt"):
        await apart(parse_reward, size, {})


async def test_what_takes_too_long_or_too_much_is_unreadable_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WITHIN_S", 1.0)
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    task = asyncio.ensure_future(neighbour())
    with pytest.raises(Unreadable, match="takes longer than 1 s"):
        await apart(time.sleep, 100_000, 3600)
    assert turns > 3
    task.cancel()
    monkeypatch.setattr(module, "_WITHIN_S", 30.0)
    with pytest.raises(Unreadable, match="more than 2 GiB"):
        await apart(operator.mul, 100_000, b"x" * 100_000, 100_000)
    with pytest.raises(InfraError, match="ended with 1"):
        await apart(operator.truediv, 100_000, 1, 0)
