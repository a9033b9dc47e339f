"""A lift with a floor, a direction and calls."""

from elevator.plan import sweep


class Lift:
    """Moves between floor 0 and the top."""

    def __init__(self, top, floor=0):
        if floor < 0 or floor > top:
            raise ValueError("no such floor")
        self.top = top
        self.floor = floor
        self.direction, self.calls = 0, []

    def call(self, floor):
        """Note a call; tell whether it is a new one."""
        if not 0 <= floor <= self.top:
            raise ValueError("a call from nowhere")
        is_new = floor != self.floor and floor not in self.calls
        if is_new:
            self.calls.append(floor)
        return is_new

    def turn(self):
        """Choose the direction of the next move."""
        upward = self.direction >= 0
        self.direction = 0
        if self.calls:
            goal = sweep(self.floor, self.calls, upward)[0]
            self.direction = 1 if goal > self.floor else -1

    def step(self):
        """Move one floor; tell whether the doors open there."""
        self.turn()
        self.floor += self.direction
        if self.floor in self.calls:
            self.calls.remove(self.floor)
            return True
        return False
