"""Seeds by derivation: every random choice of a run is a pure function of the run's seed and of what it is for.

Nothing carries random state from step to step, so a resumed run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib

__all__ = ["derive"]


def derive(seed: int, *parts: str | int) -> int:
    """Return a 63-bit seed for the purpose named by `parts`."""
    text = "\x1f".join([str(seed), *map(str, parts)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
