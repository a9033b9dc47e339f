"""Bug fixing in small Python projects, with a real shell, graded by hidden tests. See README.md."""

from rock_env.spec import EnvSpec, Resources, SandboxSpec
from sandboxes.swe.catalog import make_tasks
from sandboxes.swe.env import make
from sandboxes.swe.oracle import make_oracle, optimum
from sandboxes.swe.params import SweParams

__all__ = ["ENV"]

ENV = EnvSpec(
    name="swe",
    version="0.1",
    summary="Fix a bug in a small Python project through a shell; graded by hidden tests.",
    params=SweParams,
    factory=make,
    tasks=make_tasks,
    oracle=make_oracle,
    optimum=optimum,
    sandbox=SandboxSpec(
        resources=Resources(memory_bytes=1 << 30, disk_bytes=256 << 20, pids=128),
        env=(
            ("PYTEST_ADDOPTS", "-q --no-header -p no:cacheprovider"),
            ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONHASHSEED", "0"),
        ),
    ),
)
