"""Count days from one date to another."""

from almanac.months import days_in_month, is_leap


def day_number(date):
    """Return the place of the date in its year, 1 for the first of January."""
    if date[2] < 1 or date[2] > days_in_month(date[0], date[1]):
        raise ValueError("no such day")
    total = date[2]
    for earlier in range(1, date[1]):
        total += days_in_month(date[0], earlier)
    return total


def days_between(start, end):
    """Return how many days end is after start; negative if it is before."""
    if start > end:
        return -days_between(end, start)
    days = day_number(end) - day_number(start)
    for between in range(start[0], end[0]):
        days += 366 if is_leap(between) else 365
    return days


def add_days(date, amount):
    """Return the date that is amount days later; amount must not be negative."""
    if amount < 0:
        raise ValueError("cannot go back")
    year, month, day = date
    for _ in range(amount):
        day += 1
        if day > days_in_month(year, month):
            day = 1
            month += 1
        if month > 12:
            month = 1
            year += 1
    return year, month, day
