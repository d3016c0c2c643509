"""Instants and durations, as text and as datetimes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_core.errors import ScheduleError
from sexton_core.instants import (
    DAY,
    HOUR,
    MAX_DURATION,
    MAX_INSTANT,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    format_duration,
    format_instant,
    from_datetime,
    parse_duration,
    parse_instant,
    to_datetime,
)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-29T03:00:00Z", 1_795_921_200 * SECOND),
        ("2026-11-29T04:00:00+01:00", 1_795_921_200 * SECOND),
        ("2026-11-28T22:00:00-05:00", 1_795_921_200 * SECOND),
        ("2026-11-29 03:00:00z", 1_795_921_200 * SECOND),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.5Z", 500 * MILLISECOND),
        ("2261-12-31T23:59:59Z", MAX_INSTANT),
        ("1970-01-01T05:30:00+05:30", 0),
    ],
)
def test_rfc_3339_is_read(text: str, instant: int) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-29",
        "2026-11-29T03:00:00",
        "2026-11-29T03:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T23:59:60Z",
        "2026-11-29T03:00:00+24:00",
        "2026-11-29T03:00:00.0000000001Z",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "2261-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00Z",
        "\u0662026-11-29T03:00:00Z",
        "2026-11-29T03:00:00Z" + " " * 10_000,
    ],
)
def test_anything_else_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_instant(text, field="start")
    assert caught.value.field == "start"
    assert len(str(caught.value)) < 250


@given(st.integers(0, MAX_INSTANT))
def test_an_instant_comes_back_from_its_text(instant: int) -> None:
    assert parse_instant(format_instant(instant)) == instant


def test_the_text_of_an_instant_has_no_needless_fraction() -> None:
    assert format_instant(0) == "1970-01-01T00:00:00Z"
    assert format_instant(1_500 * MILLISECOND) == "1970-01-01T00:00:01.5Z"
    assert format_instant(MAX_INSTANT) == "2261-12-31T23:59:59Z"


def test_datetimes_keep_their_zone_and_lose_nothing_above_a_microsecond() -> None:
    moment = datetime(2026, 11, 29, 4, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=1)))
    instant = from_datetime(moment)
    assert format_instant(instant) == "2026-11-29T03:00:00.123456Z"
    assert to_datetime(instant) == moment
    assert to_datetime(instant + 999).microsecond == 123_456


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a datetime with a time zone"):
        from_datetime(datetime(2026, 11, 29))  # noqa: DTZ001 - the point


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2261, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-1))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_datetime_outside_the_calendar_is_refused(moment: datetime) -> None:
    with pytest.raises(ScheduleError, match="between 1970-01-01 and 2261-12-31"):
        from_datetime(moment)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("90s", 90 * SECOND),
        ("1h30m", HOUR + 30 * MINUTE),
        ("2d", 2 * DAY),
        ("1w", WEEK),
        ("1w2d3h4m5s6ms7us8ns", WEEK + 2 * DAY + 3 * HOUR + 4 * MINUTE + 5_006_007_008),
        ("0s", 0),
        ("5m", 5 * MINUTE),
        ("5ms", 5 * MILLISECOND),
    ],
)
def test_durations_are_read(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "s",
        "-5s",
        "1.5h",
        "30m1h",
        "1h 30m",
        "1y",
        "5S",
        "1h1h",
        "9" * 40 + "w",
        "\u0665s",
    ],
)
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_duration(text, field="every")
    assert caught.value.field == "every"


@given(st.integers(0, MAX_DURATION))
def test_a_duration_comes_back_from_its_text(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0s"), (90 * SECOND, "1m30s"), (36 * HOUR, "1d12h"), (-5 * MINUTE, "-5m")],
)
def test_durations_are_written_short(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text
