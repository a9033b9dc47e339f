"""Find an order in which every task comes after what it needs."""

from collections.abc import Iterable, Mapping

from runorder.errors import CycleError, UnknownTask


def plan(needs: Mapping[str, list[str]], goals: Iterable[str] | None = None) -> list[str]:
    """Return the tasks to run for `goals` (default: all), in order.

    Raise `UnknownTask` or `CycleError`.
    """
    order: list[str] = []
    seen: list[str] = []

    def visit(name: str) -> None:
        if name not in needs:
            raise UnknownTask(f"no task {name!r}")
        if name in seen:
            raise CycleError([*seen[seen.index(name) :], name])
        seen.append(name)
        for need in needs[name]:
            visit(need)
        order.append(name)

    for goal in needs if goals is None else goals:
        if goal not in order:
            visit(goal)
    return order
