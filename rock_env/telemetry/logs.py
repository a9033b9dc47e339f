"""Log lines of a server: text or JSON, each with the ids of the call it belongs to, none with a secret.

Set up by `rock_env.telemetry.setup`. Ids travel in a context variable: the
interceptor sets them for a call, and tasks inherit them. An API token's secret is cut out of whatever is written,
wherever it came from.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Literal

from rock_env.security.auth import current_tenant
from rock_env.telemetry.tracing import trace_id

__all__ = ["LogFormat", "add_log_ids", "enter_call", "set_up_logs", "without_secrets"]

LogFormat = Literal["text", "json"]

_ids: ContextVar[Mapping[str, str]] = ContextVar("rock_log_ids", default={})  # noqa: B039  never changed in place
_call: ContextVar[tuple[str, str, int] | None] = ContextVar("rock_log_call", default=None)
_CHATTY = ("httpx", "httpcore", "grpc._cython.cygrpc", "asyncio")
"""Libraries that tell each request or loop below WARNING, which is of no use to who runs a server."""
_SECRET = re.compile(
    r"(rock_(?:[0-9a-f]{12}|sb-[a-z0-9-]{1,64})_)[0-9a-fA-F]{8,}"  # API tokens, those of one sandbox
    r"|(\b[0-9]{1,5}-[0-9a-f]{16}-)[0-9a-f]{40}"  # a port's URL
    r"|(?i:(bearer )(?!rock_(?:[0-9a-f]{12}|sb-[a-z0-9-]{1,64})_)\S+)"
)


def add_log_ids(**ids: str) -> None:
    """Put ids on every line that the rest of the present task, and tasks it starts, write."""
    _ids.set({**_ids.get(), **{name: value for name, value in ids.items() if value}})


def enter_call(rpc: str, prefix: str, number: int) -> None:
    """Put a call's name and its number, unique together with the server's prefix, on its task's lines."""
    _call.set((rpc, prefix, number))  # formatted only where a line is written: this is on every step's way


def without_secrets(text: str) -> str:
    """Return the text with the secret of each token, of each port's URL and of any other bearer header cut out."""
    return _SECRET.sub(lambda match: f"{match[1] or match[2] or match[3]}***", text)


def _known_ids() -> dict[str, str]:
    known = dict(_ids.get())
    if call := _call.get():
        known |= {"rpc": call[0], "request_id": f"{call[1]}-{call[2]:x}"}
    if tenant := current_tenant():
        known["tenant"] = tenant
    if trace := trace_id():
        known["trace_id"] = trace
    return known


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        ids = "".join(f" {name}={value}" for name, value in _known_ids().items())
        return super().formatMessage(record) + ids

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, str] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_known_ids(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(entry))


def set_up_logs(level: str, log_format: LogFormat) -> None:
    """Send every logger's lines from `level` on to standard error, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.getLogger().level, logging.WARNING))
