"""Runs as lists of (item, count) pairs."""


def find_runs(items):
    """Return the runs of equal neighbours as (item, count) pairs."""
    runs = []
    for item in items:
        count = 1
        if runs and runs[-1][0] == item:
            count = runs[-1][1] + 1
            runs.pop()
        runs.append((item, count))
    return runs


def expand(runs, limit=None):
    """Return the list that the runs stand for, cut after limit items."""
    output = []
    for value, times in runs:
        if times < 1:
            raise ValueError("a run needs a positive count")
        output.extend([value] * times)
    if limit is not None:
        del output[limit:]
    return output
