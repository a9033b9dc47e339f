"""Leap years and the lengths of months."""

LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def is_leap(year):
    """Tell whether year has 366 days."""
    if year % 400 == 0:
        return True
    return year % 4 == 0 and year % 100 != 0


def days_in_month(year, month):
    """Return the number of days of a month, counted from 1."""
    if month < 1 or month > 12:
        raise ValueError("no such month")
    if month == 2 and is_leap(year):
        return 29
    return LENGTHS[month - 1]


def is_valid(date):
    """Tell whether the (year, month, day) triple is a date."""
    year, month, day = date
    try:
        length = days_in_month(year, month)
    except ValueError:
        return False
    return 1 <= day <= length


def add_months(date, count, keep_end=True):
    """Move date by count months; days past the end become the last day."""
    index = date[0] * 12 + date[1] - 1 + count
    new_year = index // 12
    new_month = index % 12 + 1
    last = days_in_month(new_year, new_month)
    if date[2] > last and not keep_end:
        raise ValueError("the month is too short")
    return new_year, new_month, min(date[2], last)
