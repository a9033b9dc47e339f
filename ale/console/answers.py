"""How the console answers: JSON that a page can always read, and events that tell it to ask again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse, StreamingResponse

__all__ = ["Json", "changes", "following"]

SIGN_OF_LIFE_S = 15.0


class Json(JSONResponse):
    """ASCII, so that what is no text of Unicode arrives too; a number that is none is an error of ours."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def following(
    look: Callable[[], Awaitable[object]], watchers: asyncio.Semaphore, every_s: float
) -> StreamingResponse:
    """Return the stream of `changes`. Raise `HTTPException` where as many pages watch as may."""
    if watchers.locked():
        raise HTTPException(503, "too many pages watch")
    return StreamingResponse(changes(look, watchers, every_s), media_type="text/event-stream")


async def changes(
    look: Callable[[], Awaitable[object]], watchers: asyncio.Semaphore, every_s: float
) -> AsyncGenerator[str]:
    """Yield an event now and whenever a look differs from the one before; a comment when nothing was said for long."""
    if watchers.locked():  # those who asked at the same time
        return
    async with watchers:
        seen: object = None
        said_s = time.monotonic()
        while True:
            now = await look()
            if now != seen or time.monotonic() - said_s > SIGN_OF_LIFE_S:
                yield "data: changed\n\n" if now != seen else ": still here\n\n"
                seen, said_s = now, time.monotonic()
            await asyncio.sleep(every_s)
