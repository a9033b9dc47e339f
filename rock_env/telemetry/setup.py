"""Sets up where a server's telemetry goes: its log lines, and its spans if an OpenTelemetry SDK is installed.

Called once by the server's two entrances (`rock_env.server.app` and `ale rock serve`). A program that uses the client
sets up its own SDK, or none; `rock_env.telemetry.tracing` takes what it finds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import entry_points

from opentelemetry import trace

from rock_env.errors import InvalidArgument, nearest
from rock_env.telemetry.logs import LogFormat, set_up_logs

__all__ = ["EXPORTER", "set_up_telemetry"]

EXPORTER = "OTEL_TRACES_EXPORTER"
"""OpenTelemetry's own variable: the name of an installed exporter, such as "otlp" or "console"; empty or none: no spans."""
_GROUP = "opentelemetry_traces_exporter"


def set_up_telemetry(
    level: str, log_format: LogFormat, *, environment: Mapping[str, str] = os.environ
) -> None:
    """Send log lines to standard error, and spans where `OTEL_TRACES_EXPORTER` says.

    The exporter reads OpenTelemetry's other variables itself. Raise `InvalidArgument` for one that is not installed.
    """
    set_up_logs(level, log_format)
    wanted = environment.get(EXPORTER, "none").strip()
    if wanted in ("", "none"):
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidArgument(
            f"{EXPORTER} is {wanted!r}, but OpenTelemetry's SDK is not installed: pip install 'ale-rl[otel]', or unset it."
        ) from error
    known = {found.name: found for found in entry_points(group=_GROUP)}
    if wanted not in known:
        raise nearest(f"trace exporter of {EXPORTER}", wanted, known)
    resource = Resource.create({"service.name": environment.get("OTEL_SERVICE_NAME", "rock")})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(known[wanted].load()()))
    trace.set_tracer_provider(provider)  # it flushes itself when the process ends
