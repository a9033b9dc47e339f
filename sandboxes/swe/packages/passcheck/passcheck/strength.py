"""How hard a password is to guess."""

from passcheck.signs import count_classes, longest_series

COMMON = ("password", "welcome", "dragon", "letmein")


def is_common(password, words=COMMON):
    """Tell whether a password is a common word with digits around."""
    core = password.lower().strip("0123456789")
    return core in words or core == ""


def score(password):
    """Return 0 for a common word, up to 4 for a long and mixed one."""
    if is_common(password):
        return 0
    points = 0
    if len(password) >= 8:
        points += 1
    if len(password) >= 14:
        points += 2
    if count_classes(password) >= 3:
        points = points + 1
    if longest_series(password) > 3:
        points -= 1
    return max(points, 0)
