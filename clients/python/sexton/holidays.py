"""Public holidays as dates: for calendars, which hold their days by value.

Needs `pip install sexton[holidays]`, which brings the `holidays` package and its knowledge of some
two hundred countries.

>>> days = holiday_dates("DE-BY", years=1, today=date(2026, 6, 1))
>>> (len(days), days[0].isoformat(), days[-1].isoformat())
(12, '2026-01-01', '2026-12-26')
"""

from __future__ import annotations

from datetime import date
from typing import Final

from sexton.errors import InvalidArgument, Unavailable

DEFAULT_YEARS: Final = 3
MAX_YEARS: Final = 10


def holiday_dates(
    region: str, *, years: int = DEFAULT_YEARS, today: date | None = None
) -> tuple[date, ...]:
    """Gives the public holidays of this year and the following ones.

    A definition that holds them knows nothing of later years: define the job again in time, once a
    year say. What a parliament decides meanwhile comes with a newer `holidays` package.

    Args:
        region: a country by ISO 3166, `DE`, or a part of one, `DE-BY`.
        years: how many, the current one included; 1 to 10.
        today: what is the current year; None: by this machine's clock.

    Raises:
        InvalidArgument: the region is not known, or the years are too many.
        Unavailable: the `holidays` package is not installed.
    """
    try:
        import holidays  # noqa: PLC0415 - an extra
    except ImportError:
        raise Unavailable(
            "holidays need the package of that name: pip install 'sexton[holidays]'"
        ) from None
    if not 1 <= years <= MAX_YEARS:
        raise InvalidArgument("years", years, f"1 to {MAX_YEARS}")
    first = (today or date.today()).year  # noqa: DTZ011 - a civil year
    country, _, part = region.partition("-")
    try:
        found = holidays.country_holidays(
            country, subdiv=part or None, years=range(first, first + years)
        )
    except NotImplementedError as error:
        expected = f"a country such as DE, or a part of one such as DE-BY ({error})"
        raise InvalidArgument("holidays", region, expected) from None
    return tuple(sorted(found))
