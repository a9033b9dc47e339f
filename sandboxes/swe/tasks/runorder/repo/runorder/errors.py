"""What can be wrong with a file of tasks."""


class RunOrderError(Exception):
    """Base of this package's errors."""


class ParseError(RunOrderError):
    """A line that is not `name: needs ...`."""


class UnknownTask(RunOrderError):
    """A task that is needed or asked for, but not defined."""


class CycleError(RunOrderError):
    """Tasks that need one another; `cycle` begins and ends with the same task."""

    def __init__(self, cycle: list[str]) -> None:
        super().__init__(" -> ".join(cycle))
        self.cycle = cycle
