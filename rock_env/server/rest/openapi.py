"""The OpenAPI description of the REST face, made from the protobuf descriptors and the table of routes.

Used by `server/rest/app` for /openapi.json and /docs. What protobuf's JSON mapping says of a field is what the schema
says: 64-bit integers are strings of digits, bytes are base64, durations are "1.5s".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rock_env.errors import CODES
from rock_env.wire.rest_routes import Method

__all__ = ["openapi"]

Schema = dict[str, Any]

_F = FieldDescriptor
_SCALARS: dict[int, Schema] = {
    _F.TYPE_DOUBLE: {"type": "number", "format": "double"},
    _F.TYPE_FLOAT: {"type": "number", "format": "float"},
    _F.TYPE_BOOL: {"type": "boolean"},
    _F.TYPE_STRING: {"type": "string"},
    _F.TYPE_BYTES: {"type": "string", "format": "byte"},
    _F.TYPE_INT32: {"type": "integer", "format": "int32"},
    _F.TYPE_UINT32: {"type": "integer", "format": "int64", "minimum": 0, "maximum": 4294967295},
    _F.TYPE_INT64: {"type": "string", "format": "int64", "pattern": "^-?[0-9]+$"},
    _F.TYPE_UINT64: {"type": "string", "format": "uint64", "pattern": "^[0-9]+$"},
}
_KNOWN: dict[str, Schema] = {
    "google.protobuf.Duration": {
        "type": "string",
        "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$",
        "examples": ["60s"],
    },
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
}
_TITLE = "ROCK"
_ABOUT = (
    "Sandboxes and environments as a service: every call of the gRPC services, with the same messages as JSON. "
    "An error is `application/problem+json`. See docs/rest.md for streams, WebSockets and files."
)


def openapi(methods: Iterable[Method], *, version: str, secured: bool) -> Schema:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, Schema] = {}
    schemas: dict[str, Schema] = {"Problem": _problem()}
    for method in methods:
        paths.setdefault(method.route.path, {})[method.route.verb.lower()] = _operation(method, schemas)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _operation(method: Method, schemas: dict[str, Schema]) -> Schema:
    raw_in = bool(method.route.raw) and method.client_streaming
    raw_out = bool(method.route.raw) and not method.client_streaming
    operation: Schema = {
        "operationId": method.name.replace(".", ""),
        "tags": [method.service],
        "parameters": _parameters(method, schemas, raw_in),
        "responses": {
            "200": {"description": "done", "content": _reply(method, schemas, raw_out)},
            "default": {
                "description": "the call failed",
                "content": {"application/problem+json": {"schema": _ref("Problem")}},
            },
        },
    }
    if raw_out:
        operation["responses"]["206"] = operation["responses"]["200"]
    if raw_in:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    elif method.takes_body:
        operation["requestBody"] = _body(method, schemas)
    if method.client_streaming and method.server_streaming:
        operation["description"] = "Also a WebSocket at this path, for both directions at once."
    return operation


def _parameters(method: Method, schemas: dict[str, Schema], raw_in: bool) -> list[Schema]:
    found: list[Schema] = [
        {"name": path, "in": "path", "required": True, "schema": {"type": "string"}}
        for path in method.path_fields
    ]
    if method.takes_body and not raw_in:
        return found
    for field in method.input.fields:
        if field.name in method.path_fields or (raw_in and field.name == method.route.raw):
            continue
        parameter: Schema = {"name": field.name, "in": "query", "schema": _field(field, schemas)}
        if field.name in method.route.required:
            parameter["required"] = True
        if field.message_type is not None and field.message_type.full_name not in _KNOWN:
            parameter |= {"style": "form", "explode": True, "description": f"write {field.name}.NAME=VALUE"}
        found.append(parameter)
    return found


def _body(method: Method, schemas: dict[str, Schema]) -> Schema:
    schema: Schema = _message(method.input, schemas)
    required = [name for name in method.route.required if name not in method.path_fields]
    if required:
        schema = {"allOf": [schema, {"required": required}]}
    content: Schema = {"schema": schema}
    if method.route.example:
        content["example"] = dict(method.route.example)
    kinds = ["application/json"] + (["application/x-ndjson"] if method.client_streaming else [])
    return {"required": bool(required), "content": dict.fromkeys(kinds, content)}


def _reply(method: Method, schemas: dict[str, Schema], raw: bool) -> Schema:
    schema = _message(method.output, schemas)
    if raw:
        return {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "text/event-stream": {"schema": schema},
        }
    return {"text/event-stream" if method.server_streaming else "application/json": {"schema": schema}}


def _message(message: Descriptor, schemas: dict[str, Schema]) -> Schema:
    if message.full_name in _KNOWN:
        return _KNOWN[message.full_name]
    if message.name not in schemas:
        schema: Schema = {"type": "object", "additionalProperties": False}
        schemas[message.name] = schema  # before its fields: they may lead back here
        schema["properties"] = {field.name: _field(field, schemas) for field in message.fields}
        for oneof in message.oneofs:
            members = [field.name for field in oneof.fields]
            if len(members) > 1:
                schema["description"] = f"At most one of {', '.join(members)}."
    return _ref(message.name)


def _field(field: FieldDescriptor, schemas: dict[str, Schema]) -> Schema:
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        return {"type": "object", "additionalProperties": _single(value, schemas)}
    if field.is_repeated:
        return {"type": "array", "items": _single(field, schemas)}
    return _single(field, schemas)


def _single(field: FieldDescriptor, schemas: dict[str, Schema]) -> Schema:
    if field.message_type is not None:
        return _message(field.message_type, schemas)
    if field.enum_type is not None:
        schemas.setdefault(
            field.enum_type.name, {"type": "string", "enum": [value.name for value in field.enum_type.values]}
        )
        return _ref(field.enum_type.name)
    return _SCALARS[field.type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _problem() -> Schema:
    return {
        "type": "object",
        "required": ["code", "message", "status"],
        "properties": {
            "code": {"type": "string", "enum": list(CODES)},
            "message": {"type": "string"},
            "status": {"type": "integer"},
            "retry_after_s": {"type": "number"},
        },
    }
