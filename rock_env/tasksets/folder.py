"""What the formats made of folders have in common: files put into a box, and what a Dockerfile asks for beside its image.

Used by the readers of Harbor and Terminal-Bench folders. Follows no link out of the task's folder.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from rock_env.foreign.folder import place_inside
from rock_env.grading.model import TaskFile
from rock_env.spec import NetworkPolicy
from rock_env.tasksets.fields import content_of, text_of

__all__ = ["PUBLIC", "ROOT", "ImageWords", "files_of", "image_words", "is_idle", "resolved", "run_script"]

PUBLIC = NetworkPolicy(enabled=True, allow=("0.0.0.0/0",))
"""The whole public internet, by address."""
ROOT = frozenset({"root", "0", ""})
"""Names of the user that an image has without USER."""
_SKIPPED = {"__pycache__", ".DS_Store"}
_IDLE = (["tail", "-f", "/dev/null"], ["sleep", "infinity"], ["bash"], ["sh"], ["/bin/bash"], ["/bin/sh"])
_INITS = {
    "tini",
    "/usr/bin/tini",
    "/sbin/tini",
    "dumb-init",
    "/usr/bin/dumb-init",
    "--",
    "env",
    "/usr/bin/env",
}
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::-([^}]*))?\}|([A-Za-z_]\w*))", re.ASCII)


def files_of(folder: Path, into: str, root: Path) -> tuple[TaskFile, ...]:
    """Return the files below a folder as they are put below `into`; scripts keep their right to be run.

    Raise `InvalidArgument` for a link that leads out of the task's folder, `root`.
    """
    found = []
    place_inside(root, folder)
    for path in sorted(folder.rglob("*")):
        if _SKIPPED.intersection(path.relative_to(folder).parts) or path.is_dir():
            continue
        content = content_of(path, root)
        mode = 0o755 if path.stat().st_mode & 0o111 or path.suffix == ".sh" else 0o644
        found.append(TaskFile(f"{into}/{path.relative_to(folder).as_posix()}", content, mode))
    return tuple(found)


def run_script(path: str, content: bytes) -> tuple[str, ...]:
    """Return the command that runs a script as its first line says; bash runs one that says nothing."""
    return (path,) if content.startswith(b"#!") else ("bash", path)


def resolved(text: str, values: dict[str, str]) -> tuple[str, list[str]]:
    """Return a text with `${NAME}`, `${NAME:-default}` and `$NAME` filled in, and the names that nothing says."""
    missing: list[str] = []

    def one(match: re.Match[str]) -> str:
        name, default = match[1] or match[3], match[2]
        if name in values:
            return values[name]
        if default is None:
            missing.append(name)
        return default or ""

    return _VARIABLE.sub(one, text), missing


@dataclass(frozen=True, slots=True)
class ImageWords:
    """What the last stage of a Dockerfile says beside its files."""

    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def image_words(dockerfile: Path, root: Path) -> ImageWords:
    """Read a Dockerfile's last USER, ENTRYPOINT and CMD. Raise `InvalidArgument` if `root` holds no such file."""
    user, entrypoint, command = "", "", ""
    text = re.sub(r"\\[ \t]*\n", " ", text_of(dockerfile, root))
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        match word.upper():
            case "FROM":
                user, entrypoint, command = "", "", ""
            case "USER":
                user = rest.strip()
            case "ENTRYPOINT":
                entrypoint, command = rest, ""
            case "CMD":
                command = rest
    return ImageWords(user, _words(entrypoint), _words(command))


def _words(said: str) -> tuple[str, ...]:
    said = said.strip()
    if said.startswith("["):
        try:
            return tuple(str(word) for word in json.loads(said))
        except (ValueError, RecursionError):
            pass  # Docker takes what is no JSON for a shell's words, too
    return ("sh", "-c", said) if said else ()


def is_idle(argv: tuple[str, ...]) -> bool:
    """Return whether a container's command only keeps it alive: here a box lives without one."""
    words = list(argv)
    while words and words[0] in _INITS:
        words = words[1:]
    if len(words) == 3 and words[0].rsplit("/", 1)[-1] in ("sh", "bash") and words[1] in ("-c", "-lc"):
        try:
            inner = shlex.split(words[2].removeprefix("exec "))
        except ValueError:
            return False
        return not inner or inner in _IDLE or is_idle(tuple(inner))
    return not words or words in _IDLE
