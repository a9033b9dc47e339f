"""The process that reads large request bodies: `python -m agent_runtime.gateway.reader`, started by `reading`.

It takes frames from its standard input until that ends, and answers each on its standard output. Its memory is bounded, and
it gives way to the gateway, which others wait for.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import msgspec

from agent_runtime.gateway.reading import FRAME, found

MEMORY_BYTES = 2 << 30
"""Beside what the process has when it starts: 32 MiB of the smallest values become so much."""
NICE = 5

_HEAD = msgspec.msgpack.Decoder(tuple[str, dict[str, str], int])


def main() -> None:
    """Read bodies until there are no more."""
    os.nice(NICE)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    most = pages * resource.getpagesize() + MEMORY_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    asked, answered = sys.stdin.buffer, sys.stdout.buffer
    while frame := asked.read(FRAME.size):
        head_size, body_size = FRAME.unpack(frame)
        path, headers, max_context = _HEAD.decode(asked.read(head_size))
        answer = msgspec.msgpack.encode(found(path, headers, asked.read(body_size), max_context))
        answered.write(FRAME.pack(len(answer), 0))
        answered.write(answer)
        answered.flush()


if __name__ == "__main__":
    main()
