"""Say, before the tests run, how long they take and which of them will skip here for want of what.

It looks for programs, packages and fetched models only, and starts nothing: `make test` prints it first. What a program
is worth (does an engine answer, do namespaces work) the tests find out; each says why it skips.

    python scripts/test_plan.py [fast | components | rest]...
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from agent_runtime.shelf import shelf_of

# Minutes of each part on one core, waiting included; two test processes share the machine.
PARTS = {"fast": 12, "components": 3, "rest": 38}


class Need(NamedTuple):
    """Something of the machine that tests want: a program, a model that was fetched, or a Python package."""

    part: str
    name: str
    tests: str
    remedy: str
    module: bool = False


NEEDS = (
    Need("fast", "git", "histories of tasks", "apt-get install git"),
    Need("fast", "postgres", "servers that share a store", "apt-get install postgresql"),
    Need("fast", "helm", "the Kubernetes chart", "helm.sh/docs/intro/install"),
    Need(
        "fast", "kubernetes_validate", "the chart's manifests", "pip install kubernetes-validate", module=True
    ),
    Need("fast", "smollm2", "SmolLM2's own tokenizer", "ale model get smollm2"),
    Need("fast", "gem", "GEM's interface", "Python 3.11, then pip install gem-llm", module=True),
    Need("components", "docker", "everything in containers", "apt-get install docker.io"),
    Need("rest", "kubectl", "the chart on the cluster of KUBECONFIG", "kubernetes.io/docs/tasks/tools"),
    Need("rest", "runsc", "containers under gVisor", "apt-get install runsc"),
    Need("rest", "npm", "npm and the package mirror", "apt-get install npm"),
    Need("rest", "gpg", "apt and the package mirror", "apt-get install gnupg"),
    Need("rest", "busybox", "images made from this machine's files", "apt-get install busybox-static"),
    Need("rest", "iptables", "containers' networks", "apt-get install iptables"),
    Need("rest", "openssl", "TLS", "apt-get install openssl"),
    Need("rest", "e2b", "the client of E2B", "pip install e2b", module=True),
    Need("rest", "mcp", "tools over MCP", "pip install mcp", module=True),
)


def main() -> None:
    """Print the plan of the parts that are named, or of all."""
    parts = sys.argv[1:] or list(PARTS)
    minutes = sum(PARTS[part] for part in parts)
    cpus = len(os.sched_getaffinity(0))
    print(
        f"Tests ({', '.join(parts)}): about {minutes / 2:.0f} minutes on two idle cores. This machine has {cpus}, "
        f"{os.getloadavg()[0]:.0f} processes are running."
    )
    skipped = list(missing(parts, has_program, has_module, root=os.geteuid() == 0))
    for line in skipped:
        print(f"  skips {line}")
    if not skipped:
        print("  Programs and packages for all of them are here.")
    sys.stdout.flush()


def missing(
    parts: list[str], program: Callable[[str], bool], module: Callable[[str], bool], *, root: bool
) -> Iterator[str]:
    """Yield a line for each thing that is wanted and absent: what skips, what it wants, how to get it."""
    for need in NEEDS:
        if need.part in parts and not (module if need.module else program)(need.name):
            yield f"{need.tests}: no {need.name} ({need.remedy})"
    if "rest" in parts and not root:
        yield "full disks, and an engine started for the tests alone: not root (sudo make test-all)"


def has_program(name: str) -> bool:
    """Return whether a program is on PATH, or where Debian keeps PostgreSQL's, or a model among those fetched."""
    there = [
        *Path("/usr/lib/postgresql").glob(f"*/bin/{name}"),
        *shelf_of("ALE_MODELS", "models").glob(f"{name}-*/source.json"),
    ]
    return shutil.which(name) is not None or bool(there)


def has_module(name: str) -> bool:
    """Return whether a package is installed for this Python."""
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
