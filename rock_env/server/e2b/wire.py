"""The wire of E2B's two APIs: JSON errors of its control plane, and the Connect protocol of its in-box daemon.

Used by `server/e2b*`. It knows neither sandboxes nor calls.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rock_env.errors import InvalidArgument, RockError, Unauthenticated, one_line
from rock_env.server.parsing import MAX_JSON_BYTES, SMALL_BYTES, load_json, off_loop
from rock_env.server.rest.request import blocks, body

__all__ = [
    "AlreadyExists",
    "connect_problem",
    "control_problem",
    "end_frame",
    "frame",
    "frames",
    "json_body",
    "key_of",
    "token_of",
]

_PREFIX = struct.Struct(">BI")
_END = 2
_RETRY = {429, 503}


class AlreadyExists(InvalidArgument):
    """What was to be made is there already; E2B tells it apart."""

    grpc, http = "ALREADY_EXISTS", 409


def control_problem(error: RockError) -> Response:
    """Return an error as E2B's control plane words it."""
    headers = {}
    if error.http in _RETRY and error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    return JSONResponse({"code": error.http, "message": one_line(error.message)}, error.http, headers=headers)


def connect_problem(error: RockError) -> Response:
    """Return an error of a unary call of the Connect protocol."""
    return JSONResponse(_connect_error(error), error.http)


def _connect_error(error: RockError) -> dict[str, str]:
    return {"code": error.grpc.lower(), "message": one_line(error.message)}


def frame(message: Mapping[str, Any]) -> bytes:
    """Return one message of a stream."""
    content = json.dumps(message).encode()
    return _PREFIX.pack(0, len(content)) + content


def end_frame(error: RockError | None = None) -> bytes:
    """Return the last message of a stream."""
    content = json.dumps({"error": _connect_error(error)} if error else {}).encode()
    return _PREFIX.pack(_END, len(content)) + content


async def frames(request: Request) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages that a stream's body holds, as they come. Raise `InvalidArgument`."""
    rest = bytearray()
    async for block in blocks(request):
        rest += block
        while len(rest) >= _PREFIX.size:
            flags, size = _PREFIX.unpack_from(rest)
            if flags or size > MAX_JSON_BYTES:
                raise InvalidArgument(
                    f"a message has flags {flags} and {size} bytes: compressed, or larger than {MAX_JSON_BYTES} bytes"
                )
            if len(rest) < _PREFIX.size + size:
                break
            yield await _read(bytes(rest[_PREFIX.size : _PREFIX.size + size]))
            del rest[: _PREFIX.size + size]
    if rest:
        raise InvalidArgument("the body ends in the middle of a message")


async def json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; an empty one is {}. Raise `InvalidArgument`."""
    return await _read(await body(request, MAX_JSON_BYTES) or b"{}")


async def _read(content: bytes) -> dict[str, Any]:
    return _object(content) if len(content) <= SMALL_BYTES else await off_loop(_object, content)


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = load_json(content)
        if b"\\u" in content:
            json.dumps(
                found, ensure_ascii=False
            ).encode()  # half a surrogate pair is no text, and JSON can hold it
    except InvalidArgument:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"the body must be a JSON object, got {type(found).__name__}")
    return found


def key_of(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return the gRPC metadata for the API key of a control call: it is a ROCK token."""
    return _bearer(headers, "x-api-key")


def token_of(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return the gRPC metadata for the access token of a call into a box: it is the sandbox's own token."""
    return _bearer(headers, "x-access-token")


def _bearer(headers: Headers, name: str) -> tuple[tuple[str, str], ...]:
    text = headers.get(name)
    if text is None:
        return ()
    if not (text.isascii() and text.isprintable()):
        raise Unauthenticated(f"malformed {name} header: expected printable ASCII")
    return (("authorization", f"Bearer {text}"),)
