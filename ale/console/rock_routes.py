"""The console's routes of a ROCK server (`ale console --rock`), as JSON and as server-sent events. They only read."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query
from fastapi.responses import Response

from ale.console.answers import Json, following
from ale.console.rock import Rock
from rock_env.errors import InvalidArgument, NotFound, RockError
from rock_env.telemetry.shown import visible

__all__ = ["add_rock"]

FRESH_S = 1.0
"""So long an answer serves all pages that ask."""
LOOKS_S = 2.0
"""Between two questions to the server, while a page is open."""
MOST_WATCHERS = 32

Id = Annotated[str, Query(max_length=100)]
_Ask = Callable[[], Awaitable[Any]]


class _Shared:
    """One answer, or the error in its place, for all who ask within `FRESH_S`."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._said: Any = None
        self._until_s = 0.0

    async def get(self) -> Any:
        """Return the answer. Raise its `RockError`."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                try:
                    self._said = await self._ask()
                except RockError as error:
                    self._said = error
                self._until_s = time.monotonic() + FRESH_S
        if isinstance(self._said, RockError):
            raise self._said
        return self._said


def add_rock(app: FastAPI, rock: Rock | None) -> None:
    """Add what the pages of a ROCK server ask; of none the page is told that there is none."""

    @app.get("/api/rock")
    def place() -> Any:
        return Json({"place": visible(rock.place) if rock else None})

    if rock is None:
        return
    live, places, images = map(_Shared, (rock.sandboxes, rock.places, rock.images))

    @app.get("/api/rock/sandboxes")
    async def sandboxes(*, everything: bool = False) -> Any:
        return await _answer(lambda: rock.sandboxes(everything=True) if everything else live.get())

    @app.get("/api/rock/sandbox")
    async def sandbox(id: Id) -> Any:
        return await _answer(lambda: rock.sandbox(id))

    @app.get("/api/rock/processes")
    async def processes(id: Id) -> Any:
        return await _answer(lambda: rock.processes(id))

    @app.get("/api/rock/log")
    async def log(id: Id, process: Annotated[str, Query(min_length=1, max_length=200)]) -> Any:
        return await _answer(lambda: rock.log(id, process))

    @app.get("/api/rock/places")
    async def held() -> Any:
        return await _answer(places.get)

    @app.get("/api/rock/images")
    async def registered() -> Any:
        return await _answer(images.get)

    watchers = asyncio.Semaphore(MOST_WATCHERS)

    @app.get("/api/rock/events")
    async def events() -> Any:
        return following(lambda: _stamps((live, places)), watchers, LOOKS_S)


async def _answer(ask: _Ask) -> Response:
    try:
        return await asyncio.to_thread(Json, await ask())
    except RockError as error:
        status = 404 if isinstance(error, NotFound) else 422 if isinstance(error, InvalidArgument) else 502
        raise HTTPException(status, visible(str(error))) from error


async def _stamps(shared: Sequence[_Shared]) -> list[str]:
    return [await _stamp(each) for each in shared]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


async def _stamp(shared: _Shared) -> str:
    try:
        return await asyncio.to_thread(_digest, await shared.get())
    except RockError as error:
        return str(error)
