"""Which parts of this machine every process sandbox sees, and at which of its users a box runs.

Asked by `backends/process/backend` once per backend, and for the system's part by `env_workers/worker_view`. It looks and
decides; the fence carries it out.
"""

from __future__ import annotations

import os
import secrets
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import rock_env
from rock_env.backends.process.toolkit import Toolkit

__all__ = ["BOX_PYTHON", "BOX_SHELF", "BOX_TOOLS", "box_identity", "system", "view"]

BOX_TOOLS = "/opt/rock"
"""Where the Python environment of a box lies, read-only."""
BOX_PYTHON = f"{BOX_TOOLS}/python"
BOX_SHELF = "/opt/shelf"
"""Where the operator's own folder for all boxes lies, read-only, if there is one."""
_FIRST_UID, _UID_SPAN = 2_000_000, 1 << 24
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")


def view(tools: Toolkit, shelf: Path | None = None) -> dict[str, list[tuple[str, str]] | list[str]]:
    """Return what `fence.prepare` needs: `links` (target, inside), `binds` (host, inside) and `hidden` folders."""
    links, binds = system()
    binds.append((str(tools.folder), BOX_TOOLS))
    binds += [(str(tools.folder / "etc" / name), f"/etc/{name}") for name in ("passwd", "group", "hosts")]
    binds += [(str(host), f"{BOX_TOOLS}/{inside}") for host, inside in tools.packages]
    if shelf is not None:
        binds.append((str(shelf), BOX_SHELF))
    return {
        "links": links,
        "binds": binds,
        "hidden": [str(folder) for folder in _hidden((Path("/usr"), Path(sys.base_prefix)))],
    }


def system() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return what a Python program needs of this machine, as `links` (target, inside) and `binds` (host, inside)."""
    base = Path(sys.base_prefix)
    links: list[tuple[str, str]] = []
    binds = [("/usr", "/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            links.append((str(path.readlink()), str(path)))
        elif path.is_dir():
            binds.append((str(path), str(path)))
    binds += [(f"/etc/{name}", f"/etc/{name}") for name in _ETC if Path("/etc", name).exists()]
    if not base.is_relative_to("/usr"):
        binds.append((str(base), str(base)))
    return links, binds


def _hidden(shown: Iterable[Path]) -> list[Path]:
    """Return the folders under `shown` to cover up: packages may hold environments with their hidden tests."""
    prefixes = [sys.prefix, sys.base_prefix]
    candidates = {Path(path) for path in site.getsitepackages(prefixes)}
    candidates |= {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    candidates.add(Path(rock_env.__file__).resolve().parents[1])
    inside = {path for path in candidates if path.is_dir() and any(path.is_relative_to(top) for top in shown)}
    return sorted(
        path for path in inside if not any(path != other and path.is_relative_to(other) for other in inside)
    )


def box_identity() -> int:
    """Return the uid and gid for one box: random and unprivileged for root; else 0, our own one as the zygote sees it."""
    if os.geteuid() != 0:
        return 0
    mapped = min(_highest_id("uid"), _highest_id("gid"))
    first = min(_FIRST_UID, mapped // 2)
    return first + secrets.randbelow(max(1, min(_UID_SPAN, mapped - first)))


def _highest_id(kind: str) -> int:
    lines = Path(f"/proc/self/{kind}_map").read_text().splitlines()
    return max(int(start) + int(count) for start, _, count in map(str.split, lines))
