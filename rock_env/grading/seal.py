"""Whether what judges a run is the same after it as before: the verifier's files, programs it starts, tools it loads.

Used by `verifier` around the run of a test script that gives the reward itself. The work runs beside such a script, as the
same user; what it changes of these shows by the system's own times (`st_ctime`) and numbers of files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rock_env.errors import InfraError
from rock_env.grading.image import HELD_FOLDERS, verifier_text
from rock_env.grading.model import Verifier
from rock_env.sandbox import Sandbox

__all__ = ["broken_seal", "installs", "seal"]

_SCRIPT = """
kept=$1; shift
for word in "$@"; do command -v "$word"; done 2>/dev/null | grep '^/' | sort -u |
  xargs -r stat -L -c '%n %i %z %s' 2>/dev/null
printf '%s\\n' /etc/ld.so.preload $kept | while read -r path; do
  if [ -d "$path" ]; then
    find "$path" -name '*-packages' -prune -o -type f ! -path '*/__pycache__/*' -exec stat -c '%n %i %z %s' {} +
  elif [ -e "$path" ]; then stat -c '%n %i %z %s' "$path"; fi
done 2>/dev/null
exit 0
"""
_INSTALLS = re.compile(
    rb"\b(?:apt|apt-get|apk|yum|dnf|pip3?|uvx?|npm|npx|yarn|conda|mamba|curl|wget|git\s+clone)\b"
)
_REWRITES = re.compile(rb"\b(?:chmod|chown|sed\s+-i|patch|git\s+apply|truncate|touch)\b")
_LOADED = re.compile(
    r"(?:.*/)?(?:conftest\.py|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml|[^/]+\.(?:py|pth|so))"
)
_SEAL_S = 60.0
_MOST_BYTES = 16 << 20


def installs(text: bytes) -> bool:
    """Return whether a verifier of this text may install packages and programs."""
    return _INSTALLS.search(text) is not None


async def seal(
    box: Sandbox, verifier: Verifier, words: Sequence[str], paths: Sequence[str], started: Sequence[str]
) -> dict[str, str]:
    """Return each file that judges, with what a change of it changes. Raise `InfraError` if the box fails.

    `words` are those of the verifier's scripts, `paths` where the image's tools lie, `started` files of the guard's. Where
    the scripts install packages, programs and tools change for a good reason; where they change files of theirs, these do.
    """
    text = verifier_text(verifier)
    folders = [*started, *([] if _REWRITES.search(text) else HELD_FOLDERS[:1])]
    kept = folders if installs(text) else [*folders, *paths]
    run = [] if installs(text) else words
    said = await box.exec(
        ["sh", "-c", _SCRIPT, "sh", "\n".join(kept), *run],
        timeout_s=_SEAL_S,
        max_output_bytes=_MOST_BYTES,
    )
    if said.infra_error:
        raise InfraError(f"the sandbox failed while its verifier was looked at: {said.infra_error}")
    lines = (line.partition(" ") for line in said.stdout.decode(errors="replace").splitlines())
    return {path: rest for path, _, rest in lines}


def broken_seal(before: Mapping[str, str], after: Mapping[str, str], verifier: Verifier) -> str:
    """Return which file that judges was changed meanwhile, or an empty text; pure."""
    for path, was in before.items():
        if after.get(path) != was:
            return path
    text = verifier_text(verifier).decode(errors="replace")
    for path in after:
        name = path.rpartition("/")[2]
        if path not in before and _LOADED.fullmatch(path) and name not in text:
            return path
    return "/etc/ld.so.preload" if "/etc/ld.so.preload" in {*after} - {*before} else ""
