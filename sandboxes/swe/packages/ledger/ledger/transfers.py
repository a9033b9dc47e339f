"""Move money between accounts."""

from ledger.accounts import InsufficientFunds


def transfer(source, target, amount, fee=0):
    """Move amount from source to target; tell whether it was possible."""
    if source is target:
        raise ValueError("the accounts are the same")
    try:
        source.withdraw(amount, fee, note="to " + target.owner)
    except InsufficientFunds:
        return False
    target.deposit(amount, note="from " + source.owner)
    return True


def split_amount(total, people):
    """Divide total cents among people; the first ones get a cent more."""
    if people <= 0:
        raise ValueError("at least one person is needed")
    share = total // people
    rest = total % people
    parts = []
    for number in range(people):
        if number < rest:
            parts.append(share + 1)
        else:
            parts.append(share)
    return parts
