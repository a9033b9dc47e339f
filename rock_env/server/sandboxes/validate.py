"""The conformance gate of an image: named checks on real sandboxes started from it, each with its evidence.

Its sandboxes are asked of the core like anyone's: admitted, recorded, and gone at its end. The gate of a whole
environment (oracle, seeds) brings its own checks in the same form and runs them behind these.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rock_env.errors import RockError, Unimplemented, plugin_call
from rock_env.sandbox import ExecResult, Sandbox
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec

__all__ = ["CHECKS", "Check", "CheckResult", "CheckVerdict", "CheckedBoxes", "Probe", "validate"]

_CHECK_S = 120.0
_STARTS = 3
_SLOW_S = 10.0
"""A box that takes longer to start would make every Reset wait."""
_MARK = "rock-validate"
_FOR = "rock/validate"
"""What List shows such a sandbox to be for."""
_LEASE_S = 900.0


class CheckVerdict(StrEnum):
    """How a check ended; the names are those of the wire."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"
    """It could not be looked at; the evidence says why."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    name: str
    verdict: CheckVerdict
    evidence: str
    duration_s: float = 0.0


class CheckedBoxes:
    """Makes and ends the sandboxes of one validation, in the name of the present tenant."""

    def __init__(self, core: SandboxCore, spec: SandboxSpec, *, wait_s: float | None = None) -> None:
        self._core = core
        self._tree = CheckpointTree(core)
        self._wish = SandboxWish(spec, environment=_FOR, lease_s=_LEASE_S, ephemeral=True, wait_s=wait_s)

    async def start(self, *, snapshot_id: str = "") -> str:
        """Start a sandbox and return its id."""
        wish = self._wish
        if snapshot_id:
            snapshot = await self._tree.ready(snapshot_id)
            wish = replace(wish, spec=snapshot.spec, snapshot_id=snapshot_id, backend=snapshot.backend)
        return (await self._core.create(wish)).id

    def using(self, sandbox_id: str) -> AbstractAsyncContextManager[Sandbox]:
        """Lend a sandbox's box."""
        return self._core.using(sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        """End a sandbox."""
        await self._core.delete(sandbox_id)

    async def freeze(self, sandbox_id: str) -> str:
        """Snapshot a sandbox and return the snapshot's id."""
        return (await self._tree.snapshot(sandbox_id, TreeWish(ephemeral=True))).id

    async def drop(self, snapshot_id: str) -> None:
        """Delete a snapshot."""
        await self._tree.delete(snapshot_id)


@dataclass(slots=True)
class Probe:
    """What a check has to go by: a running sandbox of the spec, and the means to have more of them."""

    boxes: CheckedBoxes
    spec: SandboxSpec
    sandbox_id: str
    box: Sandbox
    start_s: list[float] = field(default_factory=list)

    async def sh(self, script: str, *, timeout_s: float = 30.0) -> ExecResult:
        """Run a script in the image's own shell."""
        return await self.box.exec(["/bin/sh", "-c", script], timeout_s=timeout_s)


class _Failed(Exception):
    """A check did not hold; the text is the evidence."""


Check = Callable[[Probe], Awaitable[str]]
"""Returns its evidence, or raises `_Failed`."""


def need(condition: bool, evidence: str) -> str:
    """Return the evidence of a check that holds; end the check otherwise."""
    if not condition:
        raise _Failed(evidence)
    return evidence


async def _shell(probe: Probe) -> str:
    result = await probe.box.exec(["/bin/sh", "-c", "exit 0"])
    return need(result.ok, f"/bin/sh -c 'exit 0' {_said(result)}")


async def _user(probe: Probe) -> str:
    # The first of the four is the real user's id; `id` may be absent from the image.
    result = await probe.sh(
        'while read -r key real rest; do case $key in Uid:) echo "$real";; esac; done </proc/self/status'
    )
    return need(result.ok and result.stdout.strip().isdigit(), f"uid {_text(result.stdout) or _said(result)}")


async def _workdir(probe: Probe) -> str:
    result = await probe.sh(f'pwd && echo x >{_MARK} && [ -s {_MARK} ] && echo "" >{_MARK}')
    return need(result.ok, _text(result.stdout) or _said(result))


async def _exec(probe: Probe) -> str:
    mark = secrets.token_hex(8)
    result = await probe.box.exec(
        ["/bin/sh", "-c", 'read -r line; echo "$line-$A"; echo err >&2'],
        stdin=f"{mark}\n".encode(),
        env={"A": "b"},
    )
    good = result.ok and result.stdout == f"{mark}-b\n".encode() and result.stderr == b"err\n"
    return need(good, "stdin, stdout, stderr and variables arrive" if good else _said(result))


async def _exit_codes(probe: Probe) -> str:
    failed, killed = await probe.sh("exit 3"), await probe.sh("kill -9 $$")
    late = await probe.sh("while :; do :; done", timeout_s=0.5)
    missing = await probe.box.exec(["/no/such/program"])
    found = (failed.exit_code, killed.signal, late.timed_out, missing.exit_code)
    return need(found == (3, 9, True, 127), "exit {}, signal {}, timed out {}, not found {}".format(*found))


async def _files(probe: Probe) -> str:
    content = os.urandom(100_000)
    await probe.box.write_file(f"{_MARK}-file", content, mode=0o755)
    back = await probe.box.read_file(f"{_MARK}-file")
    seen = await probe.sh(f"[ -x {_MARK}-file ] && [ -s {_MARK}-file ]")
    return need(
        back == content and seen.ok,
        f"{len(content)} bytes written, {len(back)} read back, mode kept: {seen.ok}",
    )


_ROUTES = """
{ read -r heads; while read -r name rest; do echo "$name"; done; } </proc/net/route
[ ! -r /proc/net/ipv6_route ] || while read -r line; do echo "${line##* }"; done </proc/net/ipv6_route
"""
"""Names the interface of each route, in nothing but a shell."""


async def _network(probe: Probe) -> str:
    if probe.spec.network.enabled:
        raise Unimplemented("the spec asks for a network")
    result = await probe.sh(_ROUTES)
    ways = sorted(set(_text(result.stdout).split()) - {"lo"})
    return need(
        result.ok and not ways, f"routes by: {', '.join(ways) or 'none'}" if result.ok else _said(result)
    )


async def _snapshot(probe: Probe) -> str:
    twin = ""
    mark = secrets.token_hex(8).encode()
    await probe.box.write_file(f"{_MARK}-kept", mark, mode=0o640)
    listing = f'ls -l {_MARK}-kept | {{ read -r mode rest; echo "$mode"; }}; cat {_MARK}-kept'
    before = await probe.sh(listing)
    snapshot_id = await probe.boxes.freeze(probe.sandbox_id)
    try:
        twin = await probe.boxes.start(snapshot_id=snapshot_id)
        async with probe.boxes.using(twin) as box:
            after = await box.exec(["/bin/sh", "-c", listing])
        same = after.ok and before.stdout == after.stdout and mark in after.stdout
        return need(
            same, "a file and its permissions are the same" if same else f"{_said(before)}; {_said(after)}"
        )
    finally:
        if twin:
            await probe.boxes.stop(twin)
        await probe.boxes.drop(snapshot_id)


async def _latency(probe: Probe) -> str:
    for _ in range(_STARTS - 1):
        began = time.monotonic()
        another = await probe.boxes.start()
        probe.start_s.append(time.monotonic() - began)
        await probe.boxes.stop(another)
    times = sorted(probe.start_s)
    median_s = times[len(times) // 2]
    return need(
        median_s < _SLOW_S, f"median of {len(times)}: {median_s * 1000:.0f} ms, at most {_SLOW_S:g} s allowed"
    )


CHECKS: tuple[tuple[str, Check], ...] = (
    ("/bin/sh present", _shell),
    ("user known", _user),
    ("workdir writable", _workdir),
    ("exec", _exec),
    ("exit codes", _exit_codes),
    ("files", _files),
    ("network off", _network),
    ("snapshot is the original", _snapshot),
    ("start latency", _latency),
)
"""After "box starts", in this order."""


async def validate(
    boxes: CheckedBoxes, spec: SandboxSpec, *, checks: Sequence[tuple[str, Check]] = CHECKS
) -> AsyncGenerator[CheckResult]:
    """Start a sandbox and yield the outcome of each check as it ends. One that does not start fails the gate alone."""
    began = time.monotonic()
    try:
        sandbox_id = await boxes.start()
    except RockError as error:
        yield CheckResult("box starts", CheckVerdict.FAIL, error.message, time.monotonic() - began)
        return
    took_s = time.monotonic() - began
    try:
        yield CheckResult("box starts", CheckVerdict.PASS, f"sandbox {sandbox_id}", took_s)
        async with boxes.using(sandbox_id) as box:
            probe = Probe(boxes, spec, sandbox_id, box, [took_s])
            for name, check in checks:
                yield await _outcome(name, check, probe)
    finally:
        await boxes.stop(sandbox_id)


async def _outcome(name: str, check: Check, probe: Probe) -> CheckResult:
    began = time.monotonic()
    try:
        async with asyncio.timeout(_CHECK_S):
            with plugin_call(f"check {name!r}"):
                try:
                    verdict, evidence = CheckVerdict.PASS, await check(probe)
                except _Failed as failure:
                    verdict, evidence = CheckVerdict.FAIL, str(failure)
    except Unimplemented as error:
        verdict, evidence = CheckVerdict.SKIP, error.message
    except RockError as error:
        verdict, evidence = CheckVerdict.FAIL, error.message
    except TimeoutError:
        verdict, evidence = CheckVerdict.FAIL, f"it did not end within {_CHECK_S:g} s"
    return CheckResult(name, verdict, evidence, time.monotonic() - began)


def _said(result: ExecResult) -> str:
    """Describe how a command ended, in one line."""
    how = (
        f"ended with {result.exit_code}" if result.signal is None else f"was killed by signal {result.signal}"
    )
    said = _text(result.stderr) or _text(result.stdout)
    return f"{result.infra_error or how}{f': {said}' if said else ''}"


def _text(data: bytes) -> str:
    return data.decode(errors="replace").strip()[:300]
