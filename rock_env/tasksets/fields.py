"""The fields of one file of a task, each either taken or named in the error: nothing a task's author wrote is ignored.

Used by the readers of the formats. A reader takes what it honours, refuses what it cannot honour, and calls `end`, which
raises one error for all that is wrong with the file, fields it never asked for included.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rock_env.errors import InvalidArgument
from rock_env.foreign.folder import read_inside

__all__ = ["MOST", "MOST_BYTES", "Fields", "content_of", "refused", "required_text", "text_of"]

MOST = 1e9
"""Of any number in a task's file: what is counted, seconds, and MiB."""
MOST_BYTES = 1 << 50
"""Of any size in a task's file."""


def refused(file: Path | str, problems: list[str]) -> InvalidArgument:
    """Build the one error for everything that is wrong with a file of a task."""
    if len(problems) == 1:
        return InvalidArgument(f"{file}: {problems[0]}")
    listed = "".join(f"\n  - {problem}" for problem in problems)
    return InvalidArgument(f"{file}: {len(problems)} fields cannot be honoured:{listed}")


def content_of(file: Path, root: Path) -> bytes:
    """Read a file of the task's folder `root`. Raise `InvalidArgument` if it is absent, or leads out of the folder."""
    try:
        return read_inside(root, file)
    except FileNotFoundError:
        raise InvalidArgument(f"{file} is missing; the format requires it.") from None
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}.") from error


def text_of(file: Path, root: Path) -> str:
    """Read a text file of a task. Raise `InvalidArgument` as `content_of` does, and for what is no UTF-8."""
    try:
        return content_of(file, root).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file} is no UTF-8 text: {error}. Save it as UTF-8.") from error


def required_text(file: Path, root: Path) -> str:
    """Read a text file that has to say something. Raise `InvalidArgument`."""
    text = text_of(file, root).strip()
    if not text:
        raise InvalidArgument(f"{file} is empty; the format requires it to say something.")
    return text


class Fields:
    """The fields of a mapping, taken one by one. `name` in messages is the path from the top, such as `agent.user`."""

    def __init__(
        self,
        values: object,
        *,
        file: Path | str,
        prefix: str = "",
        problems: list[str] | None = None,
        leave_out: Collection[str] = (),
    ) -> None:
        """`leave_out` names fields (by their path from the top) that the user gives up: nothing is said of them."""
        self.file = file
        self._prefix = prefix
        self._leave_out = leave_out
        self._problems: list[str] = [] if problems is None else problems
        self._values: dict[str, Any] = {}
        if isinstance(values, Mapping):
            self._values = {str(name): value for name, value in values.items()}
        else:
            what = f"{prefix.rstrip('.')!r} is" if prefix else "the file is"
            self._problems.append(f"{what} {_kind(values)}, expected a table of fields.")

    def wrong(self, name: str, why: str, remedy: str) -> None:
        """Note that a field cannot be honoured, unless the user said to do without it."""
        if f"{self._prefix}{name}" not in self._leave_out:
            self._problems.append(f"{self._prefix}{name}: {why}. {remedy}")

    def lacks(self, name: str, why: str, remedy: str = "The format requires it.") -> None:
        """Note that something is not there that no task can do without."""
        self._problems.append(f"{self._prefix}{name}: {why}. {remedy}")

    def refuse(self, name: str, why: str, remedy: str) -> None:
        """Note that a field cannot be honoured, if it is there and says anything."""
        if self._values.pop(name, None) not in (None, "", [], {}, False):
            self.wrong(name, why, remedy)

    def has(self, name: str) -> bool:
        """Return whether the field is there and was not taken yet."""
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Take a field as it is; None if absent."""
        return self._values.pop(name, None)

    def text(self, name: str, default: str = "") -> str:
        """Take a string."""
        value = self._values.pop(name, None)
        if value is None or isinstance(value, str):
            return default if value is None else value
        self.wrong(name, f"got {value!r}, expected a string", "Quote it.")
        return default

    def need_text(self, name: str, *, whole: bool = False) -> str:
        """Take a string that must say something, whatever the user would do without; `whole` keeps the blanks around it."""
        value = self._values.pop(name, None)
        if isinstance(value, str) and value.strip():
            return value if whole else value.strip()
        what = (
            "it is missing or empty" if value is None or value == "" else f"got {value!r}, expected a string"
        )
        self.lacks(name, what)
        return ""

    def number(self, name: str, default: float, *, least: float = 0.0, most: float = MOST) -> float:
        """Take a number above `least`, at most `most`."""
        value = self._values.pop(name, None)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(name, f"got {value!r}, expected a number", "Correct it.")
            return default
        if not least < value <= most:
            why = f"got {value!r}, expected more than {least:g} and at most {most:g}"
            self.wrong(name, why, "Correct it.")
            return default
        return float(value)

    def count(self, name: str, default: int) -> int:
        """Take a whole number from 0 to a billion."""
        value = self._values.pop(name, None)
        if value is None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MOST or value != int(value):
            why = f"got {value!r}, expected a whole number from 0 to {MOST:.0f}"
            self.wrong(name, why, "Correct it.")
            return default
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        """Take true or false."""
        value = self._values.pop(name, None)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(name, f"got {value!r}, expected true or false", "Correct it.")
        return default

    def texts(self, name: str) -> list[str]:
        """Take a list of strings."""
        value = self._values.pop(name, None)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            return list(value)
        self.wrong(name, f"got {value!r}, expected a list of strings", "Correct it.")
        return []

    def pairs(self, name: str) -> dict[str, str]:
        """Take a table of strings; numbers and truth values in it are written out."""
        value = self._values.pop(name, None)
        if value is None:
            return {}
        if isinstance(value, Mapping) and all(isinstance(part, str | int | float) for part in value.values()):
            return {
                str(key): part if isinstance(part, str) else json.dumps(part) for key, part in value.items()
            }
        self.wrong(name, f"got {value!r}, expected a table of strings", "Correct it.")
        return {}

    def table(self, name: str) -> Fields:
        """Take a table, empty if absent; what is wrong in it is told by this one's `end`."""
        value = self._values.pop(name, None)
        return self.inner(name, {} if value is None else value)

    def inner(self, name: str, values: object) -> Fields:
        """Return the fields of what stands at `name`, for a table that may be written in another form, too."""
        return Fields(
            values,
            file=self.file,
            prefix=f"{self._prefix}{name}.",
            problems=self._problems,
            leave_out=self._leave_out,
        )

    def labels(self, *names: str, prefix: str = "") -> dict[str, str]:
        """Take descriptive fields, as labels; absent and empty ones give none."""
        found = {}
        for name in names:
            value = self._values.pop(name, None)
            if value not in (None, "", [], {}):
                found[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value, default=str)
        return found

    def all_labels(self, prefix: str = "") -> dict[str, str]:
        """Take every field that is left, as labels: for tables in which authors write what they like."""
        return self.labels(*tuple(self._values), prefix=prefix)

    def close(self, *known: str) -> None:
        """Note every field that was not taken as unknown; `known` ones are mentioned in the message."""
        for name in self._values:
            listed = f" Known here: {', '.join(sorted(known))}." if known else ""
            self.wrong(
                name,
                "this field is not one of the format's",
                f"Correct its name, take it out, or name it in the option leave_out.{listed}",
            )
        self._values = {}

    def close_with(self, why: str, remedy: str) -> None:
        """Note every field that was not taken as one that cannot be honoured."""
        for name in self._values:
            self.wrong(name, why, remedy)
        self._values = {}

    def end(self) -> None:
        """Raise one `InvalidArgument` for everything that is wrong in this file."""
        self.close()
        if self._problems:
            raise refused(self.file, self._problems)


def _kind(value: object) -> str:
    return "empty" if value is None else f"a {type(value).__name__}"
