"""The map: forks, the symbols of their paths, their signs, and how both look. Shared by environment, oracle and tasks.

A map is text, one fork a line: its sign and its paths, such as `=ka mo ka ti`. The sign decides: `=ka` is a plain fork,
where the path ka is right; `>ka` a crucial one, where the path listed after ka is right, the first if ka is the last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from rock_env.errors import InvalidArgument

__all__ = ["AFTER", "HELD_OUT_SYMBOLS", "SAME", "TRAIN_SYMBOLS", "Chain", "Fork", "chain", "random_chain"]

SAME, AFTER = "=", ">"
_CONSONANTS, _VOWELS = "bdfgklmnprst", "aeiou"
_SYMBOLS = [(row, column) for row in range(len(_CONSONANTS)) for column in range(len(_VOWELS))]


def _named(*, held_out: bool) -> tuple[str, ...]:
    """Hold out one syllable of each consonant, so that every letter of a held-out symbol is known from others."""
    places = [(row, column) for row, column in _SYMBOLS if (column == row % len(_VOWELS)) is held_out]
    return tuple(_CONSONANTS[row] + _VOWELS[column] for row, column in places)


TRAIN_SYMBOLS, HELD_OUT_SYMBOLS = _named(held_out=False), _named(held_out=True)
_FORK = re.compile(r"(?P<rule>[=>])(?P<sign>[a-z]+)(?P<paths>(?: [a-z]+){2,})")


@dataclass(frozen=True, slots=True)
class Fork:
    """One fork. `paths` are the symbols in the order in which they are listed."""

    rule: str
    sign: str
    paths: tuple[str, ...]

    @property
    def right(self) -> str:
        """Return the symbol of the path that leads on."""
        return self.paths[(self.paths.index(self.sign) + (self.rule == AFTER)) % len(self.paths)]

    def text(self) -> str:
        """Return the fork's line of the map."""
        return f"{self.rule}{self.sign} {' '.join(self.paths)}"


@dataclass(frozen=True, slots=True)
class Chain:
    """A map."""

    forks: tuple[Fork, ...]

    @property
    def crucial(self) -> tuple[int, ...]:
        """Return the numbers, from 0, of the crucial forks."""
        return tuple(number for number, fork in enumerate(self.forks) if fork.rule == AFTER)

    def shown(self, number: int, *, clues: bool) -> str:
        """Return the observation at fork `number`, from 0: the same on the right way and on a wrong one."""
        fork = self.forks[number]
        what = fork.text() if clues else " ".join(fork.paths)
        return f"{number + 1}/{len(self.forks)} {what}"


@lru_cache(maxsize=4096)
def chain(text: str) -> Chain:
    """Return the map of a payload. Raise `InvalidArgument` if it is none."""
    forks: list[Fork] = []
    for line in text.split("\n"):
        found = _FORK.fullmatch(line)
        paths = tuple(found["paths"].split()) if found else ()
        if found is None or found["sign"] not in paths or len(set(paths)) < len(paths):
            raise InvalidArgument(
                f"not a fork_chain map: got the line {line[:60]!r}, expected a sign and distinct paths, one of them "
                "the sign's, such as '=ka mo ka ti'. Pass a task of this environment."
            )
        forks.append(Fork(found["rule"], found["sign"], paths))
    return Chain(tuple(forks))


def random_chain(symbols: Sequence[str], *, length: int, width: int, crucial: int, seed: int) -> str:
    """Draw a map of `length` forks with `width` paths each, `crucial` of them crucial at drawn places."""
    rng = Random(seed)
    places = set(rng.sample(range(length), crucial))
    lines = []
    for place in range(length):
        paths = tuple(rng.sample(symbols, width))
        lines.append(Fork(AFTER if place in places else SAME, rng.choice(paths), paths).text())
    return "\n".join(lines)
