"""Rows of an instance file: JSON, JSON lines or parquet. Used by the SWE-bench reader and by format detection."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import check_regular, parsed
from rock_env.grading.model import Unread
from rock_env.tasksets.fields import text_of

__all__ = ["SUFFIXES", "read_rows"]

SUFFIXES = (".json", ".jsonl", ".parquet")


def read_rows(file: Path) -> list[dict[str, Any] | Unread]:
    """Return the rows of a file, each by itself. Raise `InvalidArgument` for a file of which no row can be told."""
    match file.suffix:
        case ".parquet":
            rows = _parquet(file)
        case ".jsonl":
            lines = text_of(file, file.resolve().parent).split(
                "\n"
            )  # JSON may hold what `splitlines` takes for the end of a line
            rows = [_line(file, n, line) for n, line in enumerate(lines, 1) if line.strip()]
        case ".json":
            found = _json(file, text_of(file, file.resolve().parent), "")
            rows = found if isinstance(found, list) else [found]
        case other:
            raise InvalidArgument(f"{file} ends in {other!r}; instance files end in {', '.join(SUFFIXES)}.")
    if not rows:
        raise InvalidArgument(f"{file} has no rows.")
    return [
        row if isinstance(row, dict | Unread) else _no_object(file, n, row) for n, row in enumerate(rows, 1)
    ]


def _no_object(file: Path, number: int, row: object) -> Unread:
    why = f"{file} row {number} is a {type(row).__name__}, expected an object of fields."
    return Unread(f"{file.name} row {number}", why)


def _line(file: Path, number: int, line: str) -> Any:
    try:
        return _json(file, line, f" line {number}")
    except InvalidArgument as error:
        return Unread(f"{file.name} line {number}", error.message)


def _json(file: Path, text: str, place: str) -> Any:
    return parsed(json.loads, text, f"{file}{place} is no JSON")


def _parquet(file: Path) -> list[Any]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"reading {file.name} needs the package pyarrow: pip install pyarrow, or save the rows as .jsonl."
        ) from error
    try:
        check_regular(file.stat().st_mode, file)
        return list(parquet.read_table(file).to_pylist())
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these kinds
        raise InvalidArgument(f"{file} is no parquet file: {error}.") from error
