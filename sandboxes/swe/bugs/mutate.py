"""The bug families by name, and every bug that they offer for a file.

Used by the script that chooses the tasks, and by tests. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sandboxes.swe.bugs import families, unseen
from sandboxes.swe.bugs.families import Change
from sandboxes.swe.bugs.source import Bug, Source, plant

__all__ = ["FAMILIES", "TRAIN_FAMILIES", "UNSEEN_FAMILIES", "Bug", "bugs_in", "bugs_of", "plant"]

_TRAIN: Mapping[str, Callable[[Source], Iterator[Change]]] = {
    "off_by_one": families.off_by_one,
    "wrong_operator": families.wrong_operator,
    "wrong_variable": families.wrong_variable,
    "missing_return": families.missing_return,
    "wrong_default": families.wrong_default,
    "missing_edge_case": families.missing_edge_case,
}
_UNSEEN: Mapping[str, Callable[[Source], Iterator[Change]]] = {
    "swapped_arguments": unseen.swapped_arguments,
    "exception_swallowed": unseen.exception_swallowed,
    "inverted_condition": unseen.inverted_condition,
}
TRAIN_FAMILIES = tuple(_TRAIN)
UNSEEN_FAMILIES = tuple(_UNSEEN)
FAMILIES: Mapping[str, Callable[[Source], Iterator[Change]]] = {**_TRAIN, **_UNSEEN}


def bugs_of(text: str, family: str) -> tuple[Bug, ...]:
    """Return every bug of a family that can be planted into a file, in the order of its lines; no two the same.

    Each is one exact-match edit in both directions. Whether a test notices is not known here.
    """
    return bugs_in(Source(text), family)


def bugs_in(source: Source, family: str) -> tuple[Bug, ...]:
    """Return the bugs of a family that can be planted into a file that was read."""
    found: dict[tuple[int, str, str], Bug] = {}
    for function, change, what in FAMILIES[family](source):
        bug = source.bug(family, function, change, what)
        if bug is not None:
            found.setdefault((bug.line, bug.old, bug.new), bug)
    return tuple(sorted(found.values(), key=lambda bug: (bug.line, bug.new)))
