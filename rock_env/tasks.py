"""Ready-made task sources for environment plugins: drawn from a generator, or listed one by one.

Both keep *train* and *held_out* disjoint by content: a hash of the payload decides which split a task belongs
to, so no seed or index can carry a training task into the held-out split. Plugins return them from
`EnvSpec.tasks`; no environment is known here. Never reads a clock, a file or a global random state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from rock_env.errors import InvalidArgument, nearest
from rock_env.spec import TaskSource, TaskSpec

__all__ = ["ExtraSplit", "ListedTasks", "ProceduralTasks", "check_index", "derive_seed"]

SPLITS = ("train", "held_out")
HELD_OUT_ONE_IN = 5
MAX_DRAWS = 2000
"""With one draw in five held out, missing this often by chance has probability 1e-193: the split is empty."""
CACHED_TASKS = 4096
"""All members of a group reset to one task: it is drawn once."""


def derive_seed(*parts: str | int) -> int:
    """Return the 64-bit seed that belongs to `parts`, the same on every machine and Python version."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _content_number(payload: str) -> int:
    return int.from_bytes(hashlib.blake2b(payload.encode(), digest_size=8).digest(), "big")


def check_index(split: str, index: int, count: int) -> None:
    """Raise `InvalidArgument` where a split of `count` tasks has none of this index."""
    if not 0 <= index < count:
        raise InvalidArgument(f"no task {split}/{index}: split {split!r} has {count} tasks, numbered from 0.")


class ProceduralTasks:
    """Tasks from a generator: any index is found by itself, in about `HELD_OUT_ONE_IN` calls of it at most.

    `generate(seed)` must be pure and return the payload. `salt` names the family, so that two environments
    draw different seeds. A payload may occur at several indices of one split, never in both splits.
    """

    splits: tuple[str, ...] = SPLITS

    def __init__(
        self,
        generate: Callable[[int], str],
        *,
        salt: str,
        instruction: str,
        train: int = 1_000_000,
        held_out: int = 10_000,
    ) -> None:
        self._generate = generate
        self._salt = salt
        self._instruction = instruction
        self._counts = {"train": train, "held_out": held_out}
        self._drawn: dict[tuple[str, int], TaskSpec] = {}

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self._counts:
            raise nearest("split", split, self._counts)
        return self._counts[split]

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` if out of range or none exists."""
        check_index(split, index, self.count(split))
        task = self._drawn.get((split, index))
        if task is None:
            if len(self._drawn) >= CACHED_TASKS:
                self._drawn.clear()
            task = self._drawn[split, index] = self._draw(split, index)
        return task

    def _draw(self, split: str, index: int) -> TaskSpec:
        wants_held_out = split == "held_out"
        for attempt in range(MAX_DRAWS):
            payload = self._generate(derive_seed(self._salt, split, index, attempt))
            if (_content_number(payload) % HELD_OUT_ONE_IN == 0) == wants_held_out:
                return TaskSpec(f"{split}/{index}", split, index, self._instruction, payload)
        raise InvalidArgument(
            f"split {split!r} is empty: {MAX_DRAWS} draws gave no task that belongs to it. These arguments "
            "allow too few distinct tasks; use a larger size, or the other split."
        )


class ExtraSplit:
    """The tasks of a source and, as a split of their own, the held-out ones of another."""

    def __init__(self, tasks: TaskSource, name: str, extra: TaskSource) -> None:
        self._tasks, self._name, self._extra = tasks, name, extra
        self.splits: tuple[str, ...] = (*tasks.splits, name)

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self.splits:
            raise nearest("split", split, self.splits)
        return self._extra.count("held_out") if split == self._name else self._tasks.count(split)

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        if split == self._name:
            return replace(self._extra.get("held_out", index), id=f"{split}/{index}", split=split)
        return self._tasks.get(split, index)


class ListedTasks:
    """Tasks from a list of payloads; duplicates count once.

    One in five (at least one) is held out: those whose content hashes lowest. List order is kept within a
    split. A single payload is both splits: there is nothing to generalise to.
    """

    splits: tuple[str, ...] = SPLITS

    def __init__(self, payloads: Sequence[str], *, instruction: str) -> None:
        distinct = list(dict.fromkeys(payloads))
        if not distinct:
            raise InvalidArgument("a list of tasks is empty: got 0 payloads, expected at least 1.")
        ranked = sorted(distinct, key=_content_number)
        held_out = set(ranked[: max(1, len(ranked) // HELD_OUT_ONE_IN)])
        single = len(distinct) == 1
        self._instruction = instruction
        self._payloads = {
            "train": tuple(payload for payload in distinct if single or payload not in held_out),
            "held_out": tuple(payload for payload in distinct if payload in held_out),
        }

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self._payloads:
            raise nearest("split", split, self._payloads)
        return len(self._payloads[split])

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        return TaskSpec(f"{split}/{index}", split, index, self._instruction, self._payloads[split][index])
