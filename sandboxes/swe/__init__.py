"""Bug fixing in small Python projects, with a real shell, graded by hidden tests. See README.md."""

from rock_env.spec import EnvSpec, Picture, Resources, SandboxSpec
from sandboxes.swe.catalog import make_tasks
from sandboxes.swe.env import make
from sandboxes.swe.honest import honest
from sandboxes.swe.oracle import make_oracle, optimum
from sandboxes.swe.params import SweParams

__all__ = ["ENV"]

_UNUSED = (
    *("cacheprovider", "debugging", "doctest", "faulthandler", "junitxml", "legacypath", "pastebin"),
    *("setuponly", "setupplan", "stepwise", "threadexception", "unraisableexception"),
)
"""Parts of pytest that no test here needs: without them it starts in 0.18 s of processor time instead of 0.22."""
_PRELOAD = (
    *("pytest", "_pytest._argcomplete", "_pytest.faulthandler", "_pytest.helpconfig", "_pytest.junitxml"),
    *("_pytest.pastebin", "_pytest.setuponly", "_pytest.setupplan", "_pytest.skipping", "_pytest.stepwise"),
    *("_pytest.threadexception", "_pytest.tracemalloc", "_pytest.unittest", "_pytest.unraisableexception"),
    "_pytest.warnings",
)
"""All that pytest imports before its first test; it imports the parts it does not use, too."""

ENV = EnvSpec(
    name="swe",
    version="1.0",
    summary="Fix a planted bug in a small Python package with an agent's tools; graded by hidden tests.",
    params=SweParams,
    factory=make,
    tasks=make_tasks,
    honest=honest,
    oracle=make_oracle,
    optimum=optimum,
    sandbox=SandboxSpec(
        resources=Resources(memory_bytes=1 << 30, disk_bytes=256 << 20, pids=128),
        env=(
            ("COLUMNS", "60"),
            ("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in _UNUSED)),
            ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONHASHSEED", "0"),
        ),
        preload=_PRELOAD,
    ),
    snapshots=True,
    picture=Picture("diff"),
)
