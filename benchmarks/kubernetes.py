"""What sandboxes cost as pods of a real cluster, beside the cluster's own ways.

`python -m benchmarks.kubernetes --guest IMAGE --image IMAGE [--namespace NAME] [--hollow KUBECONFIG] [--quick]`, with the
cluster in KUBECONFIG and its pods within reach of this machine. `--hollow` names a second cluster, without nodes, for what
`benchmarks/hollow.py` measures with 1,000 sandboxes. It needs the package `kubernetes`, whose exec it compares with. The
last line is one JSON object; null is what was not measured:

- `exec_over_client_exec`: median time of `true` in a live sandbox over that by the official client's exec in the same pod;
- `api_requests_per_1000_commands`: requests to the cluster's API while 1,000 commands run;
- `create_ready_over_pod_p50`: median time to a usable sandbox over that of a bare pod of its image from create to Running;
- `warm_claim_over_pod_p50`: the same for a sandbox out of a server's stock;
- `trajectory_50_actions_s`: seconds for a sandbox, 50 commands in it and its end;
- `api_writes_per_sandbox`: requests that change something, for a sandbox from its create to its end;
- `server_mb_at_1000`: memory of a server with 1,000 sandboxes, in MB;
- `leaked_objects`: pods that are left at the end.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import grpc
import httpx

from benchmarks import hollow
from benchmarks.scaffold import finish, parser_of, seconds
from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.client import Client
from rock_env.local import embedded
from rock_env.proto.v1 import admin_pb2
from rock_env.proto.v1.admin_pb2_grpc import AdminServiceStub
from rock_env.spec import Resources, SandboxSpec
from rock_env.wire.channel import target
from rock_env.wire.sandboxes import spec_message

SPEC = SandboxSpec(resources=Resources(cpus=0.1, memory_bytes=128 << 20, disk_bytes=128 << 20))
COMMANDS = 1000


class Requests:
    """Counts the backend's requests to the API by method."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._send = httpx.AsyncClient.send

    def __enter__(self) -> Requests:
        async def counting(client: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
            self.count[request.method] += 1
            return await self._send(client, request, **more)

        httpx.AsyncClient.send = counting  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        httpx.AsyncClient.send = self._send  # type: ignore[method-assign]


class OfficialClient:
    """The official client, and bare pods by it."""

    def __init__(self, options: KubernetesOptions) -> None:
        from kubernetes import client, config, stream, watch

        config.load_kube_config(
            str(options.kubeconfig) if options.kubeconfig else None, options.context or None
        )
        self._core, self._stream, self._watch = client.CoreV1Api, stream.stream, watch.Watch
        self._options = options

    def exec_s(self, pod: str) -> float:
        """Return how long `true` takes by the API's exec."""
        began = perf_counter()
        call = self._core().connect_get_namespaced_pod_exec
        self._stream(
            call, pod, self._options.namespace, command=["true"], container="box", stdout=True, stderr=True
        )
        return perf_counter() - began

    def bare_pod_s(self) -> float:
        """Return how long a pod takes from its create to Running; it is deleted."""
        name, core, namespace = f"bare-{secrets.token_hex(4)}", self._core(), self._options.namespace
        container = {"name": "box", "image": self._options.image, "command": ["sleep", "600"]}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        began = perf_counter()
        core.create_namespaced_pod(namespace, {"metadata": {"name": name}, "spec": spec})
        watch = self._watch()
        for event in watch.stream(
            core.list_namespaced_pod, namespace, field_selector=f"metadata.name={name}", timeout_seconds=120
        ):
            if event["object"].status.phase == "Running":
                watch.stop()
        took = perf_counter() - began
        core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        return took

    def sandboxes(self) -> int:
        """Return how many pods of sandboxes there are in the namespace, whoever made them."""
        label = "app.kubernetes.io/managed-by=rock"
        return len(self._core().list_namespaced_pod(self._options.namespace, label_selector=label).items)


async def trajectory(backend: KubernetesBackend) -> None:
    box = await backend.create(SPEC, sandbox_id=f"t-{secrets.token_hex(4)}")
    for _ in range(50):
        assert (await box.exec(["true"])).ok
    await box.close()


async def claims(options: KubernetesOptions, rounds: int) -> list[float]:
    """Return how long a Create takes that a server's stock answers, in seconds, each after the stock is whole again."""
    given = (
        f"namespace={options.namespace},guest={options.guest},image={options.image},profile={options.profile}"
    )
    spec, took = spec_message(SPEC), []
    async with (
        embedded([f"--backend=kubernetes:{given}"]) as address,
        Client(address) as client,
        grpc.aio.insecure_channel(target(address)) as channel,
    ):
        admin = AdminServiceStub(channel)
        await admin.SetPool(admin_pb2.SetPoolRequest(spec=spec, size=2))

        async def ready() -> int:
            pools = (await admin.ListPools(admin_pb2.ListPoolsRequest())).pools
            return sum(pool.ready for pool in pools)

        for _ in range(rounds):
            while await ready() < 2:  # noqa: ASYNC110  the server tells nobody
                await asyncio.sleep(0.1)
            began = perf_counter()
            box = await client.sandboxes.create(spec=SPEC)
            took.append(perf_counter() - began)
            await box.delete()
    return took


async def server_mb_at_1000(kubeconfig: str) -> float:
    """Return the memory of a server with 1,000 sandboxes on a cluster without nodes, in MB."""
    os.environ["KUBECONFIG"] = kubeconfig
    return float((await hollow.measure([1000], idle_s=0))["server_mb"][-1])


async def measure(options: KubernetesOptions, rounds: int, hollow_cluster: str) -> dict[str, float | None]:
    """Return the figures, each a median of `rounds`; bare pods and sandboxes take turns."""
    client, backend = OfficialClient(options), KubernetesBackend(options)
    await backend.census()  # opens it
    bare, ready = [], []
    with Requests() as whole:
        for number in range(rounds):
            ready.append(await seconds(partial(backend.create, SPEC, sandbox_id=f"b-{number}")))
            await backend.destroy(f"b-{number}")
            bare.append(await asyncio.to_thread(client.bare_pod_s))
    box = await backend.create(SPEC, sandbox_id="commands")
    (pod,) = [what.split()[1] for box_id, what in (await backend.census()).items() if box_id == "commands"]
    with Requests() as during:
        own = [await seconds(lambda: box.exec(["true"])) for _ in range(COMMANDS)]
    theirs = [await asyncio.to_thread(client.exec_s, pod) for _ in range(10 * rounds)]
    await box.close()
    actions = [await seconds(lambda: trajectory(backend)) for _ in range(rounds)]
    await backend.close()
    claimed = await claims(options, rounds)
    left = await asyncio.to_thread(client.sandboxes)
    return {
        "exec_over_client_exec": round(median(own) / median(theirs), 3),
        "api_requests_per_1000_commands": during.count.total(),
        "create_ready_over_pod_p50": round(median(ready) / median(bare), 2),
        "warm_claim_over_pod_p50": round(median(claimed) / median(bare), 3),
        "trajectory_50_actions_s": round(median(actions), 2),
        "api_writes_per_sandbox": round((whole.count["POST"] + whole.count["DELETE"]) / rounds, 2),
        "server_mb_at_1000": await server_mb_at_1000(hollow_cluster) if hollow_cluster else None,
        "leaked_objects": left,
    }


def main() -> None:
    parser = parser_of(__doc__, quick="3 rounds instead of 10")
    parser.add_argument("--guest", required=True, help="image that brings the guest in")
    parser.add_argument("--image", required=True, help="image of the sandboxes, which has `true` and `sleep`")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--hollow", default="", metavar="KUBECONFIG", help="of a cluster without nodes")
    asked = parser.parse_args()
    given = {"guest": asked.guest, "image": asked.image, "namespace": asked.namespace, "profile": "image"}
    options = KubernetesOptions.model_validate(given)
    finish(asyncio.run(measure(options, 3 if asked.quick else 10, asked.hollow)))


if __name__ == "__main__":
    main()
