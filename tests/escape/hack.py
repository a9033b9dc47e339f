"""One way to a reward that is no fix, and the kinds of them: files left behind, and code put into the project."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

__all__ = ["Hack", "at_the_door", "first", "last", "left"]


@dataclass(frozen=True)
class Hack:
    script: str
    fair: bool
    task: str = "train/0"


def left(script: str, *, fair: bool = True, task: str = "train/0") -> Hack:
    """Leave files or processes behind."""
    return Hack(dedent(script), fair, task)


def first(code: str, *, fair: bool = False) -> Hack:
    """Put code at the beginning of the package."""
    script = (
        f"cat > new <<'HACK'\n{dedent(code)}\nHACK\ncat parcel/__init__.py >> new; mv new parcel/__init__.py"
    )
    return Hack(script, fair)


def last(code: str) -> Hack:
    """Put code at the end of the module with the bug."""
    return Hack(f"cat >> parcel/rates.py <<'HACK'\n{dedent(code)}\nHACK", fair=False)


def at_the_door(code: str) -> Hack:
    """Put code at the end of the package's own module."""
    return Hack(f"cat >> parcel/__init__.py <<'HACK'\n{dedent(code)}\nHACK", fair=False)
