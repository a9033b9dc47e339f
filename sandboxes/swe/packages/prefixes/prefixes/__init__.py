"""Words stored by their letters."""

from prefixes.complete import complete, longest_prefix, shortest_unique
from prefixes.trie import add_word, build, count_words, has_word

__all__ = [
    "add_word",
    "build",
    "complete",
    "count_words",
    "has_word",
    "longest_prefix",
    "shortest_unique",
]
