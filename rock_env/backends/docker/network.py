"""Egress of networked boxes: an allow list per box, enforced on the host, where no command of a box can reach it.

Used by the `docker` backend only. A backend has one bridge network, made when the first box asks. Its boxes reach what
their list names and nothing else: not one another, not this machine, not private or link-local addresses (cloud
metadata) unless their block itself is listed. Host names are looked up here once and pinned in the box's
/etc/hosts; boxes get no name server, which would be a way out.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import re
import shutil
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rock_env.backends.docker.engine import Engine, EngineRefusal
from rock_env.errors import InfraError, InvalidArgument, Unimplemented
from rock_env.spec import NetworkPolicy

__all__ = ["AllowList", "Egress", "resolve"]

Block = ipaddress.IPv4Network
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_CLOSED_BLOCKS = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
)
"""Not the public internet (RFC 6890): open only to a list that names a block within one."""
_TOOL_S = 20.0


@dataclass(frozen=True, slots=True)
class AllowList:
    """What one box may reach, all names looked up."""

    private: tuple[Block, ...]
    """Listed blocks within `_CLOSED_BLOCKS`."""
    public: tuple[Block, ...]
    hosts: tuple[tuple[str, str], ...]
    """Pinned names, as (name, address)."""
    ports: tuple[tuple[str, int], ...] = ()
    """Single ports, as (address, port of TCP), wherever they are: also of this machine."""

    def rules(self, chain: str, refusing: str) -> list[str]:
        """Return the rules of a box's chain, in `iptables-restore` form.

        RETURN lets a packet go on to the host's own rules: the chain is gone to, not called. `refusing` is the chain
        that refuses whatever comes to it.
        """
        passing = [f"-A {chain} -d {block} -j RETURN" for block in self.private]
        passing += [f"-A {chain} -p tcp -d {ip} --dport {port} -j RETURN" for ip, port in self.ports]
        passing += [f"-A {chain} -m addrtype --dst-type LOCAL -g {refusing}"]
        passing += [f"-A {chain} -d {block} -g {refusing}" for block in _CLOSED_BLOCKS]
        passing += [f"-A {chain} -d {block} -j RETURN" for block in self.public]
        return [*passing, f"-A {chain} -g {refusing}"]


async def resolve(policy: NetworkPolicy) -> AllowList:
    """Look up what a policy allows. Raise `InvalidArgument` for an empty list, a bad entry or an unknown name."""
    if not policy.allow:
        raise InvalidArgument(
            "network.enabled without network.allow would reach nothing: list host names or CIDR blocks, such as "
            "'pypi.org' or '203.0.113.0/24'; '0.0.0.0/0' is the whole public internet"
        )
    private: list[Block] = []
    public: list[Block] = []
    hosts: list[tuple[str, str]] = []
    ports: list[tuple[str, int]] = []
    for entry in policy.allow:
        address, colon, port = entry.rpartition(":")
        block = _block(address if colon else entry)
        if colon and block is not None:
            if block.prefixlen != 32 or not _PORT.fullmatch(port) or int(port) >= 1 << 16:
                raise InvalidArgument(f"network.allow holds {entry!r}: a port is opened by ADDRESS:PORT")
            ports.append((str(block.network_address), int(port)))
        elif block is not None:
            (private if _is_closed(block) else public).append(block)
        elif _HOST_NAME.fullmatch(entry) is None:
            raise InvalidArgument(
                f"network.allow holds {entry!r}, which is no host name, no IPv4 CIDR block and no ADDRESS:PORT"
            )
        else:
            for address in await _look_up(entry):
                hosts.append((entry, address))
                public.append(Block(address))
    return AllowList(tuple(private), tuple(public), tuple(hosts), tuple(ports))


def _block(entry: str) -> Block | None:
    try:
        return Block(entry)
    except ipaddress.AddressValueError:
        return None
    except ValueError as error:
        raise InvalidArgument(f"network.allow holds {entry!r}: {error}") from error


def _is_closed(block: Block) -> bool:
    return any(block.subnet_of(Block(closed)) for closed in _CLOSED_BLOCKS)


async def _look_up(name: str) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgument(
            f"network.allow names {name!r}, which this node cannot look up: {error}"
        ) from error
    addresses = sorted({str(answer[4][0]) for answer in answers})
    if inner := [address for address in addresses if _is_closed(Block(address))]:
        raise InvalidArgument(
            f"network.allow names {name!r}, which is {', '.join(inner)}: a private or link-local address. "
            "List the address itself if it is meant to be reached."
        )
    return addresses


class Egress:
    """The bridge and the rules of one backend; `state_id` names both."""

    def __init__(self, engine: Engine, state_id: str, labels: dict[str, str]) -> None:
        self._engine = engine
        self._labels = labels
        self._lock = asyncio.Lock()
        self._ready = False
        self.network = f"rock-{state_id}"
        self._bridge = f"rk{state_id}"
        self._chain = f"ROCK-{state_id}"
        self._refusing = f"ROCK-{state_id}-NO"

    def settings(self, allowed: AllowList) -> dict[str, Any]:
        """Return what to add to a container's creation."""
        return {
            "HostConfig": {
                "NetworkMode": self.network,
                "ExtraHosts": [f"{name}:{address}" for name, address in allowed.hosts],
                # The engine's name server in the box asks this one, in the box, where none listens.
                "Dns": ["127.0.0.1"],
                "DnsSearch": ["."],
            }
        }

    async def prepare(self) -> None:
        """Make the bridge and its closed door, unless that is done. Raise `Unimplemented` where this cannot be."""
        async with self._lock:
            if self._ready:
                return
            if problem := _problem():
                raise Unimplemented(
                    f"no network for sandboxes here: {problem}. The allow list is enforced by the host's packet "
                    "filter: run the ROCK server as root with iptables installed, or ask for no network."
                )
            chain, bridge, no = self._chain, self._bridge, self._refusing
            if not await _succeeds("iptables", "-w", "-n", "-L", chain):
                refuse = [f"-A {no} -p tcp -j REJECT --reject-with tcp-reset", f"-A {no} -j REJECT"]
                await _restore([f":{chain} - [0:0]", f":{no} - [0:0]", *refuse, f"-A {chain} -g {no}"])
            for hook in ("DOCKER-USER", "INPUT"):
                rule = [hook, "-i", bridge, "-j", chain]
                if not await _succeeds("iptables", "-w", "-C", *rule):
                    await _run("iptables", "-w", "-I", *rule)
            await self._make_network()
            self._ready = True

    async def _make_network(self) -> None:
        options = {
            "com.docker.network.bridge.name": self._bridge,
            "com.docker.network.bridge.enable_icc": "false",
        }
        body = {
            "Name": self.network,
            "CheckDuplicate": True,
            "Driver": "bridge",
            "Options": options,
            "Labels": self._labels,
        }
        try:
            await self._engine.call("POST", "/networks/create", body=body)
        except EngineRefusal as refusal:
            if refusal.status != 409:  # made before, by this state folder
                raise

    async def admit(self, sandbox_id: str, address: str, allowed: AllowList) -> None:
        """Open the door for one box, before any command runs in it; the rules are set as one change."""
        chain = self._box_chain(sandbox_id)
        head = f"-I {self._chain} 1 -s {address}/32 -m comment --comment {sandbox_id} -g {chain}"
        await _restore([f":{chain} - [0:0]", *allowed.rules(chain, self._refusing), head])

    async def dismiss(self, sandbox_id: str) -> None:
        """Remove a box's rules. None there: nothing is done."""
        await self._remove([self._box_chain(sandbox_id)])

    async def keep_only(self, sandbox_ids: Iterable[str]) -> None:
        """Remove the rules of all boxes but these: what a killed server left."""
        if _problem() or not await _succeeds("iptables", "-w", "-n", "-L", self._chain):
            return
        wanted = {self._box_chain(sandbox_id) for sandbox_id in sandbox_ids}
        listed = await _run("iptables", "-w", "-S")
        made = re.findall(rf"^-N ({self._box_chain('')}\S+)$", listed, re.MULTILINE)
        await self._remove([chain for chain in made if chain not in wanted])

    async def close(self) -> None:
        """Remove the bridge and every rule of this backend, also those of an earlier server. Safe to call twice."""
        await self.keep_only(())
        if not _problem():
            for hook in ("DOCKER-USER", "INPUT"):
                rule = [hook, "-i", self._bridge, "-j", self._chain]
                while await _succeeds("iptables", "-w", "-D", *rule):
                    pass
            for chain in (self._chain, self._refusing):
                if await _succeeds("iptables", "-w", "-F", chain):
                    await _run("iptables", "-w", "-X", chain)
        try:
            await self._engine.call("DELETE", f"/networks/{self.network}")
        except EngineRefusal as refusal:
            if refusal.status not in (403, 404):  # in use by a box that nobody took up again, or never made
                raise
        self._ready = False

    def _box_chain(self, sandbox_id: str) -> str:
        """Return a chain's name; a name has at most 28 characters, so ids are told apart by their checksum."""
        if not sandbox_id:
            return f"RK-{self._chain[-8:]}-"
        return f"RK-{self._chain[-8:]}-{_checksum(sandbox_id)}"

    async def _remove(self, chains: Iterable[str]) -> None:
        wanted = set(chains)
        if not wanted or _problem():
            return
        listed = (await _run("iptables", "-w", "-S")).splitlines()
        there = {line.split()[1] for line in listed if line.startswith("-N ")} & wanted
        jumps = [f"-D{line[2:]}" for line in listed if line.startswith("-A ") and line.split()[-1] in there]
        if there:
            flush = [f"-F {chain}" for chain in there]
            await _restore([*jumps, *flush, *(f"-X {chain}" for chain in there)])


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:14]


def _problem() -> str:
    if os.geteuid() != 0:
        return "the server is not root"
    missing = [name for name in ("iptables", "iptables-restore") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not found on PATH" if missing else ""


async def _restore(lines: list[str]) -> None:
    await _run("iptables-restore", "-w", "--noflush", stdin="\n".join(["*filter", *lines, "COMMIT", ""]))


async def _succeeds(*argv: str) -> bool:
    return (await _tool(argv, ""))[0] == 0


async def _run(*argv: str, stdin: str = "") -> str:
    status, out, err = await _tool(argv, stdin)
    if status != 0:
        raise InfraError(
            f"cannot set the network rules of sandboxes: {' '.join(argv)} ended with {status}: {err}"
        )
    return out


async def _tool(argv: tuple[str, ...], stdin: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TOOL_S):
            out, err = await process.communicate(stdin.encode())
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace").strip()
