"""Which process of a run is in which bundle of its pool, what Ray reserves for it there, and whether all of it fits.

Worked out from the settings before anything starts; `trainer.processes.placement` has Ray do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rock_env.plugins import load
from trainer.config import Bundle, TrainConfig
from trainer.errors import ConfigError
from trainer.models.roles import needs_critic, needs_reference
from trainer.protocols.memory import STORE, Role

__all__ = ["Process", "bytes_in", "check_placement", "placement_lines", "processes"]


@dataclass(frozen=True, slots=True)
class Process:
    """One actor of a run."""

    role: str
    number: int
    """Among those of its role, from 1."""
    bundle: int
    devices: int = 0
    """Those that it computes on where its bundle has some."""
    gpus: float = 0.0
    """What Ray reserves for it of its bundle's."""

    @property
    def name(self) -> str:
        """Return how messages call it."""
        return f"{self.role} {self.number}" if self.role in {"sampler", "environments"} else self.role


def processes(config: TrainConfig) -> list[Process]:
    """Return all actors of a run, the learner first; none without a pool.

    Raise `ConfigError` where devices cannot be dealt.
    """
    if not config.placement.pool:
        return []
    dealt = [
        process for role, count, devices in _roles(config) for process in _of(config, role, count, devices)
    ]
    found: list[Process] = []
    for number, bundle in enumerate(config.placement.pool):
        inside = [process for process in dealt if process.bundle == number and process.devices]
        found += _with_devices(number, bundle, inside)
    shared = {(process.role, process.number): process for process in found}
    return [shared.get((process.role, process.number), process) for process in dealt]


def check_placement(config: TrainConfig, roles: Sequence[Role]) -> None:
    """Raise `ConfigError` for processes that do not fit their bundles, and for bundles and roles without a process.

    `roles` says what processes take in memory, as far as it is known.
    """
    placement = config.placement
    if not placement.pool:
        return
    if placement.reference and not needs_reference(config):
        raise ConfigError(
            f"placement.reference={list(placement.reference)} would do nothing: {config.algo!r} as configured keeps no "
            "frozen reference policy. Leave it out."
        )
    if placement.reward and not config.reward.routes:
        raise ConfigError(
            f"placement.reward={list(placement.reward)} would do nothing: reward.routes names no worker. Leave it out."
        )
    dealt = processes(config)
    for number, bundle in enumerate(placement.pool):
        inside = [process for process in dealt if process.bundle == number]
        names = ", ".join(process.name for process in inside)
        if not inside:
            raise ConfigError(
                f"bundle {number} of placement.pool would be reserved for nothing: no process is in it. Leave it out, or "
                "name it at a role."
            )
        if len(inside) > bundle.cpus:
            raise ConfigError(
                f"bundle {number} of placement.pool has {bundle.cpus} processors for {len(inside)} processes, expected one "
                f"each: {names}. Raise its cpus, or place some elsewhere."
            )
        needed, least = bytes_in(config, roles, number), bundle.memory_gb
        if least and needed > least * 1e9:
            raise ConfigError(
                f"bundle {number} of placement.pool has {least:g} GB{_each(bundle)}, and {needed / 1e9:.1f} GB are expected "
                f"to be taken of it by {names}. Place some elsewhere, or see in docs/learners.md what makes them smaller."
            )


def placement_lines(config: TrainConfig, roles: Sequence[Role]) -> list[str]:
    """Return the pool as a table: what each bundle has, what is expected to be taken of it, and by whom."""
    placement = config.placement
    if not placement.pool:
        return []
    dealt, lines = (
        processes(config),
        [f"{'bundle':<7}{'cpus':>5}{'gpus':>5}{'memory':>12}{'expected':>12}  holds"],
    )
    for number, bundle in enumerate(placement.pool):
        inside = [process for process in dealt if process.bundle == number]
        needed = bytes_in(config, roles, number)
        sizes = [f"{size:.2f} GB" if size else "" for size in (bundle.memory_gb, needed / 1e9)]
        holds = ", ".join(_told(config, process) for process in inside)
        lines.append(f"{number:<7}{bundle.cpus:>5}{bundle.gpus:>5}{sizes[0]:>12}{sizes[1]:>12}  {holds}")
    return lines


def _roles(config: TrainConfig) -> Iterator[tuple[str, int, int]]:
    """Yield each role with its processes, and the devices of each."""
    ranks = int(config.engine_options.get("ranks", 1))
    judges = any(load("ale.rewards", route.worker).runs_model for route in config.reward.routes)  # type: ignore[attr-defined]
    yield "learner", 1, ranks
    yield "sampler", config.rollout.engines, 1
    yield "environments", config.rollout.workers, 0
    yield "reward", int(bool(config.reward.routes)), int(judges)
    yield "reference", int(bool(config.placement.reference)), ranks


def _of(config: TrainConfig, role: str, count: int, devices: int) -> list[Process]:
    bundles = config.placement.bundles(role)
    return [Process(role, number + 1, bundles[number % len(bundles)], devices) for number in range(count)]


def _with_devices(number: int, bundle: Bundle, inside: Sequence[Process]) -> list[Process]:
    """Return the processes with their parts of a bundle's devices: whole ones, or equal parts of a single one."""
    wanted = sum(process.devices for process in inside)
    if not bundle.gpus or wanted <= bundle.gpus:
        return [replace(process, gpus=float(process.devices if bundle.gpus else 0)) for process in inside]
    if bundle.gpus == 1 and all(process.devices == 1 for process in inside):
        return [replace(process, gpus=1 / len(inside)) for process in inside]
    names = ", ".join(f"{process.name} ({process.devices})" for process in inside)
    raise ConfigError(
        f"bundle {number} of placement.pool has {bundle.gpus} GPUs for processes that want {wanted}: {names}. Processes "
        "share a bundle's only GPU, and no part of several: raise its gpus, or place some elsewhere."
    )


def bytes_in(config: TrainConfig, roles: Sequence[Role], number: int) -> int:
    """Return what is expected to be taken of a bundle's memory, of its fullest device where each process has its own."""
    inside = [process for process in processes(config) if process.bundle == number]
    bundle, known = config.placement.pool[number], {role.name: role for role in roles}
    sizes = {process: _size(config, known, process, bundle) for process in inside}
    if bundle.gpus and all(process.gpus in {0, process.devices} for process in inside):
        return max((most for most, _ in sizes.values()), default=0)
    learns = [size for process, size in sizes.items() if process.role == "learner"]
    samples = [size for process, size in sizes.items() if process.role == "sampler"]
    beside = sum(most for process, (most, _) in sizes.items() if process.role not in {"learner", "sampler"})
    if not learns or not samples:
        return beside + sum(most for most, _ in [*learns, *samples])
    learning = sum(most for most, _ in learns) + sum(rest for _, rest in samples)
    return beside + max(learning, sum(rest for _, rest in learns) + sum(most for most, _ in samples))


def _size(config: TrainConfig, known: dict[str, Role], process: Process, bundle: Bundle) -> tuple[int, int]:
    """Return the most that a process takes of its bundle's memory, and what it keeps while it rests."""
    names = [process.role]
    if process.role == "learner":
        names += [] if config.placement.reference else ["reference"]
        names += [] if bundle.gpus else ["offloaded", STORE]
    most = rest = 0
    for role in (known[name] for name in names if name in known):
        # A device has one rank of each; without devices all ranks are in the same memory.
        count = 1 if bundle.gpus or role.name == "sampler" else role.processes
        most, rest = most + count * role.total, rest + count * role.resting
    return most, rest


def _told(config: TrainConfig, process: Process) -> str:
    with_it = []
    if process.role == "learner":
        if needs_critic(config):
            with_it.append("critic")
        if not config.placement.reference and needs_reference(config):
            with_it.append("reference")
    share = f" ({process.gpus:.2g} GPU)" if process.gpus else ""
    return f"{process.name}{''.join(f' + {name}' for name in with_it)}{share}"


def _each(bundle: Bundle) -> str:
    return " on each GPU" if bundle.gpus else ""
