"""A process of a run tells what goes on in it (`trainer.live`), on a thread of its own, however long a call takes."""

from __future__ import annotations

from trainer.live.door import Door, name_of_actor
from trainer.live.inside import reader

__all__ = ["tell"]

_DOORS: list[Door] = []
"""Open as long as the process lives."""


def tell(name: str) -> None:
    """Answer under this name from now on, of the event loop too where one runs; nothing without a name."""
    if name:
        _DOORS.append(Door(name_of_actor(name), reader()).__enter__())
