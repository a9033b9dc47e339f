"""One Python function to write, graded by hidden calls in a fresh sandbox. See README.md."""

from rock_env.spec import EnvSpec, Picture, Resources, SandboxSpec
from sandboxes.code.catalog import make_tasks
from sandboxes.code.env import make
from sandboxes.code.honest import honest
from sandboxes.code.oracle import make_oracle, optimum
from sandboxes.code.params import CodeParams

__all__ = ["ENV"]

ENV = EnvSpec(
    name="code",
    version="1",
    summary="Write one Python function from its docstring; graded by hidden calls in a sandbox.",
    params=CodeParams,
    factory=make,
    tasks=make_tasks,
    honest=honest,
    oracle=make_oracle,
    optimum=optimum,
    graded_as_it_lies=False,
    sandbox=SandboxSpec(
        resources=Resources(memory_bytes=512 << 20, disk_bytes=64 << 20, pids=64),
        env=(("PYTHONDONTWRITEBYTECODE", "1"), ("PYTHONHASHSEED", "0")),
        preload=(
            "bisect",
            "collections",
            "functools",
            "heapq",
            "itertools",
            "json",
            "math",
            "re",
            "resource",
            "string",
        ),
    ),
    snapshots=True,
    picture=Picture("diff"),
)
