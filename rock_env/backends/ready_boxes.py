"""Boxes in which a spec's ready command ran (`SandboxSpec.ready`); used by `backends/pool` for its stock.

What the command writes comes from a box and is never kept: all that is looked for is the end of its first line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from rock_env.errors import InfraError
from rock_env.sandbox import READY_KEY, READY_LOG_BYTES, CommandEnd, Sandbox

__all__ = ["READY_S", "make_ready"]

READY_S = 120.0
"""How long a box may take to become ready."""
_LAST_WORDS = 400


async def make_ready(box: Sandbox, command: Sequence[str]) -> None:
    """Start the command and wait for its first line. Where none comes, destroy the box and raise `InfraError`."""
    try:
        async with asyncio.timeout(READY_S):
            await _first_line(box, command)
    except TimeoutError as error:
        await asyncio.shield(box.close())
        raise InfraError(f"the ready command {command[0]!r} wrote no line within {READY_S:g} s") from error
    except BaseException:
        await asyncio.shield(box.close())
        raise


async def _first_line(box: Sandbox, command: Sequence[str]) -> None:
    process = await box.start_process(command, key=READY_KEY, log_bytes=READY_LOG_BYTES)
    said = b""
    async with box.process_logs(process, follow=True) as log, aclosing(log.events()) as events:
        async for event in events:
            if isinstance(event, CommandEnd):
                code = event.exit_code if event.signal is None else f"signal {event.signal}"
                how = event.infra_error or f"ended ({code})"
                words = said.decode(errors="replace").strip()
                raise InfraError(f"the ready command {command[0]!r} {how} before it wrote a line: {words!r}")
            if event.stream == "stderr":
                said = (said + bytes(event.data))[-_LAST_WORDS:]
            elif b"\n" in event.data:
                return
    raise InfraError(f"the ready command {command[0]!r} cannot be listened to any more")
