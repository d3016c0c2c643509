"""What an address asks for: the query's parts, checked."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request

from sexton.errors import InvalidArgument
from sexton_core.errors import FieldError, ScheduleError
from sexton_core.instants import SECOND, from_datetime, parse_instant, to_datetime
from sexton_core.zones import get_zone

_LONGEST: Final = 300
_DIGITS: Final = 18


def text(request: Request, name: str, default: str = "") -> str:
    """Gives a part as text, without what it could do to a page's layout."""
    given = request.query_params.get(name, default).strip()
    return "".join(c for c in given if c.isprintable())[:_LONGEST]


def choice(request: Request, name: str, words: Collection[str], default: str = "") -> str:
    """Gives one of some words; what is none of them is the default."""
    given = request.query_params.get(name, default)
    return given if given in words else default


def number(request: Request, name: str, most: int) -> int:
    """Gives a whole number from 0 to `most`; what is none is 0."""
    given = request.query_params.get(name, "")
    plain = given.isascii() and given.isdecimal() and len(given) <= _DIGITS
    return min(most, int(given)) if plain else 0


def moment(request: Request, name: str, zone: str = "UTC") -> datetime | None:
    """Gives a time; None where none is given.

    With an offset or `Z` an instant, else a wall time of the zone, of which the first counts where
    the clock shows it twice.

    Raises:
        InvalidArgument: it is no time, or the zone's clock skips it.
    """
    given = request.query_params.get(name, "").strip()
    return read_moment(name, given, zone) if given else None


def read_moment(name: str, given: str, zone: str = "UTC") -> datetime:
    """Gives the time of a text; see `moment`."""
    try:
        return to_datetime(parse_instant(given.replace(" ", "T"), field=name))
    except (FieldError, ScheduleError, ValueError):
        pass
    try:
        wall = datetime.fromisoformat(given).replace(tzinfo=UTC)
        seconds = get_zone(zone).seconds_showing(from_datetime(wall) // SECOND)
    except (FieldError, ScheduleError, ValueError, OverflowError):
        raise InvalidArgument(name, given, "a time, such as 2026-11-29T21:30:00Z") from None
    if not seconds:
        raise InvalidArgument(name, given, f"a time that the clock of {zone} shows")
    return to_datetime(seconds[0] * SECOND)
