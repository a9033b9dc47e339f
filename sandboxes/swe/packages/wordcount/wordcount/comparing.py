"""Compare two texts by the words they use."""

from wordcount.counting import count_words


def common_words(first, second):
    """Return the words of both texts with the smaller of their two counts."""
    left = count_words(first)
    right = count_words(second)
    common = {}
    for word, count in left.items():
        if word in right:
            common[word] = min(count, right[word])
    return common


def similarity(text, other, digits=2):
    """Return shared words divided by all words of the longer text."""
    longest = 0
    for candidate in (text, other):
        size = sum(count_words(candidate).values())
        longest = max(longest, size)
    if longest == 0:
        return 1.0
    shared = sum(common_words(text, other).values())
    return round(shared / longest, digits)
