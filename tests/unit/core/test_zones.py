"""Zones: the names, the offsets beside Python's own ZoneInfo, and the changes."""

import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.cron.brute import offset_at
from unit.examples import examples

from sexton_core.dst import MAX_SECOND, skipped_in
from sexton_core.instants import SECOND, parse_instant
from sexton_core.zones import FAR, Zone, get_zone, tzdata_version, zone_names


def second_of(text: str) -> int:
    return parse_instant(text) // SECOND


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(sorted(zone_names())),
    st.integers(0, MAX_SECOND - 86_400) | st.integers(0, 2**32),
)
def test_an_offset_is_the_one_of_zoneinfo_up_to_the_year_2261(name: str, second: int) -> None:
    assert get_zone(name).offset(second) == offset_at(name, second)


@pytest.mark.slow
def test_each_side_of_each_change_is_the_one_of_zoneinfo() -> None:
    for name in sorted(zone_names())[::5]:
        for change in get_zone(name).changes(0, second_of("2045-01-01T00:00:00Z")):
            assert offset_at(name, change.start) == change.offset
            assert offset_at(name, change.start - 1) == change.before


def test_the_changes_of_a_year() -> None:
    zone = get_zone("Europe/Berlin")
    first, last = second_of("2026-01-01T00:00:00Z"), second_of("2027-01-01T00:00:00Z")
    spring, autumn = zone.changes(first, last)
    assert spring.start == second_of("2026-03-29T01:00:00Z")
    assert (spring.before, spring.offset, spring.gap, spring.fold) == (3600, 7200, 3600, 0)
    assert autumn.start == spring.end == second_of("2026-10-25T01:00:00Z")
    assert (autumn.before, autumn.offset, autumn.gap, autumn.fold) == (7200, 3600, 0, 3600)


def test_the_rule_after_the_table_goes_on_for_ever() -> None:
    zone = get_zone("Europe/Berlin")
    first, last = second_of("2260-01-01T00:00:00Z"), second_of("2261-01-01T00:00:00Z")
    assert [change.offset for change in zone.changes(first, last)] == [7200, 3600]


def test_a_zone_without_changes_is_one_stretch() -> None:
    found = get_zone("UTC").segment(0)
    assert (found.start, found.end, found.offset) == (-FAR, FAR, 0)


def test_a_change_of_a_whole_day_is_neither_gap_nor_fold() -> None:
    zone = get_zone("Pacific/Apia")
    change = zone.segment(second_of("2011-12-30T10:00:00Z"))
    assert change.offset - change.before == 86_400
    assert (change.gap, change.fold) == (0, 0)


@pytest.mark.parametrize(
    ("wall", "instants"),
    [
        ("2026-03-29T01:59:59", ["2026-03-29T00:59:59Z"]),
        ("2026-03-29T02:00:00", []),
        ("2026-03-29T02:59:59", []),
        ("2026-03-29T03:00:00", ["2026-03-29T01:00:00Z"]),
        ("2026-10-25T02:00:00", ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"]),
        ("2026-10-25T03:00:00", ["2026-10-25T02:00:00Z"]),
    ],
)
def test_when_a_clock_shows_a_time(wall: str, instants: list[str]) -> None:
    zone = get_zone("Europe/Berlin")
    shown = second_of(f"{wall}Z")
    assert zone.seconds_showing(shown) == [second_of(text) for text in instants]
    assert (skipped_in(zone, shown) is None) is bool(instants)


def test_local_time_carries_the_offset_of_its_pass() -> None:
    zone = get_zone("Europe/Berlin")
    passes = [parse_instant("2026-10-25T00:30:00Z"), parse_instant("2026-10-25T01:30:00Z")]
    assert [zone.local(t).isoformat() for t in passes] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
    ]


def test_there_is_one_object_per_zone_even_after_pickling() -> None:
    zone = get_zone("Asia/Tokyo")
    assert isinstance(zone, Zone)
    assert pickle.loads(pickle.dumps(zone)) is zone


def test_the_data_has_a_version_to_be_recorded() -> None:
    assert re.fullmatch(r"20\d\d[a-z]+", tzdata_version())
    assert len(zone_names()) > 500
