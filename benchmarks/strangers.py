"""What callers without a token cost a ROCK server and a gateway: their memory, and the time of a tenant's calls.

`python -m benchmarks.strangers [--quick] [--only TEXT]`. The loads are those of `tests/escape/stranger_loads.py`, made one
after the other by a process that is pinned to one core, against the same servers throughout. Meanwhile a tenant lists
its sandboxes, again and again, as it does for a moment before each load, without one. The last line is one JSON object:

- `growth_mib`: the most that a server's resident memory has grown since before the first load (goal: at most 64);
- `list_p50_over_quiet`, `list_p99_over_quiet`: a List's time under the worst load over that without one (goal: at most
  3 and 10);
- `tried`, `refused`: loads, and those of which no call was let in (goal: all).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

import grpc
import psutil
from integration.secure_servers import make_certificates, serving, token
from stranger_loads import LOADS, Doors, Heard

from benchmarks.scaffold import Child, finish, parser_of, percentiles, say
from rock_env.wire.channel import target

QUICK_S, FULL_S = 0.7, 8.0
QUIET_S = 0.3
"""Before each load, so that what else the machine does counts on both sides."""
LIST = "/rock.v1.SandboxService/List"
SERVER = ["rock_env.server", "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--workers=1", "--isolation=none"]
GATEWAY = Path(__file__).parents[1] / "tests" / "escape" / "hostile_gateway.py"


class Memory:
    """The resident memory of servers, each with what it has started."""

    def __init__(self, pids: list[int]) -> None:
        self._servers = [
            [Path(f"/proc/{one.pid}") for one in (server, *server.children(recursive=True))]
            for server in map(psutil.Process, pids)
        ]
        self._before = [sum(self._field(one, "VmRSS") for one in server) for server in self._servers]

    def forget(self) -> None:
        for folder in itertools.chain(*self._servers):
            (folder / "clear_refs").write_text("5")

    def grown_mib(self) -> float:
        """Return how much the one that has grown most was above its start, since `forget`."""
        peaks = (sum(self._field(one, "VmHWM") for one in server) for server in self._servers)
        return max(peak - before for peak, before in zip(peaks, self._before, strict=True)) / 1024

    @staticmethod
    def _field(folder: Path, name: str) -> int:
        lines = (folder / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1])


class Tenant:
    """Lists its sandboxes."""

    def __init__(self, channel: grpc.Channel, text: str) -> None:
        self._list = channel.unary_unary(LIST)
        self._metadata = (("authorization", f"Bearer {text}"),)

    def took_ms(self) -> float:
        began = perf_counter()
        self._list(b"", metadata=self._metadata, timeout=60)
        return (perf_counter() - began) * 1e3

    def times_ms(self, seconds: float) -> list[float]:
        until, times = perf_counter() + seconds, []
        while perf_counter() < until:
            times.append(self.took_ms())
        return times


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def servers(folder: Path) -> Iterator[tuple[Doors, list[int], str]]:
    """Serve without TLS, with it, and a gateway; yield the doors, the processes and a tenant's token."""
    tokens = folder / "tokens.json"
    text = token(tokens, "blue", "sandbox")
    certificates = make_certificates(folder)
    tls = [f"--cert={certificates / 'server.pem'}", f"--key={certificates / 'server.key'}"]
    started, addresses = [], []
    with ExitStack() as stack:
        metrics = f"127.0.0.1:{free_port()}"
        for name, more in (("plain", [f"--metrics={metrics}"]), ("tls", tls)):
            (folder / name).mkdir()
            words = [*SERVER, f"--tokens={tokens}", "--log-level=ERROR", *more]
            server, address = stack.enter_context(serving(words, folder / name))
            assert server.stdout is not None
            addresses += [address, server.stdout.readline().strip()]
            started.append(server.pid)
        gate = stack.enter_context(
            subprocess.Popen([sys.executable, str(GATEWAY)], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(gate.terminate)
        assert gate.stdout is not None
        addresses.append(json.loads(gate.stdout.readline())["url"])
        grpc_at, http, grpc_tls, http_tls, gateway = map(target, addresses)
        doors = Doors(grpc_at, http, grpc_tls=grpc_tls, http_tls=http_tls, gateway=gateway, metrics=metrics)
        yield doors, [*started, gate.pid], text


async def made(name: str, doors: Doors, seconds: float) -> Heard:
    return await LOADS[name](doors, seconds)


def attack(where: str) -> None:
    """Be the process of the strangers: make the load that a line of the input names, and say how it was answered."""
    doors = Doors(**json.loads(where))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, seconds = json.loads(line)
        try:
            heard = asyncio.run(made(name, doors, seconds))
            print(json.dumps([heard.let_in, dict(heard)]), flush=True)
        except Exception as error:  # noqa: BLE001  a load that fails is one that was not tried
            print(json.dumps([-1, {repr(error): 1}]), flush=True)


def under(child: Child, name: str, seconds: float, tenant: Tenant) -> tuple[int, str, list[float]]:
    """Make a load and list meanwhile; return how many calls were let in, what was said, and the times."""
    child.tell(json.dumps([name, seconds]))
    times, done = [], False
    while not done:
        times.append(tenant.took_ms())
        done = child.has_answered()
    let_in, heard = child.hear()
    return let_in, json.dumps(heard), times


def measured(seconds: float, only: str) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        servers(Path(folder)) as (doors, pids, text),
        grpc.insecure_channel(doors.grpc) as channel,
        Child("-m", "benchmarks.strangers", "--as-strangers", json.dumps(asdict(doors))) as child,
    ):
        os.sched_setaffinity(child.process.pid, {min(os.sched_getaffinity(0))})
        tenant = Tenant(channel, text)
        for _ in range(500):
            tenant.took_ms()
        memory, quiet, loaded = Memory(pids), [], {}
        growth, refused = 0.0, 0
        for name in LOADS:
            if only not in name:
                continue
            quiet += tenant.times_ms(QUIET_S)
            memory.forget()
            let_in, heard, loaded[name] = under(child, name, seconds, tenant)
            grown = memory.grown_mib()
            growth, refused = max(growth, grown), refused + (let_in == 0)
            p50, p99 = percentiles(loaded[name])
            say(f"{name:28} {grown:6.0f} MiB  p50 {p50:7.2f} ms  p99 {p99:7.2f} ms  {heard[:90]}")
    p50, p99 = percentiles(quiet)
    say(f"{'quiet':28}             p50 {p50:7.2f} ms  p99 {p99:7.2f} ms")
    under_load = [percentiles(times) for times in loaded.values()]
    return {
        "growth_mib": round(growth, 1),
        "list_p50_over_quiet": round(max(one for one, _ in under_load) / p50, 2),
        "list_p99_over_quiet": round(max(one for _, one in under_load) / p99, 2),
        "refused": refused,
        "tried": len(loaded),
    }


def main() -> None:
    parser = parser_of(__doc__, quick="0.7 s of each load instead of 8 s")
    parser.add_argument("--only", default="", metavar="TEXT", help="loads with this in their name")
    parser.add_argument("--as-strangers", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_strangers:
        attack(asked.as_strangers)
        return
    finish(measured(QUICK_S if asked.quick else FULL_S, asked.only))


if __name__ == "__main__":
    main()
