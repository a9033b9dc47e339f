"""Which page links to show, and what to write on them."""


def window(page, count, width=2):
    """Return the page numbers within a width around a page."""
    low = max(1, page - width)
    high = min(count, page + width)
    return list(range(low, high + 1))


def neighbours(page, count):
    """Return the pages before and after; None where there is none."""
    before = page - 1
    after = page + 1
    if before < 1:
        before = None
    if after > count:
        after = None
    return (before, after)


def label(page, count, width=2):
    """Return the line of links with gaps and the page in brackets."""
    shown = window(page, count, width)
    words = []
    if shown[0] > 1:
        words.append("..")
    for number in shown:
        if number == page:
            words.append("[" + str(number) + "]")
        else:
            words.append(str(number))
    if shown[-1] < count:
        words.append("...")
    return " ".join(words)
