"""What a verifier's run keeps of the shell that the agent left: the working folder and plain variables, as data.

Used by `grades` for tasks whose tests run in the agent's shell. That shell is asked in the agent's own box, and the verifier
is not run by it: its functions, aliases, options and start-up files are never the verifier's.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from rock_env.grading.guard import has_guard
from rock_env.grading.image import verifier_text
from rock_env.grading.model import Verifier
from rock_env.sandbox import Sandbox
from rock_env.shell import shell_argv

__all__ = ["LeftShell", "ask_shell"]

_WORD = re.compile(rb"[A-Za-z_]\w*")
_PROGRAMS_OWN = re.compile(
    r"(?:BASH|DYLD|GCONV|GIT|GLIBC|JAVA|LD|MALLOC|NODE|PERL|PIP|PYTEST|PYTHON|ROCK|RUBY|SHELL|UV|VIRTUAL|CONDA)\w*"
    r"|_\w*|ENV|HOME|IFS|CDPATH|GLOBIGNORE|PATH|PS\d|TMPDIR|USER|\w*(?:FLAGS|OPTS|OPTIONS)"
)
"""Variables by which interpreters, loaders and tools are steered."""
_ASK_S = 60.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LeftShell:
    """What is kept."""

    folder: str = ""
    """Empty where the shell told none."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those that the verifier names and the image does not set, and `PATH`: the image's folders before the agent's."""


async def ask_shell(box: Sandbox, verifier: Verifier) -> LeftShell:
    """Ask the shell that the agent left in its `box`, and end what that started, but where the agent's processes count."""
    mark = secrets.token_hex(8)
    asks = f"printf '%s\\0%s\\0' {mark} \"$(pwd -P)\"; command env -0"
    said = await box.exec(
        shell_argv(verifier.workdir), stdin=asks.encode(), timeout_s=_ASK_S, max_output_bytes=_MOST_BYTES
    )
    clean = await box.exec(["sh", "-c", "env -0"])
    if verifier.grade_in != "same" and await has_guard(box):
        await box.exec(["sh", "-c", "kill -9 -1"])
    _, found, left = said.stdout.decode(errors="replace").partition(f"{mark}\0")
    if not found:
        return LeftShell()
    folder, _, lines = left.partition("\0")
    own, agent = _variables(clean.stdout.decode(errors="replace")), _variables(lines)
    named = {word.decode() for word in _WORD.findall(verifier_text(verifier))}
    kept = {
        name: value
        for name, value in agent.items()
        if name in named and name not in own and not _PROGRAMS_OWN.fullmatch(name)
    }
    return LeftShell(folder, {**kept, **_search_path(own, agent)})


def _variables(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals and name.isidentifier()}


def _search_path(own: Mapping[str, str], agent: Mapping[str, str]) -> dict[str, str]:
    first = own.get("PATH", "").split(":")
    more = [
        place for place in agent.get("PATH", "").split(":") if place.startswith("/") and place not in first
    ]
    return {"PATH": ":".join([*first, *more])} if "PATH" in own and more else {}
