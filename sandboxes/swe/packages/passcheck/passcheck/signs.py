"""What kinds of signs a text has and how they repeat."""


def count_classes(text):
    """Return how many of lower, upper, digit and other signs occur."""
    lower = upper = digit = other = 0
    for sign in text:
        if sign.islower():
            lower = 1
        elif sign.isupper():
            upper = 1
        elif sign.isdigit():
            digit = 1
        else:
            other = 1
    return lower + upper + digit + other


def longest_run(text):
    """Return the length of the longest run of one sign."""
    best = run = 0
    before = None
    for letter in text:
        run = run + 1 if letter == before else 1
        best = max(best, run)
        before = letter
    return best


def longest_series(text):
    """Return the length of the longest rising series such as 'abc'."""
    most = length = 0
    last = -1
    for code in [ord(sign) for sign in text]:
        length = length + 1 if code == last + 1 else 1
        most = max(most, length)
        last = code
    return most
