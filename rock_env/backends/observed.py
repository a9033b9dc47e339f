"""A backend with eyes on it: how its creates went, and every command of its boxes, whoever ran it.

Put around each backend by the server's set-up, outside of pools. It changes nothing but one variable in a command's
environment, `TRACEPARENT`, so that a traced program continues the trace of who called.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, Self, cast

from opentelemetry.trace import Span, Status, StatusCode

from rock_env.backends.base import Backend, own_part
from rock_env.sandbox import READY_KEY, Sandbox
from rock_env.spec import SandboxSpec
from rock_env.telemetry import tracing
from rock_env.telemetry.logs import add_log_ids

__all__ = ["CommandObserver", "Ended", "observed"]


Env = Mapping[str, str] | None

_MOST_COUNTED = 1024
"""Keys of commands of one box whose end was counted: who listens to one again does not count it again."""


class Ended(Protocol):
    """How a command ended: an `ExecResult`, or the last of a command's events."""

    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def timed_out(self) -> bool: ...
    @property
    def infra_error(self) -> str: ...
    @property
    def duration_s(self) -> float: ...


class CommandObserver(Protocol):
    """Whoever wants to know how commands end."""

    def command(self, end: Ended) -> None: ...


def observed(backend: Backend, observer: CommandObserver | None) -> Backend:
    """Return the backend with eyes on it; without an observer only traces are kept."""
    return cast("Backend", _ObservedBackend(backend, observer))


class _ObservedBackend:
    def __init__(self, backend: Backend, observer: CommandObserver | None) -> None:
        self._backend = backend
        self._observer = observer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def create(self, spec: SandboxSpec, *, sandbox_id: str, **more: Any) -> Any:
        with tracing.span("backend.create", sandbox_id=sandbox_id):
            return self._seen(await self._backend.create(spec, sandbox_id=sandbox_id, **more))

    async def adopt(self, sandbox_id: str, **more: Any) -> Any:
        return self._seen(await cast("Any", self._backend).adopt(sandbox_id, **more))

    async def restore(self, sandbox_id: str, **more: Any) -> Any:
        with tracing.span("backend.restore", sandbox_id=sandbox_id):
            return self._seen(await cast("Any", self._backend).restore(sandbox_id, **more))

    def own_part(self, tenant: str) -> Backend | None:
        part = own_part(self._backend, tenant)
        return None if part is None else observed(part, self._observer)

    def _seen(self, box: Sandbox | None) -> Any:
        return None if box is None else _ObservedBox(box, self._observer)


class _ObservedBox:
    def __init__(self, box: Sandbox, observer: CommandObserver | None) -> None:
        self._box: Any = box
        self._observer = observer
        self._counted: dict[str, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._box, name)

    def start(self, argv: Sequence[str], *, env: Env = None, key: str = "", **more: Any) -> Any:
        look = self._look(key)
        with tracing.within(look.span):
            env = tracing.command_environment(env, repeatable=bool(key))
            command = self._box.start(argv, env=env, key=key, **more)
        return _ObservedCommand(command, look)

    async def exec(self, argv: Sequence[str], *, env: Env = None, key: str = "", **more: Any) -> Any:
        look = self._look(key)
        with tracing.within(look.span):
            env = tracing.command_environment(env, repeatable=bool(key))
        try:
            result = await self._box.exec(argv, env=env, key=key, **more)
            look.ended(result)
            return result
        finally:
            look.close()

    def session_command(self, session_id: str, command: str, *, key: str = "", **more: Any) -> Any:
        look = self._look(key)
        return _ObservedCommand(self._box.session_command(session_id, command, key=key, **more), look)

    async def start_process(self, argv: Sequence[str], *, env: Env = None, key: str = "", **more: Any) -> Any:
        if key != READY_KEY:  # that one may run already, for a pool, which had no trace
            env = tracing.command_environment(env, repeatable=bool(key))
        return await self._box.start_process(argv, env=env, key=key, **more)

    async def open_session(
        self, argv: Sequence[str] = (), *, env: Env = None, key: str = "", **more: Any
    ) -> Any:
        env = tracing.command_environment(env, repeatable=bool(key))
        return await self._box.open_session(argv, env=env, key=key, **more)

    def _look(self, key: str) -> _Look:
        add_log_ids(sandbox_id=self._box.id)
        span = tracing.open_span("command", sandbox_id=self._box.id, exec_id=key)
        return _Look(span, self._observer, lambda: self._is_new(key))

    def _is_new(self, key: str) -> bool:
        """Return whether the end of the command with this key is seen for the first time."""
        if not key:
            return True
        if key in self._counted:
            return False
        self._counted[key] = None
        if len(self._counted) > _MOST_COUNTED:
            del self._counted[next(iter(self._counted))]
        return True


class _ObservedCommand:
    def __init__(self, command: Any, look: _Look) -> None:
        self._command = command
        self._look = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._command, name)

    async def __aenter__(self) -> Self:
        await self._command.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        try:
            return await self._command.__aexit__(*error)
        finally:
            self._look.close()

    async def events(self) -> AsyncGenerator[Any]:
        async with aclosing(self._command.events()) as events:
            async for event in events:
                if hasattr(event, "exit_code"):
                    self._look.ended(event)
                yield event

    async def result(self) -> Any:
        result = await self._command.result()
        self._look.ended(result)
        return result


class _Look:
    """One command's span, ended with the guest's own timing, and its observer."""

    def __init__(self, span: Span, observer: CommandObserver | None, is_new: Callable[[], bool]) -> None:
        self.span = span
        self._observer = observer
        self._is_new = is_new
        self._started_ns = time.time_ns()
        self._done = False

    def ended(self, end: Ended) -> None:
        if self._done:
            return
        self._done = True
        if self._observer is not None and self._is_new():
            self._observer.command(end)
        if not self.span.is_recording():
            return
        if end.infra_error:
            self.span.set_status(Status(StatusCode.ERROR, end.infra_error))
        for name in ("exit_code", "signal", "timed_out"):
            value = getattr(end, name)
            if value is not None:
                self.span.set_attribute(f"rock.{name}", value)
        self.span.end(self._started_ns + round(end.duration_s * 1e9))

    def close(self) -> None:
        """End the span of a command that nobody waited for."""
        if not self._done:
            self._done = True
            self.span.end()
