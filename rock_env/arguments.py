"""Arguments of environments as a caller gives them: which types they may have, and whether they may name files of the host.

A field that names a file or folder has the type `rock_env.spec.HostPath`; no other type leads to one. A server that others
call takes the name of data that its operator chose, and no path. The embedded server of one user takes that user's
paths. No code of a plugin runs here.
"""

from __future__ import annotations

import json
import reprlib
import types
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from rock_env.errors import InvalidArgument
from rock_env.spec import EnvParams, OnHost

__all__ = ["MOST_BYTES", "Data", "host_paths", "items", "open_types", "problem", "shown"]

MOST_BYTES = 64 << 10
"""Of the JSON text of one environment's arguments."""
_SCALARS = (bool, int, float, str, type(None))


def shown(value: object) -> str:
    """Return at most about 80 characters of a caller's value, for an error message."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    return short.repr(value)


def problem(error: ValidationError) -> str:
    """Return what is wrong with the first bad field, and what was got: not all fields, where several do not go together."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    return said if isinstance(first["input"], Mapping) else f"{said}, got {shown(first['input'])}"


def items(text: str) -> tuple[str, ...]:
    """Return what commas part; nothing for an empty text. Raise `ValueError` for an empty item."""
    found = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if not all(found):
        raise ValueError(f"an item of {shown(text)} is empty: expected names with a comma between each two")
    return found


@lru_cache(maxsize=256)
def host_paths(params: type[EnvParams]) -> frozenset[str]:
    """Return the names of the fields that name a file or folder of the host."""
    return frozenset(
        name
        for name, field in params.model_fields.items()
        if _marked(field.metadata) or _names_path(field.annotation)
    )


@lru_cache(maxsize=256)
def open_types(params: type[EnvParams]) -> tuple[str, ...]:
    """Return the fields whose type is outside the closed set, and those with an alias that would hide a path.

    The set: bool, int, float, str, None, literals, enumerations, `HostPath`, and unions, lists and tuples of these.
    """
    paths = host_paths(params)
    return tuple(
        name
        for name, field in params.model_fields.items()
        if not _closed(field.annotation) or (name in paths and (field.alias or field.validation_alias))
    )


def _marked(metadata: Any) -> bool:
    return any(isinstance(one, OnHost) for one in metadata)


def _names_path(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _marked(annotation.__metadata__) or _names_path(annotation.__origin__)
    return any(map(_names_path, get_args(annotation))) if get_origin(annotation) is not Literal else False


def _closed(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal or annotation is Ellipsis:
        return True
    if origin is Annotated:
        return _closed(annotation.__origin__)
    if origin in (Union, types.UnionType, list, tuple):
        return all(map(_closed, get_args(annotation)))
    return annotation in _SCALARS or (isinstance(annotation, type) and issubclass(annotation, Enum))


class Data:
    """What of the host an environment's arguments may name on one server: data by name, or any path."""

    def __init__(self, named: Mapping[str, str] | None = None, *, any_path: bool = True) -> None:
        """Take the operator's names, and whether callers may name paths, as the only user of a server may."""
        self._named = dict(named or {})
        self._any_path = any_path

    def resolve(self, env: str, params: type[EnvParams], params_json: str) -> str:
        """Return the arguments with names of data replaced by paths. Raise `InvalidArgument` for a path or much text."""
        if len(params_json) > MOST_BYTES:
            raise InvalidArgument(
                f"the arguments of environment {env} are too large: got {len(params_json)} characters, "
                f"expected at most {MOST_BYTES}."
            )
        _check_once(env, params_json)
        fields = host_paths(params)
        if not self._any_path and open_types(params):
            raise InvalidArgument(
                f"environment {env} is not offered to callers: the type of its argument {open_types(params)[0]!r} could "
                "name files of the server. Its author gives it the type rock_env.spec.HostPath, or a plain one."
            )
        if not fields or (self._any_path and not self._named):
            return params_json
        try:
            tree = json.loads(params_json or "{}")
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(
                f"the arguments of environment {env} are no JSON: {str(error)[:100]}, got {shown(params_json)}."
            ) from error
        if isinstance(tree, dict):
            for name in fields & tree.keys():
                tree[name] = self._path(env, name, tree[name])
        return json.dumps(tree)

    def _path(self, env: str, field: str, value: Any) -> Any:
        """Return the path that a value stands for; what is no text is for the environment's own check."""
        if isinstance(value, list):
            return [self._path(env, field, one) for one in value]
        if not isinstance(value, str) or not value:
            return value
        path = self._named.get(value)
        if path is None and not self._any_path:
            known = ", ".join(sorted(self._named)) or "none (ale rock serve --data NAME=PATH)"
            raise InvalidArgument(
                f"argument {field!r} of environment {env} takes no path on this server but the name of data that its "
                f"operator chose, got {shown(value)}; named are: {known}."
            )
        return path or value


def _check_once(env: str, params_json: str) -> None:
    """Raise `InvalidArgument` for an argument that is given twice; what is no JSON is the environment's to say."""

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgument(
                f"argument {shown(twice)} of environment {env} is given twice, expected once."
            )
        return found

    try:
        json.loads(params_json or "{}", object_pairs_hook=checked)
    except InvalidArgument:
        raise
    except (ValueError, RecursionError):
        return
