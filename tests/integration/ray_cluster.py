"""A Ray cluster on this machine, for tests whose runs need none of their own: to start one costs a third of a small run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLUSTER = """
import sys
import ray
print(ray.init(address="local", num_cpus=5, include_dashboard=False).address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""

_SEVERAL = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
for _ in range(int(sys.argv[1]) - 1):
    cluster.add_node(num_cpus=3)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""

JOINING = {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
"""Variables of a process that joins the cluster."""


@contextmanager
def ray_cluster(folder: Path, raylets: int = 1) -> Iterator[str]:
    """Run a cluster whose actors work in `folder`; yield its address. It ends with the block, or with this process.

    Several raylets have an object store and processors each, as machines have.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER if raylets == 1 else _SEVERAL, str(raylets)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **JOINING},
    ) as cluster:
        assert cluster.stdout is not None
        assert cluster.stdin is not None
        address = next((line.strip() for line in cluster.stdout if ":" in line), "")
        assert address, "Ray did not start"
        try:
            yield address
        finally:
            cluster.stdin.close()
            cluster.wait(timeout=60)
