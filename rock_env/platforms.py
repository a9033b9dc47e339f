"""Which operating systems this runs on, and what to do on the others.

Linux runs everything. Elsewhere on POSIX (macOS) nothing can host: sandboxes need Linux's namespaces and process handles.
Windows has not even the file locks that a client needs. A platform is named as `sys.platform` names it.
"""

from __future__ import annotations

from rock_env.errors import FailedPrecondition

__all__ = ["check_hosting", "check_import"]

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Cygwin"}


def check_import(platform: str) -> None:
    """Raise `ImportError` where no part of this works."""
    if platform in ("win32", "cygwin"):
        raise ImportError(
            f"ALE does not run on {_NAMES[platform]}: got the platform {platform!r}, expected 'linux'. Install it in "
            "WSL 2 (`wsl --install`), in a Linux container (.devcontainer), or on a Linux machine."
        )


def check_hosting(platform: str) -> None:
    """Raise `FailedPrecondition` where no ROCK server runs, and so no training, which starts one."""
    if platform == "linux":
        return
    raise FailedPrecondition(
        f"no ROCK server runs on {_NAMES.get(platform, platform)}, and no training, which starts one: got the platform "
        f"{platform!r}, expected 'linux', whose namespaces fence sandboxes. A client works here: run `ale rock serve` "
        "on a Linux machine and give its address (--rock HOST:PORT, rock_env.connect). For the rest use a Linux container "
        "(.devcontainer) or machine."
    )
