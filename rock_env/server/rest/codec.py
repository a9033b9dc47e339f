"""HTTP ↔ protobuf: bodies, query parameters and path parameters into a request, messages and errors into JSON.

Used by the REST face. The mapping is protobuf's own JSON mapping; this adds only where a field comes from and one
clear error for what cannot be read. It opens nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from starlette.responses import Response

from rock_env.arguments import shown
from rock_env.errors import CODES, InfraError, InvalidArgument, RockError, Unavailable, one_line
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.parsing import (
    MAX_BATCH_BYTES,
    MAX_JSON_BYTES,
    SMALL_BYTES,
    load_json,
    off_loop,
    whole_number,
)
from rock_env.server.rest.durations import check_durations
from rock_env.wire.rest_routes import Method

__all__ = [
    "MAX_FRAME_BYTES",
    "definite",
    "dump",
    "event_id",
    "from_body",
    "from_query",
    "json_bytes",
    "problem",
    "problem_body",
    "read_body",
    "reading",
    "resume_after",
    "rock_error",
    "set_field",
]

_BY_STATUS = {kind.grpc: kind for kind in reversed(CODES.values()) if kind is not RockError}
_LOST = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
MAX_FRAME_BYTES = 16 << 20
"""Of a WebSocket; what a call takes is less."""
_UNSIGNED = {FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1, FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1}
"""The largest number of a field by its type; no URL holds one below zero."""
_TRUTH = {"true": True, "1": True, "": True, "false": False, "0": False}


# -- into a request


def from_body(method: Method, body: bytes | str, stop: threading.Event | None = None) -> Any:
    """Return the message that JSON `body` holds; an empty one is {}. Raise `InvalidArgument` naming the field.

    It gives up when `stop` is set.
    """
    try:
        text = body.decode() if isinstance(body, bytes) else body
        found = load_json(text or "{}", stop)
    except InvalidArgument:
        raise
    except (ValueError, RecursionError) as error:
        raise _unreadable(method, f"Failed to load JSON: {error}") from None
    if not isinstance(found, dict):
        raise _unreadable(method, f"expected a JSON object, got {type(found).__name__}")
    return _parsed(method, found)


def _parsed(method: Method, found: dict[str, Any]) -> Any:
    check_durations(found, method.input)
    try:
        return json_format.ParseDict(found, method.request())
    except (json_format.ParseError, RecursionError) as error:
        raise _unreadable(method, error) from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise _unreadable(method, f"{type(error).__name__}: {error}") from None


@contextmanager
def reading() -> Iterator[None]:
    """Let what cannot be read of a request be its caller's mistake, `InvalidArgument`, whatever finds it."""
    try:
        yield
    except RockError:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"the request cannot be read: {error}") from error


async def read_body(method: Method, body: bytes | str) -> Any:
    """Return the message as `from_body` does, off the event loop unless it is small. Cancel it and it gives up."""
    if len(body) <= SMALL_BYTES:
        return from_body(method, body)
    stop = threading.Event()
    try:
        return await off_loop(from_body, method, body, stop)
    finally:
        stop.set()


def json_bytes(method: Method) -> int:
    """Return how large one JSON message of a call may be."""
    return (
        MAX_BATCH_BYTES
        if method.client_streaming or "items" in method.input.fields_by_name
        else MAX_JSON_BYTES
    )


def from_query(method: Method, items: Iterable[tuple[str, str]]) -> Any:
    """Return the message that query parameters describe: `a.b=1`, `labels.team=x`, and a repeated name for a list.

    Raise `InvalidArgument` naming the parameter.
    """
    found: dict[str, Any] = {}
    for name, text in items:
        _put(found, method.input, name, name.split("."), text)
    return _parsed(method, found)


def _put(into: dict[str, Any], message: Descriptor, name: str, path: list[str], text: str) -> None:
    head, rest = path[0], path[1:]
    field = message.fields_by_name.get(head) or message.fields_by_camelcase_name.get(head)
    if field is None:
        known = ", ".join(field.name for field in message.fields)
        raise InvalidArgument(f"unknown query parameter {name!r}. Known: {known or '(none)'}")
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if len(rest) < 1:
            raise InvalidArgument(f"query parameter {name!r} is a map: write {name}.KEY=VALUE")
        into.setdefault(field.name, {})[".".join(rest)] = text
    elif rest:
        if field.message_type is None:
            raise InvalidArgument(f"unknown query parameter {name!r}: {head} has no fields")
        _put(into.setdefault(field.name, {}), field.message_type, name, rest, text)
    elif field.is_repeated:
        into.setdefault(field.name, []).append(_scalar(field, name, text))
    elif field.name in into:
        raise InvalidArgument(f"query parameter {name!r} was given twice, expected once")
    else:
        into[field.name] = _scalar(field, name, text)


def _scalar(field: FieldDescriptor, name: str, text: str) -> Any:
    if field.type == FieldDescriptor.TYPE_BOOL:
        if text.lower() not in _TRUTH:
            raise InvalidArgument(f"query parameter {name!r} must be true or false, got {text!r}")
        return _TRUTH[text.lower()]
    if field.cpp_type in _UNSIGNED:
        return whole_number(text, f"query parameter {name!r}", 0, _UNSIGNED[field.cpp_type])
    return text  # protobuf's JSON reads enums, durations and bytes from text


def set_field(message: Any, path: str, value: str) -> None:
    """Set the field `a.b` from the text in a URL. Raise `InvalidArgument` where the body says otherwise."""
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    given = getattr(message, name)
    if given and str(given) != value:
        raise InvalidArgument(f"{path} is {value!r} in the path and {given!r} in the body")
    if isinstance(given, int):
        most = _UNSIGNED[message.DESCRIPTOR.fields_by_name[name].cpp_type]
        setattr(message, name, whole_number(value, f"{path} in the path", 0, most))
        return
    try:
        setattr(message, name, value)
    except ValueError as error:
        raise InvalidArgument(f"{path} in the path is no text: {shown(value)}") from error


def _unreadable(method: Method, error: Exception | str) -> InvalidArgument:
    said = " ".join(str(error).split()) or type(error).__name__
    return InvalidArgument(f"malformed {method.input.name}: {said.removesuffix('.')}")


# -- out of a reply


def dump(message: Any) -> bytes:
    """Return a message as JSON with the names of the .proto file and all fields that are not absent."""
    if isinstance(message, pb.ListFilesResponse):
        return b'{"files": [' + b", ".join(map(_file, message.files)) + b"]}"
    text: str = json_format.MessageToJson(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        indent=None,
        ensure_ascii=False,
    )
    return text.encode()


def _file(file: pb.FileStat) -> bytes:
    """Return what `dump` would, in about 60 % of the time: a folder may have 100,000 files."""
    text = json.dumps(
        {
            "path": file.path,
            "size": str(file.size),
            "mode": file.mode,
            **({"modified_at": file.modified_at.ToJsonString()} if file.HasField("modified_at") else {}),
            "directory": file.directory,
            "symlink_target": file.symlink_target,
        },
        ensure_ascii=False,
    )
    return text.encode()


def rock_error(failure: grpc.aio.AioRpcError) -> RockError:
    """Return the error that a failed call stands for."""
    metadata = dict(failure.trailing_metadata() or ())
    details = failure.details() or "no details"
    kind = CODES.get(str(metadata.get("rock-error-code")))
    if kind is None and failure.code() in _LOST:
        kind = Unavailable
    if kind is None:
        kind = _BY_STATUS.get(failure.code().name, InfraError)
    hint = metadata.get("rock-retry-after-s")
    return kind(details, retry_after_s=float(hint) if hint else None)


def definite(failure: grpc.aio.AioRpcError) -> bool:
    """Return whether the call's own handler answered, rather than a connection that ended."""
    return "rock-error-code" in dict(failure.trailing_metadata() or ())


def problem_body(error: RockError) -> dict[str, Any]:
    """Return the body of an error (RFC 9457 with `code`, `message` and `retry_after_s`)."""
    body: dict[str, Any] = {"code": error.code, "message": one_line(error.message), "status": error.http}
    if error.retry_after_s is not None:
        body["retry_after_s"] = error.retry_after_s
    return body


def problem(error: RockError, *, status: int = 0, known: bool = True) -> Response:
    """Return the response for an error; `known` is False where nobody can say whether the call took effect."""
    body = problem_body(error)
    headers = {"rock-error-code": error.code} if known else {}
    if status:
        body["status"] = status
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
        headers["rock-retry-after-s"] = f"{error.retry_after_s:g}"
    if error.http == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(
        json.dumps(body), status or error.http, headers=headers, media_type="application/problem+json"
    )


# -- resuming a stream of events


def event_id(ids: Mapping[str, str], message: Any, reached: dict[str, int]) -> str:
    """Return the SSE id after `message`: where each resumable field stands, `:` between them."""
    for name in ids:
        parent, field = (message, name)
        if message.DESCRIPTOR.fields_by_name[name].message_type is None:
            reached[name] = getattr(parent, field)
        elif message.HasField(name):
            chunk = getattr(message, name)
            reached[name] = chunk.offset + len(chunk.data)
    return ":".join(str(reached.get(name, 0)) for name in ids)


def resume_after(ids: Mapping[str, str], request: Any, last: str) -> dict[str, int]:
    """Let `request` go on after the event with the id `last`. Raise `InvalidArgument` for what is no id of ours."""
    parts = last.split(":")
    if len(parts) != len(ids):
        raise InvalidArgument(
            f"Last-Event-ID {shown(last)} is none of this stream's, such as {':'.join('0' * len(ids))!r}"
        )
    reached = {}
    for (name, target), part in zip(ids.items(), parts, strict=True):
        reached[name] = whole_number(part, f"Last-Event-ID {shown(last)}: each of its parts", 0, 2**64 - 1)
        *parents, field = target.split(".")
        message = request
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, field, reached[name])
    return reached
