"""The files of a built-in model's folder, read back: each knows its format, and says what to do where it is damaged.

Used by the `tiny` and `coder` engines. Writes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from rock_env.foreign.files import check_regular

__all__ = ["load_weights", "read_saved"]


class _Formatted(Protocol):
    @property
    def format(self) -> str: ...


Saved = TypeVar("Saved", bound=_Formatted)


def read_saved(path: Path, kind: type[Saved], *, expected: str, cannot: str, remedy: str, old: str) -> Saved:
    """Read a JSON file of format `expected`.

    Raise `InvalidArgument`: `cannot` and `remedy` are said around why it is unreadable, `old` after another format.
    """
    try:
        saved = msgspec.json.decode(budget.read_json(path, str(path)), type=kind)
    except (OSError, InvalidArgument, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{cannot}: {error}. {remedy}") from error
    if saved.format != expected:
        raise InvalidArgument(f"{path} has format {saved.format!r}, expected {expected!r}. {old}")
    return saved


def load_weights(net: nn.Module, path: Path) -> None:
    """Load what `export` wrote. Raise `InvalidArgument` where the file is missing, damaged or another model's."""
    try:
        check_regular(path.stat().st_mode, path)
        net.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise InvalidArgument(f"cannot read the weights {path}: {error}. Export the model again.") from error
