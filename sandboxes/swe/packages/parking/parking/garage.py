"""A garage that knows which cars are inside."""

from parking.fees import stay_fee


class Garage:
    """Cars enter and leave at times given in minutes."""

    def __init__(self, places):
        if places < 1:
            raise ValueError("a garage needs a place")
        self.places = places
        self.inside = {}
        self.income = 0

    def free_places(self):
        """Return how many places are free."""
        return self.places - len(self.inside)

    def enter(self, plate, now):
        """Let a car in; tell whether there was a place for it."""
        if plate in self.inside:
            raise ValueError("car is inside already")
        if self.free_places() == 0:
            return False
        self.inside[plate] = now
        return True

    def leave(self, plate, now):
        """Let a car out and return its fee."""
        if plate not in self.inside:
            raise ValueError("car is not inside")
        entered = self.inside.pop(plate)
        if now < entered:
            raise ValueError("a car cannot leave before it enters")
        fee = stay_fee(now - entered)
        self.income += fee
        return fee
