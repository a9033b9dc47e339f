"""Send messages, and send them again."""

from courier.errors import DeliveryError, GaveUp
from courier.policy import Policy
from courier.sender import Sender

__all__ = ["DeliveryError", "GaveUp", "Policy", "Sender"]
