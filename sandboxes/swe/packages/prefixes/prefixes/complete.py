"""Words by their beginning."""

from prefixes.trie import END, count_words, has_word


def words_below(node, start, found):
    """Add to a list every word below a node, in order."""
    if END in node:
        found.append(start)
    for letter in sorted(key for key in node if key != END):
        words_below(node[letter], start + letter, found)
    return found


def complete(trie, start, limit=5):
    """Return the first words that begin with a start."""
    node = trie
    for sign in start:
        if sign not in node:
            return []
        node = node[sign]
    return words_below(node, start, [])[:limit]


def longest_prefix(trie, text):
    """Return the longest word that the text begins with, or ''."""
    best = ""
    for size in range(1, len(text) + 1):
        if has_word(trie, text[:size]):
            best = text[:size]
    return best


def shortest_unique(trie, word):
    """Return the shortest beginning that only this word has."""
    branch = trie
    for place, sign in enumerate(word, start=1):
        branch = branch[sign]
        if count_words(branch) == 1:
            return word[:place]
    return word
