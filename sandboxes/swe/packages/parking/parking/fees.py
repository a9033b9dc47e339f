"""Fees in cents for a stay given in minutes."""

DAY = 1440


def started_hours(minutes):
    """Return how many hours have been started."""
    if minutes < 0:
        raise ValueError("minutes must not be negative")
    hours = minutes // 60
    if minutes % 60 > 0:
        hours += 1
    return hours


def daily_fee(minutes, first_hour=300, next_hour=200, cap=1500):
    """Return the fee of at most one day, never above the cap."""
    hours_due = started_hours(minutes)
    fee = 0
    if hours_due > 0:
        fee = first_hour + (hours_due - 1) * next_hour
    return min(fee, cap)


def stay_fee(minutes, free=15, cap=1500):
    """Return the fee of a stay of any length."""
    if minutes <= free:
        return 0
    days = minutes // DAY
    rest = minutes % DAY
    return days * cap + daily_fee(rest, cap=cap)


def lost_ticket_fee(days, cap=1500, handling=1000):
    """Return the fee of a lost ticket; at least one day is due."""
    if days < 1:
        days = 1
    return days * cap + handling
