"""The synchronous face of sandboxes, generated from the async classes: same names, arguments, docstrings and errors.

Made by `Connection.sandboxes`. Each call runs on the connection's background loop and is waited for; an async iterator
becomes an iterator, an `async with` a `with`. Nothing is written twice, so nothing can differ.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rock_env.client.sandbox.exec import RemoteCommand
from rock_env.client.sandbox.files import FileWatch, SandboxFiles
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.client.sandbox.process import RemoteProcess
from rock_env.client.sandbox.sandboxes import Sandboxes
from rock_env.client.sandbox.session import RemoteShell, RemoteTerminal

__all__ = ["FACES", "Closed", "Face", "face"]

Run = Callable[[Coroutine[Any, Any, Any]], Any]

_END = object()


class Closed(RuntimeError):
    """A call on a connection that was closed."""


class Face:
    """Stands for one async object. Its methods are generated; other attributes are those of the object."""

    def __init__(self, real: Any, run: Run) -> None:
        self._real = real
        self._run = run

    def __repr__(self) -> str:
        return repr(self._real).replace("Async", "Sync", 1)

    def __getattr__(self, name: str) -> Any:
        return face(getattr(self._real, name), self._run)

    def __enter__(self) -> Self:
        self._run(self._real.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._real.__aexit__(kind, error, trace))


def face(value: Any, run: Run) -> Any:
    """Return the synchronous form of what a call gave: an object's face, or the value itself."""
    if isinstance(value, list):
        return [face(one, run) for one in value]
    kind = FACES.get(type(value))
    return value if kind is None else kind(value, run)


def _iterated(items: AsyncIterator[Any], run: Run) -> Iterator[Any]:
    async def following() -> Any:
        return await anext(items, _END)

    async def close() -> None:
        await items.aclose()  # type: ignore[attr-defined]  # all of ours are generators

    try:
        while (item := run(following())) is not _END:
            yield face(item, run)
    finally:
        with suppress(Closed):  # one that is dropped after its connection has ended with that
            run(close())


def _method(name: str, real: Any) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(real):

        def call(self: Face, *args: Any, **kwargs: Any) -> Any:
            return _iterated(getattr(self._real, name)(*args, **kwargs), self._run)

    elif inspect.iscoroutinefunction(real):

        def call(self: Face, *args: Any, **kwargs: Any) -> Any:
            return face(self._run(getattr(self._real, name)(*args, **kwargs)), self._run)

    else:

        def call(self: Face, *args: Any, **kwargs: Any) -> Any:
            async def on_loop() -> Any:
                return getattr(self._real, name)(*args, **kwargs)

            return face(self._run(on_loop()), self._run)

    return functools.wraps(real)(call)


def _generated(kind: type) -> type[Face]:
    methods = {
        name: _method(name, value)
        for name, value in inspect.getmembers(kind)
        if inspect.isfunction(value) and not name.startswith("_")
    }
    name = f"Sync{kind.__name__.removeprefix('Async').removeprefix('Remote')}"
    return type(name, (Face,), {"__doc__": kind.__doc__, **methods})


FACES: dict[type, type[Face]] = {
    kind: _generated(kind)
    for kind in (
        Sandboxes,
        AsyncSandbox,
        RemoteCommand,
        RemoteProcess,
        RemoteShell,
        RemoteTerminal,
        FileWatch,
        SandboxFiles,
    )
}
"""Each async class and its synchronous form."""
