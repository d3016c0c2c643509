"""Dates of the proleptic Gregorian calendar as day numbers; day 0 is 1970-01-01, a Thursday.

`datetime.date` ends with the year 9999, and rules of zones are asked for beyond it.
"""

from typing import Final

DAY_SECONDS: Final = 86_400

_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH_ORDINAL = 719_163


def is_leap(year: int) -> bool:
    """Tells whether the year has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    """Returns 28 to 31; months count from 1."""
    return 29 if month == 2 and is_leap(year) else _LENGTHS[month - 1]


def day_number(year: int, month: int, day: int) -> int:
    """Returns the days since 1970-01-01; `day` may lie outside the month."""
    past = year - 1
    ordinal = past * 365 + past // 4 - past // 100 + past // 400 + _DAYS_BEFORE[month - 1] + day
    if month > 2 and is_leap(year):
        ordinal += 1
    return ordinal - _EPOCH_ORDINAL


def weekday(number: int) -> int:
    """Returns the day's weekday as cron counts it: 0 is Sunday, 6 is Saturday."""
    return (number + 4) % 7
