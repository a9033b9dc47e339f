"""`ale rock`: servers and sandboxes from the command line."""

from ale.rock.reach import connected

__all__ = ["connected"]
