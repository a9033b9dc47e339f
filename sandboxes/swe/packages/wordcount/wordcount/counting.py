"""Count and rank the words of a text."""

from wordcount.splitting import words


def count_words(text, ignore=()):
    """Return a dict from each word to its number, without the ignored ones."""
    counts = {}
    for word in words(text):
        if word in ignore:
            continue
        counts[word] = counts.get(word, 0) + 1
    return counts


def top_words(text, limit=3, at_least=1):
    """Return the most frequent words; equally frequent ones by alphabet."""
    if limit < 0:
        raise ValueError("limit must not be negative")
    ranked = []
    for name, number in count_words(text).items():
        if number >= at_least:
            ranked.append((-number, name))
    ranked.sort()
    return [entry[1] for entry in ranked[:limit]]


def frequency(text, target):
    """Return the share of target among all words, 0 for no words."""
    numbers = count_words(text)
    total = sum(numbers.values())
    if total == 0:
        return 0.0
    return numbers.get(target.lower(), 0) / total
