"""How a process sandbox is fenced in: the bubblewrap command line, and whether this machine can run it.

Used by `backends/process` only. Holds no state and starts nothing but the one-time check.

As root, bubblewrap makes the namespaces with real privileges and the guest then drops to a host uid of its own
(so that file ownership and the process limit are the box's alone) and into a fresh user namespace. As anyone
else, bubblewrap's own user namespace does both.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import rock_env
from rock_env.backends.toolkit import Toolkit

__all__ = ["BOX_PYTHON", "BOX_TOOLS", "Bubblewrap", "box_identity"]

BOX_TOOLS = "/opt/rock"
"""Where the guest and the Python environment lie in the box, read-only."""
BOX_PYTHON = f"{BOX_TOOLS}/python"
BOX_UID = 1000
_SHM_BYTES = 64 << 20
_CHECK_S = 20.0
_FIRST_UID, _UID_SPAN = 2_000_000, 1 << 24
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The programs that fence a box in, as absolute paths."""

    bwrap: str
    setpriv: str
    unshare: str

    @classmethod
    def find(cls) -> Bubblewrap | str:
        """Return the programs, or what is missing in words."""
        needed = ["bwrap", "setpriv", "unshare"] if os.geteuid() == 0 else ["bwrap"]
        missing = [name for name in needed if shutil.which(name) is None]
        if missing:
            return f"{', '.join(missing)} not found on PATH"
        return cls(*(shutil.which(name) or "" for name in ("bwrap", "setpriv", "unshare")))

    async def check(self) -> str:
        """Run `true` in a box; return what went wrong, or an empty string."""
        argv = [*self.fence(tools=None, binds={}, workdir="/", identity=box_identity()), "/usr/bin/true"]
        process = await asyncio.create_subprocess_exec(
            *argv,
            env={},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_CHECK_S):
                _, stderr = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return f"bubblewrap did not finish within {_CHECK_S:g} s"
        if process.returncode == 0:
            return ""
        return (
            stderr.decode(errors="replace").strip() or f"{self.bwrap} ended with status {process.returncode}"
        )

    def fence(
        self, *, tools: Toolkit | None, binds: dict[Path, str], workdir: str, identity: int
    ) -> list[str]:
        """Return the command line up to the program to run. `binds` are the box's own folders (host: inside)."""
        root = os.geteuid() == 0
        argv = [self.bwrap, *_namespaces(root=root), *_parents(binds.values()), *_system()]
        if tools is not None:
            argv += _tools(tools)
        for host, inside in binds.items():
            argv += ["--bind", str(host), inside]
        argv += ["--remount-ro", "/", "--chdir", workdir]
        if not root:
            return [*argv, "--"]
        drop = [f"--reuid={identity}", f"--regid={identity}", "--clear-groups", "--inh-caps=-all"]
        own = ["--user", f"--map-user={BOX_UID}", f"--map-group={BOX_UID}"]
        return [*argv, "--", self.setpriv, *drop, "--", self.unshare, *own, "--"]


def box_identity() -> int:
    """Return the host uid and gid for one box: random and unprivileged for root, else our own."""
    if os.geteuid() != 0:
        return os.geteuid()
    mapped = min(_highest_id("uid"), _highest_id("gid"))
    first = min(_FIRST_UID, mapped // 2)
    return first + secrets.randbelow(max(1, min(_UID_SPAN, mapped - first)))


def _highest_id(kind: str) -> int:
    lines = Path(f"/proc/self/{kind}_map").read_text().splitlines()
    return max(int(start) + int(count) for start, _, count in map(str.split, lines))


def _namespaces(*, root: bool) -> list[str]:
    argv = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    argv += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    if root:
        return [*argv, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*argv, "--unshare-user", "--uid", str(BOX_UID), "--gid", str(BOX_UID)]


def _parents(inside: Iterable[str]) -> list[str]:
    """Return options that make the folders above what is bound; bubblewrap's own are closed to the box's user."""
    targets = [Path(path) for path in (*inside, "/etc/passwd", BOX_TOOLS, sys.base_prefix)]
    folders = {parent for target in targets for parent in target.parents}
    wanted = sorted(folder for folder in folders if folder != Path("/") and not folder.is_relative_to("/usr"))
    return [word for folder in wanted for word in ("--perms", "0755", "--dir", str(folder))]


def _system() -> list[str]:
    """Return the read-only system: /usr, this interpreter, the few files of /etc that programs need to start."""
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/usr"):
        argv += ["--ro-bind", str(base), str(base)]
    for folder in _hidden((Path("/usr"), base)):
        argv += ["--tmpfs", str(folder)]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    return [*argv, "--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]


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


def _tools(tools: Toolkit) -> list[str]:
    argv = ["--ro-bind", str(tools.folder), BOX_TOOLS]
    for name in ("passwd", "group", "hosts"):
        argv += ["--ro-bind", str(tools.folder / "etc" / name), f"/etc/{name}"]
    for host, inside in tools.packages:
        argv += ["--ro-bind", str(host), f"{BOX_TOOLS}/{inside}"]
    return argv
