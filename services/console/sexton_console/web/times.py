"""Times on pages: in the job's zone on the server, in the viewer's in the browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from markupsafe import Markup

from sexton_core.errors import FieldError
from sexton_core.instants import format_instant, from_datetime, to_datetime
from sexton_core.zones import get_zone

Moment = Timestamp | datetime | int | float | None
"""A message, a datetime, nanoseconds (whole), or seconds (with a fraction) since the epoch."""

NEVER: Final = Markup('<span class="none">–</span>')


def instant_of(moment: Moment) -> int | None:
    """Gives nanoseconds since the epoch; None where nothing is set."""
    match moment:
        case None:
            return None
        case Timestamp():
            return moment.ToNanoseconds() or None
        case datetime():
            return from_datetime(moment)
        case int():
            return moment or None
        case float():
            return round(moment * 1e9) or None


def iso(moment: Moment) -> str:
    """Gives RFC 3339 in UTC; empty for none."""
    instant = instant_of(moment)
    return "" if instant is None else format_instant(instant)


def when(moment: Moment, zone: str = "UTC", style: str = "long") -> Markup:
    """Gives a time element: the wall time of the zone; scripts add the viewer's.

    Styles: `long` with the day, and the year where it is another; `clock` without; `exact` with
    milliseconds; `ago` for a distance.
    """
    instant = instant_of(moment)
    if instant is None:
        return NEVER
    local, name = _local(instant, zone)
    year = "" if local.year == datetime.now(UTC).year else f" {local.year:04d}"
    text = {
        "long": f"{local:%a %d %b}{year} {local:%H:%M:%S}",
        "clock": f"{local:%H:%M:%S}",
        "exact": f"{local:%H:%M:%S}.{instant // 1_000_000 % 1_000:03d}",
        "ago": f"{local:%d %b %H:%M:%S}",
    }[style]
    if style == "long" and name != "UTC":
        text += f" {local:%z}"
    # Scripts read it; milliseconds are what they can use.
    exact = to_datetime(instant).astimezone(UTC).isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" data-style="{}" data-zone="{}">{}</time>').format(
        exact.replace("+00:00", "Z"), style, name, text
    )


def _local(instant: int, zone: str) -> tuple[datetime, str]:
    try:
        return get_zone(zone).local(instant), zone
    except FieldError:  # a zone that only a newer mesh knows
        return to_datetime(instant), "UTC"
