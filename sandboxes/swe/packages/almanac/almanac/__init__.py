"""Arithmetic on calendar dates given as (year, month, day)."""

from almanac.counting import add_days, day_number, days_between
from almanac.months import add_months, days_in_month, is_leap, is_valid
from almanac.weeks import next_weekday, parse_date, weekday

__all__ = [
    "add_days",
    "add_months",
    "day_number",
    "days_between",
    "days_in_month",
    "is_leap",
    "is_valid",
    "next_weekday",
    "parse_date",
    "weekday",
]
