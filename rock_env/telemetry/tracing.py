"""OpenTelemetry spans from the client through the server to a command in its box.

Used by the client, the server's interceptor and its backends. Only opentelemetry's API is needed. Where no SDK was set
up there are no spans, at the price of one look per call; a caller's `traceparent` is passed on all the same.

Names of spans are those of the calls (`rock.v1.SandboxService/Exec`), ids are attributes: `rock.sandbox_id`,
`rock.env_id`, `rock.exec_id`. Commands, paths and outputs never are: they may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = [
    "NO_SPAN",
    "VARIABLE",
    "command_environment",
    "enter_remote",
    "open_span",
    "span",
    "trace_headers",
    "trace_id",
    "tracing",
    "within",
]

VARIABLE = "TRACEPARENT"
"""The environment variable that hands a trace to a program, as other tools do."""
NO_SPAN: Span = trace.INVALID_SPAN
"""Takes attributes and an end, and keeps nothing."""
_PROPAGATOR = TraceContextTextMapPropagator()
_NAMES = ("traceparent", "tracestate")
_tracer = trace.get_tracer("rock_env")
_nothing: AbstractContextManager[Span] = nullcontext(NO_SPAN)

_received: ContextVar[Mapping[str, str]] = ContextVar("rock_received_trace", default={})  # noqa: B039  never changed

Metadata = Sequence[tuple[str, str]] | None


def tracing() -> bool:
    """Return whether somebody set up an SDK, so that spans go anywhere."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def span(
    name: str, *, kind: SpanKind = SpanKind.INTERNAL, errors: bool = True, **attributes: str | int
) -> AbstractContextManager[Span]:
    """Open a span for the block; `rock.` is put before the attributes.

    Where the block raises, the span's status names the kind of error, never its message; not so with `errors` False.
    """
    return _recorded(name, kind, errors, _named(attributes)) if tracing() else _nothing


@contextmanager
def _recorded(name: str, kind: SpanKind, errors: bool, attributes: Mapping[str, str | int]) -> Iterator[Span]:
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as made:
        try:
            yield made
        except Exception as error:
            if errors:
                made.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def open_span(name: str, *, kind: SpanKind = SpanKind.INTERNAL, **attributes: str | int) -> Span:
    """Start a span that its caller ends; `within` makes it the present one for a block."""
    if not tracing():
        return NO_SPAN
    return _tracer.start_span(name, kind=kind, attributes=_named(attributes))


def within(opened: Span) -> AbstractContextManager[Any]:
    """Make an open span the present one for the block, without ending it."""
    return trace.use_span(opened) if opened.is_recording() else _nothing


def _named(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    return {f"rock.{name}": value for name, value in attributes.items() if value != ""}


def trace_headers(metadata: Metadata) -> Metadata:
    """Return the metadata of a call with the present trace's `traceparent`, if there is a trace."""
    if not trace.get_current_span().get_span_context().is_valid:
        return metadata
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return (*(metadata or ()), *carrier.items())


def enter_remote(metadata: Sequence[tuple[str, Any]] | None) -> None:
    """Continue, for the rest of the present task, the trace that a call's metadata names."""
    carrier = {name: value for name, value in metadata or () if name in _NAMES and isinstance(value, str)}
    if carrier:
        _received.set(carrier)
        contexts.attach(_PROPAGATOR.extract(carrier, contexts.Context()))


def command_environment(env: Mapping[str, str] | None, *, repeatable: bool) -> Mapping[str, str] | None:
    """Return a command's environment with its trace in `TRACEPARENT`, unless the caller set one.

    The present span is its parent. A `repeatable` one has its caller's instead, which stays the same when the call is
    sent again: an idempotency key is of one command with one environment.
    """
    if env and VARIABLE in env:
        return env
    carrier: dict[str, str] = {}
    if repeatable:
        carrier.update(_received.get())
    elif trace.get_current_span().get_span_context().is_valid:
        _PROPAGATOR.inject(carrier)
    return {**(env or {}), **{name.upper(): value for name, value in carrier.items()}} if carrier else env


def trace_id() -> str:
    """Return the present trace's id, 32 hex digits, or "" outside of one."""
    known = trace.get_current_span().get_span_context()
    return trace.format_trace_id(known.trace_id) if known.is_valid else ""
