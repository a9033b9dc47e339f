"""What a process backend needs before its first box: its folder, the tools, the plan, the zygote.

It finds out whether this machine can fence boxes in by making one that ends at once, and never hides that it cannot.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import os
import platform
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rock_env.backends.process import cgroups
from rock_env.backends.process.box_config import BoxRecord, preloaded, start_up
from rock_env.backends.process.host_view import BOX_PYTHON, box_identity, view
from rock_env.backends.process.launcher import END_S, Launcher
from rock_env.backends.process.layers import ProcessLayers, remove_tree
from rock_env.backends.process.seccomp import MACHINES, assemble
from rock_env.backends.process.state_folder import ProcessStateFolder
from rock_env.backends.process.toolkit import Toolkit
from rock_env.errors import InfraError, ResourceExhausted
from rock_env.spec import SandboxSpec
from rock_env.threads import for_life

__all__ = ["FENCE_REMEDY", "Ready", "begin", "read_lineages", "remove_remains"]

FENCE_REMEDY = "Allow user namespaces (Linux 5.12 or later), run the server as root, or use another backend."
_LOOK_S = 0.002
_MOST_WARM = 8
"""Zygotes with modules imported, at once: each takes some 30 MB, and who asks for boxes chooses the modules."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Ready:
    """What was found and made."""

    state: ProcessStateFolder
    layers: ProcessLayers
    tools: Toolkit
    plan: dict[str, object]
    launcher: Launcher
    fenced: bool
    lineages: dict[str, tuple[str, ...]]
    """The layers that each box on the node stands on."""
    warm: dict[str, Launcher] = field(default_factory=dict)
    """Zygotes with modules imported, by what and how; the one that was used last comes last."""

    async def launcher_for(self, spec: SandboxSpec) -> Launcher:
        """Return the zygote for a spec, started if there is none. Raise `ResourceExhausted` for too many."""
        if not spec.preload or not self.fenced:
            return self.launcher
        modules, left_out = preloaded(spec, self.tools.names)
        settings = {"preload": modules, "start_up": start_up(spec)}
        key = json.dumps(settings, sort_keys=True)
        found = self.warm.pop(key, None)
        if found is not None and not found.lost.done():
            self.warm[key] = found
            return found
        if found is not None:
            await found.close()
        if len(self.warm) >= _MOST_WARM:
            unused = next((other for other, each in self.warm.items() if each.idle), None)
            if unused is None:
                raise ResourceExhausted(
                    f"sandboxes with {_MOST_WARM} different preloads run already; use one of those, or wait"
                )
            await self.warm.pop(unused).close()
        made = self.warm[key] = await Launcher.start({**self.plan, **settings})
        if left_out := left_out + made.missing:
            log.warning(
                "modules to preload are left out, as not installed for sandboxes: %s", ", ".join(left_out)
            )
        return made


async def begin(
    root: Path | None, wanted: str, packages: tuple[str, ...], *, shared: bool, shelf: Path | None = None
) -> Ready:
    """Take the state folder, find out what this machine offers, start the zygote, remove what killed boxes left."""
    state = await for_life(ProcessStateFolder.take, root, shared=shared)
    try:
        tools = await for_life(Toolkit.build, state.tools, packages)
        layers = ProcessLayers(state.layers)
        await for_life(layers.load, clean=state.sole)
        lineages = await for_life(read_lineages, state)
        for orphan in state.in_groups() - {folder.name for folder in state.boxes.iterdir()}:
            await for_life(remove_remains, state, orphan)
        plan = await for_life(_plan, state, tools, shelf)
        launcher = await _choose(plan, wanted)
    except BaseException:
        await for_life(state.release, empty=True)
        raise
    return Ready(state, layers, tools, plan, launcher, bool(plan["fenced"]), lineages)


def read_lineages(state: ProcessStateFolder) -> dict[str, tuple[str, ...]]:
    """Return the layers that each box on the node stands on, also boxes of other servers."""
    records = {folder.name: BoxRecord.read(folder) for folder in state.boxes.iterdir()}
    return {box: record.lineage for box, record in records.items() if record is not None}


async def _choose(plan: dict[str, object], wanted: str) -> Launcher:
    """Start the zygote, with a fence if that works; `plan` then says which it is."""
    problem = "it was not asked for"
    if wanted != "none":
        plan["fenced"], plan["user"] = True, os.geteuid() != 0
        try:
            return await _fenced_launcher(plan)
        except InfraError as error:
            problem = error.message
    if wanted == "namespaces":
        raise InfraError(f"cannot isolate sandboxes: {problem}. {FENCE_REMEDY}")
    plan["fenced"] = plan["user"] = False
    if wanted == "auto":
        log.warning(
            "sandboxes run WITHOUT isolation: %s. Lost: private file system, network and process view, "
            "one /workspace path (turns that print it cannot be replayed). Commands run as user %s and can "
            "do what it can. %s",
            problem,
            getpass.getuser(),
            FENCE_REMEDY,
        )
    return await Launcher.start(plan)


async def _fenced_launcher(plan: Mapping[str, object]) -> Launcher:
    """Start a zygote that fences boxes in, and let it make one that ends at once. Raise `InfraError` with what failed."""
    if platform.machine() not in MACHINES:
        raise InfraError(f"no system call filter for {platform.machine()}; known: {', '.join(MACHINES)}")
    launcher = await Launcher.start(plan)
    try:
        limits_of_probe = {"memory_bytes": 0, "pids": 0, "cpus": 0, "disk_bytes": 1 << 20}
        order = {
            "group": "",
            "folder": "",
            "workdir": "/workspace",
            "identity": box_identity(),
            "limits": limits_of_probe,
            "lowers": [],
            "copied": "",
            "probe": True,
            "cgroups": {},
        }
        with socket.socket(socket.AF_UNIX) as nobody:
            holder = await launcher.bear(order, nobody.fileno())
        said = await holder.explain()
        if said != "the sandbox ended with status 0":
            raise InfraError(said)
    except BaseException:
        await launcher.close()
        raise
    return launcher


def _plan(state: ProcessStateFolder, tools: Toolkit, shelf: Path | None) -> dict[str, object]:
    """Return what the zygote prepares for all boxes."""
    groups: dict[str, str] = {}
    try:
        groups = state.find_groups()
    except OSError as error:
        log.warning(
            "sandboxes have no control groups: %s. Memory and processes are limited one by one, not per sandbox; "
            "processor time is not. Run the server as root, or in a delegated group of its own.",
            error,
        )
    machine = platform.machine()
    return {
        **view(tools, shelf),
        "cgroups": groups,
        "filter": assemble(machine) if machine in MACHINES else b"",
        "fenced": False,
        "layers": str(state.layers),
        "mount_point": str(state.mount_point),
        "preload": [],
        "python": f"{BOX_PYTHON}/bin/python",
        # Not the folders of groups themselves: one may be removed while empty, and made anew by the next box.
        "shared": [str(state.path), *(str(Path(folder).parent) for folder in groups.values())],
        "user": False,
    }


def remove_remains(state: ProcessStateFolder, box: str) -> None:
    """Kill what still runs in a box's control groups (only where nothing fences it in); remove them and its folder."""
    pids = state.group_processes(box)
    cgroups.thaw(pids)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + END_S
    while True:
        try:
            state.remove_groups(box)
        except (
            OSError
        ) as error:  # the last process is still ending, and groups of version 1 tell nobody when it has
            if time.monotonic() > until:
                raise InfraError(
                    f"the control groups of sandbox {box!r} cannot be removed: {error}"
                ) from error
            time.sleep(_LOOK_S)
        else:
            break
    remove_tree(state.boxes / box)
