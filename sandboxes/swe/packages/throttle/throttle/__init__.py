"""Rate limits with explicit time."""

from throttle.bucket import Bucket
from throttle.limiter import Limiter

__all__ = ["Bucket", "Limiter"]
