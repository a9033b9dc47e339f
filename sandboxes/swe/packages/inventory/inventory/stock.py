"""The quantities on the shelves."""


class Stock:
    """Quantities and reservations by item name."""

    def __init__(self, quantities=None):
        self.quantities = dict(quantities or {})
        self.reserved = {}

    def receive(self, item, quantity=1):
        """Add a delivery and return the new quantity of the item."""
        if quantity < 1:
            raise ValueError("a delivery has at least one piece")
        self.quantities[item] = self.quantities.get(item, 0) + quantity
        return self.quantities[item]

    def free(self, item):
        """Return the pieces that are neither gone nor reserved."""
        return self.quantities.get(item, 0) - self.reserved.get(item, 0)

    def reserve(self, item, pieces):
        """Reserve pieces of an item; tell whether there were enough."""
        if pieces > self.free(item):
            return False
        self.reserved[item] = self.reserved.get(item, 0) + pieces
        return True

    def ship(self, item, count):
        """Send count reserved pieces away and return what is left of the item."""
        waiting = self.reserved.get(item, 0)
        if count > waiting:
            raise ValueError("more than was reserved")
        self.reserved[item] = waiting - count
        left = self.quantities[item] - count
        self.quantities[item] = left
        if self.reserved[item] == 0:
            del self.reserved[item]
        return left
