"""Numbers about the runs of a text."""

from runlength.pairs import find_runs
from runlength.texts import encode


def longest_run(text):
    """Return the (item, count) pair of the longest run, the first of equals."""
    winner = None
    record = 0
    for item, count in find_runs(text):
        if count > record:
            winner = item
            record = count
    return winner, record


def run_count(text, shortest=1):
    """Count the runs that have at least shortest items."""
    matching = 0
    for _, length in find_runs(text):
        if length >= shortest:
            matching += 1
    return matching


def ratio(text):
    """Return the encoded length divided by the plain length."""
    if not text:
        return 1.0
    return len(encode(text)) / len(text)
