"""What a process sandbox is told and held to: its spec checked, its guest's configuration, its limits, its record.

Used by `backends/process/backend`. Pure but for the record, a small file in the box's folder that the next server reads.
"""

from __future__ import annotations

import json
import keyword
import re
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rock_env.backends.process.fence import HOME, LAYER_PARTS
from rock_env.backends.process.host_view import BOX_PYTHON, BOX_SHELF, BOX_TOOLS
from rock_env.backends.process.zygote import OOM_FD
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.spec import Resources, SandboxSpec
from rock_env.task_spec import check_amounts

__all__ = [
    "SHELF_VARIABLE",
    "BoxRecord",
    "check_spec",
    "configuration",
    "limits",
    "preloaded",
    "process_limits",
    "start_up",
]

_DEFAULTS = Resources()
_OPEN_FILES = 1024
_GUEST_PROCESSES = 1
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_PRELOADED_MOST = 256
SHELF_VARIABLE = "ROCK_SHELF"
"""In a box's commands: where its server's shelf lies; absent where it has none."""
_START_UP = {"LANG": r"[\w.@-]{1,32}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0|[1-9][0-9]{0,8}"}
"""Variables that a box's Python takes note of when it starts, and the values that are passed to one of the server's."""
_SYSTEM_FOLDERS = {
    f"/{name}" for name in ("bin", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "sbin", "tmp", "usr")
} | {f"/{Path(sys.base_prefix).parts[1]}"}


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """What a later server must know of a box. Written when the box is complete."""

    durable: bool
    identity: int
    lineage: tuple[str, ...]

    def write(self, folder: Path) -> None:
        (folder / "box.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> BoxRecord | None:
        """Return the record; None for a box that never was complete."""
        try:
            fields = json.loads((folder / "box.json").read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return cls(**{**fields, "lineage": tuple(fields["lineage"])})


def check_spec(spec: SandboxSpec) -> None:
    """Raise `Unimplemented` for what only other backends offer, `InvalidArgument` for what no box can have."""
    check_amounts(spec)
    lacking = {
        "an image": bool(spec.image),
        "a container runtime": bool(spec.runtime),
        "a network": spec.network.enabled,
        "GPUs": bool(spec.resources.gpus),
    }
    if asked := [name for name, value in lacking.items() if value]:
        raise Unimplemented(
            f"the process backend cannot give a sandbox {', '.join(asked)}; use the docker backend"
        )
    for name in spec.preload:
        parts = name.split(".")
        plain = all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
        if not plain or "__main__" in parts:
            raise InvalidArgument(f"preload names modules such as 'pytest', got {name[:80]!r}")
    if len(spec.preload) > _PRELOADED_MOST:
        raise InvalidArgument(f"preload names at most {_PRELOADED_MOST} modules, got {len(spec.preload)}")
    workdir = spec.workdir
    if not re.fullmatch(r"/[A-Za-z0-9_-]{1,255}", workdir) or workdir in _SYSTEM_FOLDERS:
        raise InvalidArgument(
            f"workdir of a process sandbox must be a new top-level folder such as '/workspace', got {workdir[:300]!r}"
        )


def limits(spec: SandboxSpec) -> dict[str, float]:
    """Return the box's limits as a whole: memory_bytes, pids, cpus and disk_bytes.

    Files lie in memory, so memory is what the processes and the files may take together.
    """
    asked = spec.resources
    disk_bytes = asked.disk_bytes or _DEFAULTS.disk_bytes
    return {
        "memory_bytes": (asked.memory_bytes or _DEFAULTS.memory_bytes) + disk_bytes,
        "pids": (asked.pids or _DEFAULTS.pids) + _GUEST_PROCESSES + bool(spec.preload),
        "cpus": asked.cpus or _DEFAULTS.cpus,
        "disk_bytes": disk_bytes,
    }


def preloaded(spec: SandboxSpec, packages: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return the modules to import ahead, and those to leave out because they belong to none of `packages`.

    What imports them may do much, so they must be the operator's choice. Python's own are not: some do things when they
    are imported (`test.autotest` runs all tests).
    """
    found = [name for name in spec.preload if name.partition(".")[0] in packages]
    return found, [name for name in spec.preload if name not in found]


def start_up(spec: SandboxSpec) -> dict[str, str]:
    """Return the variables with which the Python starts whose memory the box's programs get."""
    given = {name: value for name, value in spec.env if name in _START_UP}
    fitting = {name: value for name, value in given.items() if re.fullmatch(_START_UP[name], value)}
    return {"PATH": f"{BOX_PYTHON}/bin:{_SYSTEM_PATH}", "HOME": HOME, "LANG": "C.UTF-8", **fitting}


def configuration(
    spec: SandboxSpec, *, folder: Path, tools: Path, fenced: bool, grouped: bool, shelf: Path | None = None
) -> dict[str, object]:
    """Return what the guest is told, but for its deadlines."""
    if fenced:
        places = dict(zip(LAYER_PARTS, (spec.workdir, HOME, "/tmp"), strict=True))
        programs = f"{BOX_PYTHON}/bin"
        more: dict[str, str] = {}
        own_programs = f"{BOX_TOOLS}/bin"
    else:
        places = {part: str(folder / "files" / part) for part in LAYER_PARTS}
        programs = str(Path(sys.executable).parent)
        more, own_programs = {"TMPDIR": places["tmp"]}, str(tools / "bin")
    if shelf is not None:
        more = {**more, SHELF_VARIABLE: BOX_SHELF if fenced else str(shelf)}
    environment = {
        **more,
        "PATH": f"{programs}:{_SYSTEM_PATH}:{own_programs}",
        "HOME": places["home"],
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **dict(spec.env),
    }
    return {
        "workdir": places["work"],
        "public_workdir": spec.workdir,
        "roots": list(places.values()),
        "env": environment,
        "rlimits": process_limits(spec, fenced=fenced, grouped=grouped),
        "oom": OOM_FD if grouped else None,
        "own": {"disk": 1, "pids": spec.resources.pids or _DEFAULTS.pids} if fenced else {},
    }


def process_limits(spec: SandboxSpec, *, fenced: bool, grouped: bool) -> list[tuple[int, int]]:
    """Return the limits of each process, some of which stand in for those of control groups."""
    asked = spec.resources
    found = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_FSIZE, asked.disk_bytes or _DEFAULTS.disk_bytes),
    ]
    if not grouped:  # a limit on addresses also refuses what many programs reserve and never use
        found.append((resource.RLIMIT_AS, asked.memory_bytes or _DEFAULTS.memory_bytes))
    if fenced:  # without a user namespace it would count every process of this user
        found.append((resource.RLIMIT_NPROC, (asked.pids or _DEFAULTS.pids) + bool(spec.preload)))
    return found
