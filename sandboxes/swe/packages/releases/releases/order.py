"""Which version is newer."""

from releases.version import parse_version


def sort_key(text):
    """Return a key that sorts versions; a stage comes before its release."""
    major, minor, patch, stage = parse_version(text)
    words = []
    for word in stage.split("."):
        if word.isdigit():
            word = word.zfill(9)
        words.append(word)
    return (major, minor, patch, stage == "", words)


def compare(left, right):
    """Return -1, 0 or 1: whether left is older, equal or newer."""
    older = sort_key(left) < sort_key(right)
    newer = sort_key(left) > sort_key(right)
    return newer - older


def latest(texts, stages=False):
    """Return the newest text; early stages only count if asked for."""
    best = None
    for text in texts:
        if parse_version(text)[3] and not stages:
            continue
        if best is None or compare(text, best) > 0:
            best = text
    return best
