"""What a node can hold and what each tenant may take of it, as values; and the file an operator writes them in.

Used by `server/capacity/admission`, the AdminService and the command line. Pure but for `QuotaFile`, which reads the
operator's TOML once and keeps what AdminService.SetQuota changed in a JSON file of its own. It decides nothing about
requests.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from rock_env.errors import FailedPrecondition, InvalidArgument, nearest
from rock_env.foreign import budget
from rock_env.foreign.files import parsed, plain_values, read_text
from rock_env.inventory import Amount, Limits
from rock_env.spec import Resources
from rock_env.store.whole_file import replace_file

__all__ = ["Ask", "Quota", "QuotaFile", "Quotas", "machine_limits", "parse_quotas"]

_CPU_OVERCOMMIT = 128
_MEMORY_OVERCOMMIT = 32
"""A box's limits are ceilings, not reservations: most boxes idle at a few MB. CPU overcommitted is slow, memory
overcommitted kills, so it gets the smaller factor; operators of heavy tasks set both (docs/rock.md)."""
_BYTES_PER_BOX = 16 << 20
"""What a box costs the node at least: its guest, its folders and its place in the kernel."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one box takes."""

    cpus: float = 1.0
    memory_bytes: int = 1 << 30

    @classmethod
    def of(cls, resources: Resources) -> Self:
        """Return what a box with these resources takes."""
        return cls(resources.cpus, resources.memory_bytes)

    @property
    def amount(self) -> Amount:
        """Return it as an amount; a part of a thousandth of a CPU counts as a whole one."""
        return Amount(1, math.ceil(self.cpus * 1000), self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Quota:
    """What one tenant may hold at once, and its weight in sharing what is scarce."""

    limits: Limits = field(default_factory=Limits)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0.001 <= self.weight <= 1000:
            raise InvalidArgument(f"the weight of a quota must be from 0.001 to 1000, got {self.weight!r}")


def machine_limits() -> Limits:
    """Return what this machine can hold by default: overcommitted, since a box's limits are ceilings."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = len(os.sched_getaffinity(0))
    return Limits(
        boxes=max(16, memory // _BYTES_PER_BOX),
        cpus=float(cpus * _CPU_OVERCOMMIT),
        memory_bytes=memory * _MEMORY_OVERCOMMIT,
    )


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_KEYS = ("boxes", "cpus", "memory", "weight")


@dataclass(frozen=True, slots=True)
class Quotas:
    """Everything an operator may say about admission."""

    capacity: Limits
    default: Quota = field(default_factory=Quota)
    tenants: Mapping[str, Quota] = field(default_factory=dict)


def parse_quotas(text: str) -> Quotas:
    """Read the operator's TOML. Raise `InvalidArgument`, naming the key, for what is no quota."""
    what = "not a quota file, which is TOML with [capacity], [default] and [tenants.NAME]"
    table = plain_values(parsed(tomllib.loads, text, what), "the quota file")
    for name in table:
        if name not in ("capacity", "default", "tenants"):
            raise nearest("table of a quota file", name, ("capacity", "default", "tenants"))
    base = machine_limits()
    given = _quota(table.get("capacity", {}), "capacity", weighted=False).limits
    capacity = Limits(
        base.boxes if given.boxes is None else given.boxes,
        base.cpus if given.cpus is None else given.cpus,
        base.memory_bytes if given.memory_bytes is None else given.memory_bytes,
    )
    tenants = table.get("tenants", {})
    if not isinstance(tenants, dict):
        raise InvalidArgument(f"`tenants` of a quota file must be tables [tenants.NAME], got {tenants!r}")
    return Quotas(
        capacity,
        _quota(table.get("default", {}), "default"),
        {name: _quota(value, f"tenants.{name}") for name, value in tenants.items()},
    )


def _quota(table: object, where: str, *, weighted: bool = True) -> Quota:
    if not isinstance(table, dict):
        raise InvalidArgument(f"[{where}] of a quota file must be a table, got {table!r}")
    keys = _KEYS if weighted else _KEYS[:-1]
    for key in table:
        if key not in keys:
            raise nearest(f"key of [{where}]", key, keys)
    boxes, cpus = _number(table, "boxes", where), _number(table, "cpus", where)
    weight = _number(table, "weight", where)
    try:
        limits = Limits(None if boxes is None else int(boxes), cpus, _memory(table.get("memory"), where))
        return Quota(limits, 1.0 if weight is None else weight)
    except InvalidArgument as error:
        raise InvalidArgument(f"[{where}] of a quota file: {error.message}") from error


def _number(table: Mapping[str, object], key: str, where: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidArgument(f"{key} of [{where}] must be a number, got {value!r}")
    return value


def _memory(value: object, where: str) -> int | None:
    """Read bytes: a number, or text such as "64GiB" or "512M"."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().removesuffix("iB").removesuffix("B")
        digits = text.rstrip("KMGT")
        unit = text[len(digits) :]
        if digits.strip().isascii() and digits.strip().isdigit() and unit in _UNITS:
            return int(digits) * _UNITS[unit]
    raise InvalidArgument(f'memory of [{where}] must be bytes or text such as "64GiB", got {value!r}')


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    tenants: dict[str, Quota]


class QuotaFile:
    """The quotas of a running server: the operator's file, and over it what SetQuota changed.

    `kept` is the file for such changes, replaced as a whole; None keeps them until the server stops.
    """

    def __init__(self, quotas: Quotas, kept: Path | None = None) -> None:
        """Read what was kept. Raise `FailedPrecondition` if that is damaged."""
        self.capacity = quotas.capacity
        self.default = quotas.default
        self._written = quotas.tenants
        self._kept = kept
        self._changed: dict[str, Quota] = {}
        if kept is not None and kept.exists():
            try:
                self._changed = msgspec.json.decode(budget.read_whole(kept, str(kept)), type=_Kept).tenants
            except (OSError, ValueError, RecursionError, msgspec.DecodeError) as error:
                raise FailedPrecondition(
                    f"{kept} does not hold quotas: {error}. Restore it, or remove it and set them again."
                ) from error

    @classmethod
    def open(cls, path: Path | None, kept: Path | None = None) -> Self:
        """Read the operator's file; None is the machine's capacity and no bound for anybody. Raise `InvalidArgument`."""
        if path is None:
            return cls(Quotas(machine_limits()), kept)
        try:
            return cls(parse_quotas(read_text(path)), kept)
        except OSError as error:
            raise InvalidArgument(f"cannot read the quota file {path}: {error.strerror}.") from error

    def of(self, tenant: str) -> Quota:
        """Return the tenant's quota."""
        return self._changed.get(tenant) or self._written.get(tenant, self.default)

    def named(self) -> dict[str, Quota]:
        """Return the quotas of the tenants that have one of their own."""
        return {**self._written, **self._changed}

    @property
    def kept(self) -> dict[str, Quota]:
        """Return what SetQuota changed."""
        return dict(self._changed)

    def follow(self, changed: Mapping[str, Quota]) -> None:
        """Take over what SetQuota changed at any server of a store, which keeps it."""
        self._changed = dict(changed)

    def set(self, tenant: str, quota: Quota) -> None:
        """Change and keep a tenant's quota. Raise `InfraError`, and change nothing, if it cannot be kept."""
        changed = {**self._changed, tenant: quota}
        if self._kept is not None:
            replace_file(self._kept, msgspec.json.encode(_Kept(changed)), "the quotas")
        self._changed = changed
