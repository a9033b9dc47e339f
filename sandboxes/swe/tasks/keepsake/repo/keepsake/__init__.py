"""A small in-memory cache."""

from keepsake.cache import Cache
from keepsake.clock import ManualClock, SystemClock
from keepsake.stats import Stats

__all__ = ["Cache", "ManualClock", "Stats", "SystemClock"]
