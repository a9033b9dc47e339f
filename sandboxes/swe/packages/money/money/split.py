"""Sums cut into shares."""


def split_evenly(cents, people):
    """Return equal shares; the first ones carry the left-over cents."""
    if people < 1:
        raise ValueError("nobody to share with")
    share = cents // people
    extra = cents % people
    shares = []
    for number in range(people):
        if number < extra:
            shares.append(share + 1)
        else:
            shares.append(share)
    return shares


def split_by(cents, weights):
    """Return shares by weights; the heaviest carries what is left."""
    total = sum(weights)
    if total <= 0 or min(weights) < 0:
        raise ValueError("weights must not be negative, nor all zero")
    parts = [cents * weight // total for weight in weights]
    heaviest = weights.index(max(weights))
    parts[heaviest] += cents - sum(parts)
    return parts
