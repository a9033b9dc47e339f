"""Counts as text."""


def bar(count, most, width=20, sign="*"):
    """Return the bar of a count when the most have the whole width."""
    if count < 0 or most < count:
        raise ValueError("count must be from 0 to most")
    if most == 0:
        return ""
    size = count * width // most
    if count > 0 and size == 0:
        size = 1
    return sign * size


def chart(names, counts, width=20):
    """Return a line for each name with its bar and its count."""
    if len(names) != len(counts):
        raise ValueError("a name for each count is needed")
    most = max(counts, default=0)
    margin = max([len(name) for name in names], default=0)
    lines = []
    for i, count in enumerate(counts):
        drawn = bar(count, most, width)
        lines.append(f"{names[i].rjust(margin)} |{drawn} {count}")
    return lines


def cumulative(counts, start=0):
    """Return the running sums of counts."""
    total = start
    sums = []
    for count in counts:
        total += count
        sums.append(total)
    return sums


def tallest(counts):
    """Return the index of the first greatest count."""
    return counts.index(max(counts))
