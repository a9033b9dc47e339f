"""A diff is a list of (sign, line) with the signs ' ', '-' and '+'."""

from linediff.common import common_part


def diff_lines(old, new):
    """Return the diff that leads from old lines to new lines."""
    diff = []
    i = j = 0
    for line in [*common_part(old, new), None]:
        old_end = len(old) if line is None else old.index(line, i)
        new_end = len(new) if line is None else new.index(line, j)
        diff += [("-", text) for text in old[i:old_end]]
        diff += [("+", text) for text in new[j:new_end]]
        if line is not None:
            diff.append((" ", line))
        i = old_end + 1
        j = new_end + 1
    return diff


def apply_diff(old, diff):
    """Return the new lines; the old lines must fit the diff."""
    if [text for sign, text in diff if sign != "+"] != list(old):
        raise ValueError("the diff does not fit")
    return [text for sign, text in diff if sign != "-"]


def summary(diff):
    """Return how many lines a diff adds and removes."""
    added = removed = 0
    for sign, _ in diff:
        if sign == "+":
            added += 1
        elif sign == "-":
            removed += 1
    return f"+{added} -{removed}"
