"""Week days, and dates written as text."""

from almanac.counting import add_days, days_between
from almanac.months import is_valid

NAMES = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
MONDAY = (2001, 1, 1)


def weekday(date):
    """Return the short name of the date's week day."""
    return NAMES[days_between(MONDAY, date) % 7]


def next_weekday(date, name, today=False):
    """Return the next date with that week day; today allows the date itself."""
    if name not in NAMES:
        raise ValueError("unknown week day")
    distance = NAMES.index(name) - NAMES.index(weekday(date))
    if distance < 0 or (distance == 0 and not today):
        distance += 7
    return add_days(date, distance)


def parse_date(text, separator="-"):
    """Read a date such as 2024-02-29; raise ValueError if there is none."""
    parts = text.split(separator)
    if len(parts) != 3:
        raise ValueError("three numbers are needed")
    year, month, day = [int(part) for part in parts]
    if not is_valid((year, month, day)):
        raise ValueError("there is no such date")
    return year, month, day
