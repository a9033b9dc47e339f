"""A server of thousands of pods in which nothing runs: what the control plane alone costs.

`python -m benchmarks.hollow [--sizes 1000 2000] [--idle-s 60]`, with KUBECONFIG naming a cluster whose nodes may be made
up: an API server with scheduler and controllers, and no node of its own (`CLUSTER_NODE=none`). Nodes are made here. One
process answers for their kubelet, which says that pods run, and for every guest, at 127.0.0.0/8 and the port of the guest.
The server is a real one (`python -m rock_env.server`), with its records in SQLite. The last line is one JSON object whose
figures are lists, one entry a size:

- `sandboxes`: how many there were;
- `create_per_s`, `delete_per_s`: Creates and Deletes that ended in a second, with 32 callers;
- `create_p50_s`, `create_p99_s`: of those between the former size and this one;
- `watch_lag_p50_ms`, `watch_lag_p99_ms`: from the API taking a pod's address to the server arriving there;
- `server_mb`: memory of the server; `api_server_mb`: of the API server, where it runs here (CLUSTER_STATE), else null;
- `api_writes_per_sandbox`: requests of the server that change something, from create to end, per sandbox of all sizes;
- `api_reads_per_minute_idle`: its other requests in a minute in which nobody calls; null with `--idle-s 0`;
- `idle_cpu`: the share of a core that it takes then;
- `leaked_objects`: pods that are left at the end.
"""

from __future__ import annotations

import asyncio
import os
import resource
import runpy
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import httpx
import psutil

from benchmarks.scaffold import at_once, finish, parser_of
from rock_env.backends.kubernetes.access import find_access
from rock_env.backends.kubernetes.api import Api, ApiRefusal
from rock_env.client import Client
from rock_env.errors import RockError
from rock_env.guest import protocol as guest
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec(resources=Resources(cpus=0.1, memory_bytes=64 << 20, disk_bytes=64 << 20), lifetime_s=7200)
NAMESPACE = "rock-hollow"
PORT = 8130
CALLERS = 32
NODES = 20
PODS_A_NODE = 1000
HEARTBEAT_S = 10.0
QUOTAS = '[capacity]\nboxes = 100000\ncpus = 100000\nmemory = "100T"\n'


class Guests:
    """Answers as the guest of every pod, each at an address of its own on loopback."""

    def __init__(self) -> None:
        self.tokens: dict[str, bytes] = {}
        self.reached_at: dict[str, float] = {}
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self, port: int = PORT) -> asyncio.Server:
        return await asyncio.start_server(self._answer, "0.0.0.0", port, backlog=4096)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        self.reached_at.setdefault(address, perf_counter())
        nonces = b""

        def send(kind: int, request: int, payload: bytes = b"") -> None:
            writer.write(guest.HEADER.pack(kind, request, len(payload)) + payload)

        try:
            while True:
                kind, request, size = guest.HEADER.unpack(await reader.readexactly(guest.HEADER.size))
                payload = await reader.readexactly(size)
                if kind == guest.HELLO:
                    nonces = payload + os.urandom(guest.TOKEN_BYTES)
                    shown = guest.proof(self.tokens[address], b"guest", nonces)
                    send(guest.CHALLENGE, request, nonces[guest.TOKEN_BYTES :] + shown)
                elif kind == guest.PROOF:
                    send(guest.READY, request, b"\1" + guest.VERSION_SIZE.pack(guest.VERSION))
                elif kind == guest.END:
                    break
                else:
                    send(guest.DONE, request)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()
        self.ended.put_nowait(address)


class Kubelet:
    """Says of the pods on its nodes that they run, and that those ended whose guest did."""

    def __init__(self, api: Api, guests: Guests) -> None:
        self._api, self._guests = api, guests
        self._pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        self._at: dict[str, str] = {}
        self._named: dict[str, dict[str, Any]] = {}
        self._number = 1
        self.told_at: dict[str, float] = {}

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ends(group))
            listed = await self._api.call("GET", self._pods)
            since = listed["metadata"]["resourceVersion"]
            while True:
                async for event in self._api.watch(self._pods, {}, since):
                    since = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._take(event, group)

    def _take(self, event: dict[str, Any], group: asyncio.TaskGroup) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        if event["type"] == "DELETED":
            self._named.pop(name, None)
        elif pod["metadata"].get("deletionTimestamp"):
            group.create_task(self._delete(name))
        elif name in self._named:
            self._named[name] = pod
        elif pod["spec"].get("nodeName"):
            self._named[name] = pod
            group.create_task(self._start(name, pod))

    async def _start(self, name: str, pod: dict[str, Any]) -> None:
        self._number += 1
        address = f"127.{1 + (self._number >> 16)}.{self._number >> 8 & 255}.{self._number & 255}"
        (carrier,) = pod["spec"]["initContainers"]
        self._guests.tokens[address] = bytes.fromhex(carrier["env"][0]["value"])
        self._at[address] = name
        await self._tell(pod, {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]})
        self.told_at[address] = perf_counter()

    async def _ends(self, group: asyncio.TaskGroup) -> None:
        while True:
            address = await self._guests.ended.get()
            pod = self._named.get(self._at.pop(address, ""))
            if pod is not None:
                group.create_task(self._tell(pod, {**pod["status"], "phase": "Succeeded"}))

    async def _tell(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}/status"
        body = {**pod, "metadata": {**pod["metadata"], "resourceVersion": ""}, "status": status}
        with suppress(RockError):  # it was deleted meanwhile
            await self._api.call("PUT", path, body=body)

    async def _delete(self, name: str) -> None:
        with suppress(ApiRefusal):  # the server was first
            await self._api.call("DELETE", f"{self._pods}/{name}", params={"gracePeriodSeconds": "0"})


async def nodes(api: Api) -> None:
    """Make the nodes and say again and again that they are ready, until cancelled."""
    room = {"cpu": "100000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": str(PODS_A_NODE)}
    names = [f"made-up-{number}" for number in range(NODES)]
    for name in names:
        about = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
        await api.call("POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", **about})
    while True:
        for name in names:
            node = await api.call("GET", f"/api/v1/nodes/{name}")
            node["metadata"].pop("resourceVersion")
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "True", "reason": "MadeUp", "lastHeartbeatTime": now}
            node["status"] = {"capacity": room, "allocatable": room, "conditions": [ready]}
            await api.call("PUT", f"/api/v1/nodes/{name}/status", body=node)
        await asyncio.sleep(HEARTBEAT_S)


class Measured:
    """The server, as a process of its own whose requests to the API are written to a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._requests = folder / "requests"
        self.address = f"unix://{folder}/socket"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[psutil.Process]:
        """Run it; yield the process once it answers."""
        (self._folder / "quotas.toml").write_text(QUOTAS)
        self._requests.touch()
        options = f"namespace={NAMESPACE},guest=guest:1,image=image:1,port={PORT},profile=image,reserved=0.1"
        words = [
            f"--listen={self.address}",
            f"--backend=kubernetes:{options}",
            f"--state={self._folder}/state",
        ]
        words += [
            f"--quotas={self._folder}/quotas.toml",
            "--workers=1",
            "--isolation=none",
            "--log-level=ERROR",
        ]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.hollow", "--serve", str(self._requests), *words),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline(), "the server did not start; its words are above"
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            await process.wait()

    def requests(self) -> Counter[str]:
        """Return how many requests of each method it has made."""
        return Counter(self._requests.read_text().split())


def serve(file: str, words: list[str]) -> None:
    """Be the server, and write down the method of each request to the cluster's API."""
    log = os.open(file, os.O_WRONLY | os.O_APPEND)
    send = httpx.AsyncClient.send

    async def noting(client: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        os.write(log, f"{request.method}\n".encode())
        return await send(client, request, **more)

    httpx.AsyncClient.send = noting  # type: ignore[method-assign, assignment]
    sys.argv = ["python -m rock_env.server", *words]
    runpy.run_module("rock_env.server", run_name="__main__")


def api_server_mb() -> float | None:
    """Return the memory of the API server of the cluster in CLUSTER_STATE; None where it is not here."""
    file = Path(os.environ.get("CLUSTER_STATE", "/nonexistent")) / "run" / "kube-apiserver.pid"
    return round(psutil.Process(int(file.read_text())).memory_info().rss / 1e6, 1) if file.exists() else None


class Figures:
    """What is measured while sandboxes become more and none again."""

    def __init__(
        self,
        client: Client,
        server: psutil.Process,
        measured: Measured,
        guests: Guests,
        told: dict[str, float],
    ):
        self._client, self._server, self._measured = client, server, measured
        self._guests, self._told = guests, told
        self._boxes: list[Any] = []
        self.found: dict[str, list[Any]] = {"sandboxes": [0], "server_mb": [self._memory()]}

    def _memory(self) -> float:
        return round(float(self._server.memory_info().rss) / 1e6, 1)

    def _add(self, **figures: Any) -> None:
        for name, value in figures.items():
            self.found.setdefault(name, []).append(value)

    async def grow(self, size: int) -> None:
        """Create sandboxes until there are so many."""
        took: list[float] = []
        known = set(self._guests.reached_at)

        async def one() -> None:
            began = perf_counter()
            self._boxes.append(await self._client.sandboxes.create(spec=SPEC, lease_s=None))
            took.append(perf_counter() - began)

        count = size - len(self._boxes)
        seconds = await at_once([one] * count, CALLERS)
        lags = [at - self._told[each] for each, at in self._guests.reached_at.items() if each not in known]
        centiles, lag = quantiles(took, n=100), quantiles(lags, n=100)
        self._add(sandboxes=size, create_per_s=round(count / seconds, 1), server_mb=self._memory())
        self._add(create_p50_s=round(centiles[49], 3), create_p99_s=round(centiles[98], 3))
        self._add(watch_lag_p50_ms=round(lag[49] * 1e3, 1), watch_lag_p99_ms=round(lag[98] * 1e3, 1))
        self._add(api_server_mb=api_server_mb())

    async def rest(self, idle_s: float) -> None:
        """See what the server does while nobody calls."""
        if not idle_s:
            self._add(api_reads_per_minute_idle=None, idle_cpu=None)
            return
        before, cpu = self._measured.requests(), sum(self._server.cpu_times()[:2])
        await asyncio.sleep(idle_s)
        requests = (self._measured.requests() - before).total()
        spent = sum(self._server.cpu_times()[:2]) - cpu
        self._add(
            api_reads_per_minute_idle=round(requests * 60 / idle_s, 1), idle_cpu=round(spent / idle_s, 3)
        )

    async def end(self) -> None:
        """Delete every sandbox."""
        seconds = await at_once([box.delete for box in self._boxes], CALLERS)
        count = self._measured.requests()
        writes = sum(count[method] for method in ("POST", "PUT", "PATCH", "DELETE"))
        self._add(delete_per_s=round(len(self._boxes) / seconds, 1))
        self._add(api_writes_per_sandbox=round(writes / len(self._boxes), 2))


async def measure(sizes: list[int], idle_s: float) -> dict[str, list[Any]]:
    """Return the figures for growing numbers of sandboxes."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    api, guests = Api(find_access()), Guests()
    kubelet = Kubelet(api, guests)
    await api.call("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
    background = [asyncio.create_task(nodes(api)), asyncio.create_task(kubelet.run())]
    try:
        async with await guests.serve():
            with tempfile.TemporaryDirectory() as folder:
                measured = Measured(Path(folder))
                async with measured.running() as server, Client(measured.address) as client:
                    figures = Figures(client, server, measured, guests, kubelet.told_at)
                    for size in sizes:
                        await figures.grow(size)
                        await figures.rest(idle_s)
                    await figures.end()
            left = await api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        for number in range(NODES):
            with suppress(ApiRefusal):
                await api.call("DELETE", f"/api/v1/nodes/made-up-{number}")
        await api.close()
    return {**figures.found, "leaked_objects": [len(left["items"])]}


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3:])
        return
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--idle-s", type=float, default=60.0)
    asked = parser.parse_args()
    finish(asyncio.run(measure(asked.sizes, asked.idle_s)))


if __name__ == "__main__":
    main()
