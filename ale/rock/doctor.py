"""`ale rock doctor`: does this machine host sandboxes well, and do the server's records match what is on its node.

Each check looks at the real thing and answers with a `Finding`; nothing is changed or left behind. The census needs a
token with the scope admin, and counts the server's own node, wherever that is.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ale.rock.boxes import print_json
from ale.terminal import Finding, stdout
from ale.waiting import awaited
from rock_env.client.admin import AdminClient
from rock_env.errors import PermissionDenied, RockError, Unauthenticated
from rock_env.inventory import BackendCensus

__all__ = ["census_findings", "doctor_command", "environment_findings"]

LOW_DISK_BYTES = 5 << 30
LOW_FILES = 4096
"""A sandbox takes a few descriptors of the server's; at 1,024, the usual default, two hundred of them fill it."""
_PROBE_S = 20.0
_NAMED = 5
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor_command(address: str, *, as_json: bool) -> int:
    """Print what was found and return 1 if something failed. Raise `RockError` for a bad address."""
    findings = environment_findings() + awaited(_server_findings(address), f"the ROCK server at {address}")
    failed = sum(finding.status == "fail" for _, finding in findings)
    if as_json:
        print_json([{"check": name, **asdict(finding)} for name, finding in findings])
        return 1 if failed else 0
    out = stdout()
    for name, finding in findings:
        out.print(f"{finding.status:<5}", style=_COLOURS[finding.status], end="")
        out.print(f"{name:<16} {finding.found}")
        if finding.remedy:
            out.print(f"{'':<22}-> {finding.remedy}")
    out.print("\nNothing is wrong." if not failed else f"\n{failed} of {len(findings)} checks failed.")
    return 1 if failed else 0


def environment_findings() -> list[tuple[str, Finding]]:
    """Look at this machine."""
    checks: dict[str, Callable[[], Finding]] = {
        "namespaces": _namespaces,
        "cgroups": _cgroups,
        "docker": _docker,
        "disk": _disk,
        "open files": _files,
    }
    return [(name, check()) for name, check in checks.items()]


async def _server_findings(address: str) -> list[tuple[str, Finding]]:
    async with AdminClient(address) as admin:
        try:
            serving = await admin.serving()
        except RockError as error:
            remedy = "Start one with `ale rock serve`, or name it with --rock or ROCK_ADDRESS."
            return [("server", Finding("fail", " ".join(str(error).split()), remedy))]
        if not serving:
            return [("server", Finding("warn", f"{address} is stopping", "Wait until it is back."))]
        found = [("server", Finding("ok", f"{address} is serving"))]
        try:
            return found + census_findings(await admin.census())
        except (Unauthenticated, PermissionDenied) as error:
            remedy = "Set ROCK_TOKEN to a token with the scope admin (ale rock token create --scope admin)."
            return [*found, ("census", Finding("warn", error.message, remedy))]
        except RockError as error:
            return [*found, ("census", Finding("fail", error.message, "Look at the server's log."))]


def census_findings(counted: Sequence[BackendCensus]) -> list[tuple[str, Finding]]:
    """Say what a census means."""
    return [(f"census {census.backend}", _census(census)) for census in counted]


def _census(census: BackendCensus) -> Finding:
    unknown = [f"not all is known: {census.error}"] if census.error else []
    wrong = {
        "orphaned": [f"{box} ({what})" for box, what in census.orphans.items()],
        "recorded but gone": list(census.ghosts),
        "stray layers": list(census.stray_layers),
        "layers missing": list(census.missing_layers),
    }
    stock = f" and {census.stock} in stock" if census.stock else ""
    count = f"{census.boxes} boxes for {census.records} sandboxes{stock}, {census.layers} layers"
    said = [f"{len(ids)} {what}: {_some(ids)}" for what, ids in wrong.items() if ids]
    if unknown and not said:
        return Finding("warn", unknown[0], "Is its engine running? The server's log says more.")
    if not said:
        return Finding("ok", count)
    remedy = "`ale rock gc` removes orphans and stray layers; a restart of the server records what is gone."
    return Finding("fail", "; ".join([count, *said, *unknown]), remedy)


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def _namespaces() -> Finding:
    tool = shutil.which("unshare")
    if tool is None:
        return Finding(
            "warn", "cannot be looked at: unshare is missing", "Install util-linux, or try a sandbox."
        )
    flags = ["--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork"]
    try:
        done = subprocess.run(
            [tool, *flags, "true"], capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("warn", f"unshare did not answer in {_PROBE_S:.0f} s", "Look for a stuck mount.")
    if done.returncode == 0:
        return Finding("ok", "user, mount, pid, net, ipc and uts namespaces can be made")
    said = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Finding(
        "fail",
        f"process sandboxes cannot be fenced: {said}",
        "Allow user namespaces (sysctl kernel.unprivileged_userns_clone=1; kernel.apparmor_restrict_"
        "unprivileged_userns=0; or the container's seccomp profile), or use docker.",
    )


def _cgroups() -> Finding:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    unified = [fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    separate = [fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup"]
    delegate = "Run the server as a systemd service with Delegate=yes, or as root; else only rlimits hold."
    if separate:
        needed = [Path(path) for path in separate if {"memory", "pids"} & set(Path(path).name.split(","))]
        if len(needed) >= 2 and all(os.access(path, os.W_OK) for path in needed):
            return Finding("ok", "version 1, memory and pids can be limited")
        return Finding("warn", "version 1, memory or pids is missing or not writable", delegate)
    if not unified:
        return Finding("warn", "none is mounted: memory and processes are limited by rlimits alone", delegate)
    root = Path(unified[0])
    own = root / Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().lstrip("/")
    controllers = set((own / "cgroup.controllers").read_text().split())
    missing = {"memory", "pids", "cpu"} - controllers
    if missing or not os.access(own, os.W_OK):
        why = f"{', '.join(sorted(missing))} not delegated" if missing else f"{own} is not writable"
        return Finding("warn", f"version 2, {why}", delegate)
    return Finding("ok", "version 2, memory, pids and cpu can be limited")


def _docker() -> Finding:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    scheme, _, path = host.partition("://")
    without = "only for sandboxes with an image"
    if scheme != "unix":
        return Finding("warn", f"DOCKER_HOST is {host}: {without}", "Use an engine on this machine, unix://.")
    try:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(_PROBE_S)
            engine.connect(path)
            engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            reply = engine.recv(4096).decode(errors="replace")
    except PermissionError:
        return Finding("warn", f"{path} is not yours to use: {without}", "Add your user to the group docker.")
    except (OSError, ValueError) as error:
        return Finding("warn", f"no engine at {path} ({error}): {without}", "Install and start Docker.")
    if " 200 " not in reply.partition("\r\n")[0]:
        return Finding("warn", f"{path} answered {reply[:60]!r}", "Is that a Docker engine?")
    versions = [line for line in reply.splitlines() if line.lower().startswith("api-version:")]
    return Finding("ok", f"an engine answers at {path}" + "".join(f", {line}" for line in versions))


def _disk() -> Finding:
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    inodes = os.statvfs(folder)
    found = f"{free / (1 << 30):.1f} GiB free in {folder}"
    remedy = "Free some, or put sandboxes elsewhere (ale rock serve --state, or TMPDIR)."
    if inodes.f_files and inodes.f_favail < inodes.f_files / 20:
        return Finding("warn", f"{found}, but less than 5 % of its inodes", remedy)
    return Finding("ok", found) if free >= LOW_DISK_BYTES else Finding("warn", found, remedy)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= LOW_FILES:
        return Finding("ok", f"up to {soft}")
    return Finding("warn", f"up to {soft}", f"ulimit -n {min(hard, 65536)} before `ale rock serve`.")
