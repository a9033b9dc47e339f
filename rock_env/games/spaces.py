"""Actions and observations of Gymnasium's spaces as text: JSON, or text as it is. Gymnasium is imported for a space only."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

__all__ = ["NoAction", "encoded", "offered", "parsed"]


class NoAction(ValueError):
    """A text that is no action of a space, told as the policy reads it."""


def encoded(value: object) -> str:
    """Return an observation or action as text. Raise `TypeError` for what JSON has no form of."""
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """Return what JSON has for a value of numpy; a float as short as its own type allows."""
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"no text for an observation with a {type(value).__name__} in it")
    return (array.astype(str).astype(float) if array.dtype.kind == "f" else array).tolist()


def offered(space: Any) -> str:
    """Return the line that says what actions there are."""
    return f"Actions: {space}, as JSON.\n"


def parsed(space: Any, text: str) -> Any:
    """Return the action of a space that `text` is. Raise `NoAction` where it is none."""
    from gymnasium import spaces

    try:
        action = text if isinstance(space, spaces.Text) else _value(space, json.loads(text))
        if not space.contains(action):
            raise ValueError("it is outside of the space")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise NoAction(f"No action of {space}: {str(error)[:200]}") from error
    return action


def _value(space: Any, found: Any) -> Any:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _value(space[key], found[key]) for key in space}
    if isinstance(space, spaces.Tuple):
        if len(found) != len(space):
            raise ValueError(f"{len(space)} values are expected, got {len(found)}")
        return tuple(_value(part, value) for part, value in zip(space, found, strict=True))
    if isinstance(space, spaces.Text):
        return found
    value = np.asarray(found)
    if value.dtype.kind not in "iuf" or (value.dtype.kind == "f" and space.dtype.kind != "f"):
        raise ValueError(f"numbers of the kind {space.dtype} are expected")
    return space.dtype.type(found) if value.ndim == 0 else value.astype(space.dtype)
