"""A node is a dict from a letter to a node; END marks a whole word."""

END = "end"


def add_word(trie, word):
    """Add a word; tell whether it was new."""
    if word == "":
        raise ValueError("an empty word")
    node = trie
    for letter in word:
        node = node.setdefault(letter, {})
    is_new = END not in node
    node[END] = True
    return is_new


def build(words):
    """Return the trie of a list of words."""
    trie = {}
    for word in words:
        add_word(trie, word)
    return trie


def has_word(trie, text):
    """Tell whether a whole word is in the trie."""
    for sign in text:
        if sign not in trie:
            return False
        trie = trie[sign]
    return END in trie


def count_words(trie):
    """Return how many words are in the trie."""
    count = 0
    for key, child in trie.items():
        if key == END:
            count += 1
        else:
            count += count_words(child)
    return count
