"""Fees and places of a car park."""

from parking.fees import daily_fee, lost_ticket_fee, started_hours, stay_fee
from parking.garage import Garage

__all__ = ["Garage", "daily_fee", "lost_ticket_fee", "started_hours", "stay_fee"]
