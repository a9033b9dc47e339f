"""What a clean box of an image tells of itself before any work is in it: which modules and tools are the image's own.

Asked by `grades` for `FreshBoxes.take_over`, so that what may not be replaced is known from the image and the verifier, and
is not a list of ours. It runs the image's own interpreters, in a box in which nothing of an agent is.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rock_env.guest_host
from rock_env.grading.model import Verifier
from rock_env.sandbox import Sandbox

__all__ = ["HELD_FOLDERS", "OWN_FOLDERS", "ImageAnswers", "ask_image", "imports_of", "verifier_text"]

OWN_FOLDERS = ("/tests", "/logs/verifier")
"""Folders that task formats keep for the verifier: emptied before it runs, whatever the agent put there."""
HELD_FOLDERS = (*OWN_FOLDERS, "/solution", "/oracle")
"""These, and those of the solution: nothing of the work leads there."""
_PROBE = Path(rock_env.guest_host.__file__).with_name("image_probe.py")
_EACH_PYTHON = """
seen=
for python in "$(command -v python3)" "$(command -v python)" /usr/bin/python3 /usr/bin/python3.[0-9] \
    /usr/bin/python3.[0-9][0-9] /usr/local/bin/python3 /usr/local/bin/python3.[0-9] /usr/local/bin/python3.[0-9][0-9] \
    /opt/*/bin/python3 /opt/*/envs/*/bin/python3 /*env*/bin/python3 "$PWD"/*env/bin/python3 "$PWD"/.*env/bin/python3 \
    /root/.*env/bin/python3 /root/.pyenv/versions/*/bin/python3 /root/.local/share/uv/*/*/bin/python3 \
    /root/*conda*/bin/python3 /root/*conda*/envs/*/bin/python3 $3; do
  [ -x "$python" ] || continue
  real="${python%/*}//$(readlink -f "$python")"
  case "$seen " in *" $real "*) continue ;; esac
  seen="$seen $real"
  "$python" -I -c "$1" "$2" 2>/dev/null
done
exit 0
"""
_IMPORT = re.compile(rb"^[ \t>.]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_PYTHON = re.compile(rb"(?<![\w./-])(/[\w./-]*/bin/)(?:(python[\d.]*)|activate\b)")
_FOLDER = re.compile(rb"(?<![\w.])/[\w.+-]+(?:/[\w.+-]+)*")
_STARTED = re.compile(rb"[A-Za-z_][\w.-]*")
_MOST = 5000
_ASK_S = 60.0


@dataclass(frozen=True, slots=True)
class ImageAnswers:
    """What the image said."""

    told: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For `FreshBoxes.take_over`."""
    own: Sequence[str] = ()
    """Modules of the work as the image has it."""
    asked: Sequence[str] = ()
    """Modules of the library's names that the task speaks of as files."""
    paths: Sequence[str] = ()
    """The standard library's folder and the tools', in which what judges lies."""
    sites: Sequence[str] = ()
    """Folders in which a `.pth` file is the first code of the image's Pythons."""
    fence: Mapping[str, str] = field(default_factory=dict)
    """What `ask_clean` returned; without it nobody sees whether the work looks at its tests."""


def verifier_text(verifier: Verifier) -> bytes:
    """Return all that a verifier says: its command and its files."""
    return b"\n".join([" ".join(verifier.command).encode(), *(file.content for file in verifier.files)])


def imports_of(verifier: Verifier) -> list[str]:
    """Return the modules that a verifier's files import, by the first part of their names."""
    found = set()
    for one, several in _IMPORT.findall(verifier_text(verifier)):
        names = [one] if one else [part.split()[0] for part in several.split(b",") if part.split()]
        found |= {name.decode(errors="replace").partition(".")[0] for name in names}
    return sorted(found)[:_MOST]


async def ask_image(box: Sandbox, verifier: Verifier, *, workdir: str, asked: Sequence[str]) -> ImageAnswers:
    """Ask each Python of a clean box; an image without one says nothing of modules. Raise `InfraError` if the box fails."""
    text = verifier_text(verifier)
    scripts = [file.content for file in verifier.files if not file.path.endswith((".py", ".json", ".txt"))]
    started = b"\n".join([" ".join(verifier.command).encode(), *scripts])
    told = {
        "imports": imports_of(verifier),
        "starts": _words(_STARTED, started),
        "folders": [".", "src", "lib"],
        "asked": list(asked),
    }
    named = {
        (folder + (name or b"python3")).decode(errors="replace") for folder, name in _PYTHON.findall(text)
    }
    pythons = " ".join(sorted(named)[:8])
    said = await box.exec(
        ["sh", "-c", _EACH_PYTHON, "sh", _PROBE.read_text(), json.dumps(told), pythons],
        cwd=workdir or None,
        timeout_s=_ASK_S,
        max_output_bytes=8 << 20,
    )
    answers = [json.loads(line) for line in said.stdout.splitlines() if line.startswith(b"{")]
    merged = {
        name: sorted({each for one in answers for each in one[name]})
        for name in ("modules", "tools", "own", "paths", "sites")
    }
    folders = {path.strip("/") for path in _words(_FOLDER, text)}
    searched = {path.strip("/") for one in answers for path in one["places"]}
    places = folders | {posixpath.dirname(path) for path in folders} | searched
    image = {
        "places": sorted(places - {""})[:_MOST],
        "named": _words(_STARTED, text),
        "held": _held(verifier, workdir),
    }
    if answers:
        image |= {"modules": merged["modules"], "tools": merged["tools"]}
    files = [word.removesuffix(".py") for word in asked if word.endswith(".py")]
    return ImageAnswers(
        image, merged["own"], sorted({*files} & sys.stdlib_module_names), merged["paths"], merged["sites"]
    )


def _words(kind: re.Pattern[bytes], text: bytes) -> list[str]:
    return sorted({word.decode(errors="replace") for word in kind.findall(text)})[:_MOST]


def _held(verifier: Verifier, workdir: str) -> list[str]:
    """Return the folders of the verifier's files that are not the work's, without the first slash."""
    own = f"{workdir.strip('/')}/"
    folders = {
        posixpath.dirname(file.path).strip("/") for file in verifier.files if file.path.startswith("/")
    }
    apart = {
        folder
        for folder in folders
        if folder and not f"{folder}/".startswith(own) and "/" in f"{folder}/"[:-1]
    }
    return sorted({*(folder.strip("/") for folder in HELD_FOLDERS), *apart})
