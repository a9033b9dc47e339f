"""Binary search without a plain sorted list."""


def turning_point(items):
    """Return the index of the smallest item of a rotated sorted list."""
    if not items:
        raise ValueError("nothing to search")
    low = 0
    high = len(items) - 1
    for _ in items:
        if low == high:
            break
        middle = (low + high) // 2
        if items[middle] > items[high]:
            low = middle + 1
        else:
            high = middle
    return low


def root(number):
    """Return the greatest whole number whose square is not above number."""
    if number < 0:
        raise ValueError("negative numbers have no root")
    best, limit = 0, number + 1
    for _ in range(number.bit_length() + 1):
        guess = (best + limit) // 2
        if guess * guess <= number:
            best = guess
        else:
            limit = guess
    return best
