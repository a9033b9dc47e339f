"""What happens to a run beside its steps, and who hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from trainer.metrics import Observer

__all__ = ["HearsEvents", "RunEvent", "hear"]


class RunEvent(NamedTuple):
    """Something broke within a run that goes on, was mended, or takes far longer than it did before."""

    kind: Literal["fault", "recovery", "late"]
    message: str
    logs: tuple[str, ...] = ()
    """What processes wrote last, line by line: it may hold secrets, and is for whoever sits at the run."""


@runtime_checkable
class HearsEvents(Protocol):
    """An observer that wants events as such."""

    def on_event(self, event: RunEvent) -> None:
        """Take an event, on any thread; the run may wait for the return."""
        ...


def hear(observer: Observer, event: RunEvent) -> None:
    """Tell an observer, in the words of its log where it wants no events."""
    if isinstance(observer, HearsEvents):
        observer.on_event(event)
    else:
        observer.on_log("\n  ".join([f"note: {event.message}", *event.logs]))
