"""`ale doctor`: can this machine run everything, and what to do where it cannot.

Each check is one function that looks at the real thing and answers with a `Finding`; nothing is installed, changed or
left behind.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from ale.docker import INSTALL, engine_version
from ale.rock.reach import step_round_trip
from ale.terminal import Finding, stdout
from ale.waiting import waiting_for
from rock_env import plugins
from rock_env.backends.process.backend import why_not_fenced
from rock_env.backends.process.setup import FENCE_REMEDY
from rock_env.errors import RockError
from rock_env.platforms import check_hosting
from rock_env.spec import EnvSpec

__all__ = ["CHECKS", "doctor"]

LOW_DISK_BYTES = 2 << 30
"""A long run's checkpoints and trajectories of the tiny engine fit; a Hugging Face model needs more anyway."""


def doctor() -> None:
    """Check that this machine can run everything, and say what to do where it cannot."""
    out = stdout()
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    failed = 0
    for name, check in CHECKS.items():
        with waiting_for(f"the check of {name}"):
            finding = check()
        failed += finding.status == "fail"
        out.print(f"{finding.status:<5}", style=colours[finding.status], end="")
        out.print(f"{name:<12} {finding.found}")
        if finding.remedy:
            out.print(f"{'':<18}-> {finding.remedy}")
    out.print("\nEverything needed works." if not failed else f"\n{failed} of {len(CHECKS)} checks failed.")
    if failed:
        raise typer.Exit(1)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info < (3, 14):
        return Finding("ok", f"{version} at {sys.executable}")
    return Finding(
        "fail", f"{version}, expected 3.11 to 3.13", "Create the environment with a supported Python."
    )


def _system() -> Finding:
    try:
        check_hosting(sys.platform)
    except RockError as error:
        return Finding("fail", f"{platform.system()}, expected Linux", error.message)
    return Finding("ok", f"{platform.system()} {platform.release()}")


def _torch() -> Finding:
    version = _version("torch")
    if version is None:
        return Finding(
            "fail",
            "not installed",
            "pip install 'ale-rl[train]' (make train picks the build for this machine).",
        )
    import torch

    if torch.cuda.is_available():
        return Finding("ok", f"{version}, {torch.cuda.device_count()} CUDA devices")
    if shutil.which("nvidia-smi"):
        return Finding(
            "warn", f"{version}, but CUDA is not usable", "Install torch's CUDA build to use the GPU."
        )
    if torch.version.cuda:
        return Finding(
            "warn", f"{version}: a CUDA build without a GPU", "The CPU build saves gigabytes of disk."
        )
    return Finding("ok", f"{version} (CPU build, no GPU here)")


def _ray() -> Finding:
    version = _version("ray")
    if version is None:
        return Finding("fail", "not installed", "pip install 'ale-rl[train]'")
    shared = Path("/dev/shm")  # where Ray keeps its object store on Linux
    if shared.is_dir() and shutil.disk_usage(shared).free < 1 << 28:
        free = shutil.disk_usage(shared).free >> 20
        return Finding(
            "warn", f"{version}, /dev/shm has {free} MiB free", "Give it 256 MiB (docker run --shm-size)."
        )
    return Finding("ok", version)


def _sandbox() -> Finding:
    problem = asyncio.run(why_not_fenced())
    if not problem:
        return Finding("ok", "process sandboxes have namespaces of their own")
    found = problem.removesuffix(FENCE_REMEDY).rstrip(" .")
    return Finding("warn", f"shell environments run without isolation: {found}", FENCE_REMEDY)


def _docker() -> Finding:
    try:
        return Finding("ok", f"engine {asyncio.run(engine_version())}")
    except RockError as error:
        found = error.message.removesuffix(INSTALL).rstrip(" .")
        return Finding("warn", f"no images, so no environments of your own: {found}", INSTALL)


def _disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    found = f"{free / (1 << 30):.1f} GiB free in {here}"
    if not os.access(here, os.W_OK):
        return Finding(
            "fail", f"{here} is not writable", "Change to a folder of yours; runs/ is created in it."
        )
    if free < LOW_DISK_BYTES:
        return Finding("warn", found, "Free some space: a run writes checkpoints and trajectories.")
    return Finding("ok", found)


def _plugins() -> Finding:
    working, broken = _environments()
    if broken:
        return Finding(
            "fail", f"broken: {'; '.join(broken)}", "Reinstall or remove the package that ships it."
        )
    if not working:
        return Finding("fail", "no environment installed", "Install this package itself: pip install ale-rl")
    return Finding("ok", f"environments: {', '.join(spec.name for spec in working)}")


def _rock() -> Finding:
    """Start an embedded server and play one step over its socket."""
    simulators = [spec.name for spec in _environments()[0] if spec.sandbox is None]
    if not simulators:
        return Finding("warn", "no environment to try a step with", "Install one that needs no sandbox.")
    try:
        seconds = step_round_trip(simulators[0])
    except (RockError, OSError) as error:
        return Finding(
            "fail", f"no step through an embedded server: {error}", "Look at the server's message."
        )
    return Finding("ok", f"a step of {simulators[0]} through an embedded server: {seconds * 1000:.1f} ms")


def _environments() -> tuple[list[EnvSpec], list[str]]:
    """Return the environments that load, and those that do not with their reasons."""
    working, broken = [], []
    for name in plugins.names("ale.envs"):
        try:
            working.append(plugins.load_env(name))
        except RockError as error:
            broken.append(f"{name} ({error})")
    return working, broken


def _gem() -> Finding:
    version = _version("gem-llm")
    if version is None:
        return Finding("ok", "not installed (optional: gem.make('rock:...'))")
    return Finding("ok", f"{version}: import rock_env.gem; gem.make('rock:...')")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


CHECKS: dict[str, Callable[[], Finding]] = {
    "python": _python,
    "system": _system,
    "torch": _torch,
    "ray": _ray,
    "sandbox": _sandbox,
    "docker": _docker,
    "disk": _disk,
    "plugins": _plugins,
    "rock": _rock,
    "gem": _gem,
}
