"""Put tasks into the order they can run in."""

from runorder.errors import CycleError, ParseError, UnknownTask
from runorder.parse import parse
from runorder.plan import plan

__all__ = ["CycleError", "ParseError", "UnknownTask", "parse", "plan"]
