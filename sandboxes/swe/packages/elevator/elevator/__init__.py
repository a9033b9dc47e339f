"""A lift and plans for its stops."""

from elevator.lift import Lift
from elevator.plan import nearest_lift, sweep, travel

__all__ = ["Lift", "nearest_lift", "sweep", "travel"]
