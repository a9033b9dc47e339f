"""What the fence of a test run (`guest_host.guard.work_fence`) is told: which code is the work's, which the verifier's.

A clean box is asked before the work is put into it. What changed in it since is the work's or the verifier's.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from rock_env.grading.image import HELD_FOLDERS, verifier_text
from rock_env.grading.model import Verifier
from rock_env.grading.seal import installs
from rock_env.sandbox import Sandbox

__all__ = ["ask_clean", "fence_variables"]

_ASK = r"""
date +%s
[ "$PWD" = / ] || grep -rlsE --include='*.py' \
  '_getframe|currentframe|inspect\.stack|_frame\b|f_back|settrace|setprofile|gc\.get_|__code__|ctypes|addaudithook' . | sort
exit 0
"""
_ASK_S = 60.0
_PATCHED = re.compile(rb"^\+\+\+ b/([^\t\r\n]+)", re.MULTILINE)
_MOST_BYTES = 60_000
"""Of paths in one variable: the kernel takes 128 KiB."""


async def ask_clean(box: Sandbox, workdir: str) -> Mapping[str, str]:
    """Return the time of a clean box, and which of its project's files look at frames, as variables of the fence.

    Raise `InfraError` if the box fails. A box without `date` or `grep` tells less: without a time there is no fence.
    """
    said = await box.exec(["sh", "-c", _ASK], cwd=workdir or None, timeout_s=_ASK_S, max_output_bytes=4 << 20)
    now, _, found = said.stdout.decode(errors="replace").partition("\n")
    if not now.isdigit():
        return {}
    does = [posixpath.normpath(posixpath.join(workdir, line)) for line in found.splitlines()]
    return {"ROCK_GUARD_SINCE": now, "ROCK_GUARD_DOES": _joined(does)}


def fence_variables(
    verifier: Verifier, clean: Mapping[str, str], *, workdir: str, now: str
) -> dict[str, str]:
    """Return the variables of a run that begins `now`, for what `ask_clean` returned; none without it."""
    if not clean:
        return {}
    text = verifier_text(verifier)
    patched = [name.decode(errors="replace") for name in _PATCHED.findall(text)]
    files = [file.path for file in verifier.files if file.path.endswith(".py")]
    tests = [posixpath.normpath(posixpath.join(workdir, name)) for name in (*files, *patched)]
    began = {"ROCK_GUARD_BEGAN": now} if installs(text) and now.isdigit() else {}
    return {**clean, **began, "ROCK_GUARD_HELD": ":".join(HELD_FOLDERS), "ROCK_GUARD_TESTS": _joined(tests)}


def _joined(paths: Sequence[str]) -> str:
    """Return the paths as one text, as many of them as fit."""
    kept, size = [], 0
    for path in paths:
        size += len(path.encode()) + 1
        if size > _MOST_BYTES or ":" in path or "\0" in path:
            continue
        kept.append(path)
    return ":".join(kept)
