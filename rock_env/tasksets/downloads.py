"""Finds the first command of a task's test scripts that fetches something from a network. Used by the readers of folders.

It reads scripts and runs nothing: a command that is built from variables, or stands in a Python file, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rock_env.grading.model import TaskFile

__all__ = ["first_download"]

_BEGIN = r"(?:^|[;&|({]|\b(?:sudo|then|do|else|if|exec|time|env)\b|!)\s*(?:[A-Z_]+=\S*\s+)*"
_INSTALLS = (
    r"(?:apt|apt-get)\s+(?:-\S+\s+)*(?:update|install)",
    r"(?:apk\s+add|(?:yum|dnf|conda|mamba|gem|brew)\s+install)",
    r"(?:pip3?|python3?\s+-m\s+pip|uv\s+pip)\s+install\s+(?!.*--no-index)",
    r"(?:uvx|npx)\b",
    r"uv\s+(?:add|run|sync|tool)\b",
    r"(?:npm|yarn|pnpm)\s+(?:install|ci|i|add)\b",
    r"git\s+(?:clone|fetch|pull)\s+.*(?:https?|git|ssh)://",
    r"(?:go\s+(?:get|install|mod\s+download)|cargo\s+install)\b",
)
_ADDRESS = r"(?:curl|wget)\s.*?(?:https?|ftp)://(?!localhost|127\.|0\.0\.0\.0|\[::1\]|\$)\S"
_DOWNLOAD = re.compile(rf"{_BEGIN}((?:{'|'.join((*_INSTALLS, _ADDRESS))})\S*)")
_MOST_CHARS = 60


def first_download(files: Iterable[TaskFile]) -> str:
    """Return the first such command and its place (`/tests/test.sh line 3: apt-get update`), or an empty text."""
    for file in files:
        if not file.path.endswith(".sh"):
            continue
        for number, line in enumerate(file.content.decode(errors="replace").splitlines(), 1):
            if not line.lstrip().startswith("#") and (match := _DOWNLOAD.search(line)):
                return f"{file.path} line {number}: {match[1][:_MOST_CHARS]}"
    return ""
