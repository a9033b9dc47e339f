"""The program that becomes an env-host worker behind a fence: of the host's files it keeps what a plan names, read-only.

Started as `worker_view` says, with one thread and the standard library alone. No file of the host can be written, /proc is
not there, /tmp is the worker's own, and all capabilities are given up. As root or in a user namespace, as a process sandbox;
where neither can be had the worker does not start.
"""

# pathlib would cost more than the fence.
# ruff: noqa: PTH102, PTH103
from __future__ import annotations

import json
import os
import sys

from rock_env.backends.process import fence, kernel

TYPE_CHECKING = False  # importing `typing` costs 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["UNFENCED", "main"]

UNFENCED = 78
"""The exit code of a worker that could not be fenced in."""
_TOP = "/proc"
"""Where the worker's root is put together: a folder of every machine, of which nothing is to be seen."""
_TMP_OPTIONS = "mode=1777,size=64m,nr_inodes=16k"


def _enclose(plan: dict[str, Any]) -> None:
    """Leave the host's files but for those of the plan, and every capability, for ever."""
    if os.geteuid() != 0:
        fence.enter_user_namespace()
    kernel.unshare(kernel.NEWNS)
    kernel.mount("", "/", flags=kernel.REC | kernel.PRIVATE)
    kernel.mount("root", _TOP, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755,size=1m")
    os.mkdir(f"{_TOP}/tmp")
    kernel.mount(
        "tmp", f"{_TOP}/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, _TMP_OPTIONS
    )  # what is shown may lie in it
    fence.lay_system(_TOP, plan)
    fence.lay_devices(_TOP)
    os.makedirs(f"{_TOP}{plan['cwd']}", 0o755, exist_ok=True)
    locked = kernel.RDONLY | kernel.NOSUID | kernel.NODEV
    kernel.mount("", _TOP, flags=kernel.BIND | kernel.REMOUNT | locked)
    os.chdir(_TOP)
    kernel.pivot_root(".", ".")
    kernel.umount(".")
    os.chdir(plan["cwd"])
    kernel.drop_capabilities()


def main(arguments: list[str]) -> None:
    """Take the plan as JSON and a command line; become that command behind the fence."""
    plan, *command = arguments
    del os.environ["ROCK"]
    try:
        _enclose(json.loads(plan))
    except OSError as error:
        sys.stderr.write(
            f"environments cannot be fenced in: {error}. Allow user namespaces (Linux 5.12 or later), run the server as "
            "root, or let it run without a fence (--isolation none).\n"
        )
        raise SystemExit(UNFENCED) from None
    os.execv(command[0], command)
