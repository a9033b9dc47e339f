"""Versions of releases."""

from releases.order import compare, latest, sort_key
from releases.rules import bump, is_breaking, matches
from releases.version import parse_version, show

__all__ = [
    "bump",
    "compare",
    "is_breaking",
    "latest",
    "matches",
    "parse_version",
    "show",
    "sort_key",
]
