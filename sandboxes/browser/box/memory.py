"""Keeps a program's memory and open files from the others of its box, which run as the same user."""

from __future__ import annotations

import ctypes

__all__ = ["keep_to_itself"]

_PR_SET_DUMPABLE = 4


def keep_to_itself() -> None:
    """Let no other program trace this one, or open what /proc has of its memory and files. Raise `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this program's memory cannot be kept to itself")
