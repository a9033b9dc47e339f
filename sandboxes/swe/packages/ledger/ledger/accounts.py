"""One account and its entries."""


class InsufficientFunds(ValueError):
    """The balance and the overdraft do not cover the amount."""


class Account:
    """An account with a balance in cents."""

    def __init__(self, owner, balance=0, overdraft=0):
        self.owner = owner
        self.balance = balance
        self.overdraft = overdraft
        self.entries = []

    def deposit(self, amount, note="deposit"):
        """Add amount and return the new balance."""
        if amount <= 0:
            raise ValueError("only positive amounts can be paid in")
        self.balance += amount
        self.entries.append((note, amount))
        return self.balance

    def available(self):
        """Return how much can be taken out."""
        return self.overdraft + self.balance

    def withdraw(self, amount, fee=0, note="withdrawal"):
        """Take amount and the fee out and return the new balance."""
        if amount < 1 or fee < 0:
            raise ValueError("amount and fee must not be negative")
        cost = amount + fee
        if cost > self.available():
            raise InsufficientFunds("not enough money")
        self.entries.append((note, -amount))
        if fee:
            self.entries.append(("fee", -fee))
        remaining = self.balance - cost
        self.balance = remaining
        return remaining
