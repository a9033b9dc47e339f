"""Summaries of the entries of an account."""


def totals(entries):
    """Return (money in, money out), both as positive numbers."""
    incoming = 0
    outgoing = 0
    for _, amount in entries:
        if amount > 0:
            incoming += amount
        else:
            outgoing -= amount
    return incoming, outgoing


def balance_after(entries, count, opening=0):
    """Return the balance after the first count entries."""
    if count > len(entries):
        raise IndexError("there are fewer entries")
    balance = opening
    for entry in entries[:count]:
        balance += entry[1]
    return balance


def largest_entry(entries, incoming=True):
    """Return the note of the largest entry in one direction, or None."""
    best_note = None
    best = 0
    for note, amount in entries:
        size = amount if incoming else -amount
        if size > best:
            best = size
            best_note = note
    return best_note
