"""YAML that somebody else wrote, read within bounds: the one loader of tasks, agents and kubeconfigs.

An alias stands for all that its anchor holds, and a merge writes it out: a few hundred bytes can say 9^9 texts. So a
document is measured as if each alias were written out, before anything is made of it.
"""

from __future__ import annotations

from typing import Any

import yaml  # type: ignore[import-untyped]

__all__ = ["load_yaml"]

_MOST_BYTES = 4 << 20
"""Of a document, as it is and with its aliases written out; an element counts a byte more than its text."""
_MOST_DEPTH = 100


def load_yaml(text: str | bytes) -> Any:
    """Return a document's values. Raise `ValueError` for what is no YAML, too large or too deep."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _measure(text, loader)
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _measure(text: str | bytes, loader: type) -> None:
    if len(text) > _MOST_BYTES:
        raise _too_much()
    sizes: dict[str | None, int] = {}
    """Of what anchors stand for, once it is complete."""
    above: list[tuple[str | None, int]] = []
    """Anchors and sizes of the collections that are open, but for the innermost."""
    anchor, size = None, 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            above.append((anchor, size))
            anchor, size = event.anchor, 1
            sizes.pop(anchor, None)
            if len(above) > _MOST_DEPTH:
                raise ValueError(f"it is nested more than {_MOST_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            sizes[anchor] = size
            outer = above.pop()
            anchor, size = outer[0], outer[1] + size
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1 + len(event.value)
            size += sizes[event.anchor]
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(
                    f"the alias {event.anchor!r} has no anchor before it, or stands within its own"
                )
            size += sizes[event.anchor]
        if size > _MOST_BYTES:
            raise _too_much()


def _too_much() -> ValueError:
    return ValueError(f"it has more than {_MOST_BYTES} bytes, its aliases written out")
