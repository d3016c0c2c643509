"""The examples of RFC 5545, section 3.8.5.3, with the dates that it states for each.

All are in America/New_York. The offsets follow from the zone, EDT until the last Sunday of
October in 1997 and EST from then on, so that each row is a statement about instants.
"""

from datetime import datetime

import pytest

from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, Instant
from sexton_core.schedule import between, between_backwards
from sexton_core.schedules import RRuleTiming, ScheduleSpec, build
from sexton_core.zones import get_zone

NEW_YORK = get_zone("America/New_York")
NINE = "09:00"

EXAMPLES = [
    # (start, rule, how many there are or None for ever, the first dates)
    ("1997-09-02", "FREQ=DAILY;COUNT=10", 10, "9/2-9/11"),
    ("1997-09-02", "FREQ=DAILY;UNTIL=19971224T000000Z", 113, "9/2-9/30 10/1-10/31 11/1-11/30"),
    ("1997-09-02", "FREQ=DAILY;INTERVAL=2", None, "9/2 9/4 9/6 9/8 9/10 9/12"),
    ("1997-09-02", "FREQ=DAILY;INTERVAL=10;COUNT=5", 5, "9/2 9/12 9/22 10/2 10/12"),
    (
        "1998-01-01",
        "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
        93,
        "1998: 1/1-1/31 1999: 1/1-1/31 2000: 1/1-1/31",
    ),
    (
        "1998-01-01",
        "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1",
        93,
        "1998: 1/1-1/31 1999: 1/1-1/31 2000: 1/1-1/31",
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;COUNT=10",
        10,
        "9/2 9/9 9/16 9/23 9/30 10/7 10/14 10/21 10/28 11/4",
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;UNTIL=19971224T000000Z",
        17,
        "9/2 9/9 9/16 9/23 9/30 10/7 10/14 10/21 10/28 11/4 11/11 11/18 11/25 12/2 12/9 12/16",
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU",
        None,
        "9/2 9/16 9/30 10/14 10/28 11/11 11/25 12/9 12/23 1998: 1/6 1/20 2/3 2/17",
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
        10,
        "9/2 9/4 9/9 9/11 9/16 9/18 9/23 9/25 9/30 10/2",
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH",
        10,
        "9/2 9/4 9/9 9/11 9/16 9/18 9/23 9/25 9/30 10/2",
    ),
    (
        "1997-09-01",
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        25,
        """9/1 9/3 9/5 9/15 9/17 9/19 9/29 10/1 10/3 10/13 10/15 10/17 10/27 10/29 10/31
        11/10 11/12 11/14 11/24 11/26 11/28 12/8 12/10 12/12 12/22""",
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
        8,
        "9/2 9/4 9/16 9/18 9/30 10/2 10/14 10/16",
    ),
    (
        "1997-09-05",
        "FREQ=MONTHLY;COUNT=10;BYDAY=1FR",
        10,
        "9/5 10/3 11/7 12/5 1998: 1/2 2/6 3/6 4/3 5/1 6/5",
    ),
    ("1997-09-05", "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR", 4, "9/5 10/3 11/7 12/5"),
    (
        "1997-09-07",
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        10,
        "9/7 9/28 11/2 11/30 1998: 1/4 1/25 3/1 3/29 5/3 5/31",
    ),
    ("1997-09-22", "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", 6, "9/22 10/20 11/17 12/22 1998: 1/19 2/16"),
    ("1997-09-28", "FREQ=MONTHLY;BYMONTHDAY=-3", None, "9/28 10/29 11/28 12/29 1998: 1/29 2/26"),
    (
        "1997-09-02",
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15",
        10,
        "9/2 9/15 10/2 10/15 11/2 11/15 12/2 12/15 1998: 1/2 1/15",
    ),
    (
        "1997-09-30",
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
        10,
        "9/30 10/1 10/31 11/1 11/30 12/1 12/31 1998: 1/1 1/31 2/1",
    ),
    (
        "1997-09-10",
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        10,
        "9/10-9/15 1999: 3/10-3/13",
    ),
    (
        "1997-09-02",
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
        None,
        """9/2 9/9 9/16 9/23 9/30 11/4 11/11 11/18 11/25 1998: 1/6 1/13 1/20 1/27
        3/3 3/10 3/17 3/24 3/31""",
    ),
    (
        "1997-06-10",
        "FREQ=YEARLY;COUNT=10;BYMONTH=6,7",
        10,
        "6/10 7/10 1998: 6/10 7/10 1999: 6/10 7/10 2000: 6/10 7/10 2001: 6/10 7/10",
    ),
    (
        "1997-03-10",
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        10,
        "3/10 1999: 1/10 2/10 3/10 2001: 1/10 2/10 3/10 2003: 1/10 2/10 3/10",
    ),
    (
        "1997-01-01",
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        10,
        "1/1 4/10 7/19 2000: 1/1 4/9 7/18 2003: 1/1 4/10 7/19 2006: 1/1",
    ),
    ("1997-05-19", "FREQ=YEARLY;BYDAY=20MO", None, "5/19 1998: 5/18 1999: 5/17"),
    ("1997-05-12", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", None, "5/12 1998: 5/11 1999: 5/17"),
    (
        "1997-03-13",
        "FREQ=YEARLY;BYMONTH=3;BYDAY=TH",
        None,
        "3/13 3/20 3/27 1998: 3/5 3/12 3/19 3/26 1999: 3/4 3/11 3/18 3/25",
    ),
    (
        "1997-06-05",
        "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8",
        None,
        "6/5 6/12 6/19 6/26 7/3 7/10 7/17 7/24 7/31 8/7 8/14 8/21 8/28 1998: 6/4",
    ),
    (
        "1997-09-13",
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        None,
        "9/13 10/11 11/8 12/13 1998: 1/10 2/7 3/7 4/11 5/9 6/13",
    ),
    (
        "1996-11-05",
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        None,
        "1996: 11/5 2000: 11/7 2004: 11/2",
    ),
    ("1997-09-04", "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", 3, "9/4 10/7 11/6"),
    (
        "1997-09-29",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        None,
        "9/29 10/30 11/27 12/30 1998: 1/29 2/26 3/30",
    ),
    (
        "1997-08-05",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
        4,
        "8/5 8/10 8/19 8/24",
    ),
    (
        "1997-08-05",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
        4,
        "8/5 8/17 8/19 8/31",
    ),
    ("2007-01-15", "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5", 5, "2007: 1/15 1/30 2/15 3/15 3/30"),
]

TIMES_OF_A_DAY = [
    # The RFC writes 17:00 with a Z and means local time (erratum 3883); this is what it means.
    ("FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T210000Z", 3, "09:00 12:00 15:00"),
    ("FREQ=MINUTELY;INTERVAL=15;COUNT=6", 6, "09:00 09:15 09:30 09:45 10:00 10:15"),
    ("FREQ=MINUTELY;INTERVAL=90;COUNT=4", 4, "09:00 10:30 12:00 13:30"),
    (
        "FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40",
        None,
        "09:00 09:20 09:40 10:00 10:20 10:40 11:00",
    ),
    (
        "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16",
        None,
        "09:00 09:20 09:40 10:00 10:20 10:40 11:00",
    ),
]


def _instant(text: str) -> Instant:
    wall = int(datetime.fromisoformat(f"{text}+00:00").timestamp())
    (second,) = NEW_YORK.seconds_showing(wall)
    return second * 1_000_000_000


def _dates(text: str, year: str) -> list[Instant]:
    """Reads `9/2 9/4-9/6 1998: 1/1` as 09:00 of those days."""
    found = []
    for word in text.split():
        if word.endswith(":"):
            year = word[:-1]
            continue
        first, _, last = word.partition("-")
        month, day = first.split("/")
        last_day = last.partition("/")[2] or day
        found += [
            _instant(f"{year}-{int(month):02}-{each:02} {NINE}")
            for each in range(int(day), int(last_day) + 1)
        ]
    return found


def _schedule(start: str, rule: str, extra: str = ""):
    dtstart = start.replace("-", "") + "T090000"
    text = f"DTSTART;TZID=America/New_York:{dtstart}\nRRULE:{rule}\n{extra}"
    return build(ScheduleSpec(timing=RRuleTiming(text=text)))


@pytest.mark.parametrize(("start", "rule", "count", "dates"), EXAMPLES, ids=lambda v: str(v)[:50])
def test_an_example_of_the_rfc_has_the_dates_that_it_states(start, rule, count, dates):
    expected = _dates(dates, start[:4])
    schedule = _schedule(start, rule)
    found = list(between(schedule, MIN_INSTANT, MAX_INSTANT, len(expected)))
    assert found == expected
    if count is not None:
        assert len(list(between(schedule, MIN_INSTANT, MAX_INSTANT, 1_000))) == count


@pytest.mark.parametrize(("start", "rule", "count", "dates"), EXAMPLES, ids=lambda v: str(v)[:50])
def test_an_example_of_the_rfc_is_the_same_backwards(start, rule, count, dates):
    expected = _dates(dates, start[:4])
    schedule = _schedule(start, rule)
    end = expected[-1] + 1
    found = list(between_backwards(schedule, MIN_INSTANT, end, len(expected) + 1))
    assert found[::-1] == expected


@pytest.mark.parametrize(("rule", "count", "times"), TIMES_OF_A_DAY)
def test_an_example_of_hours_or_minutes_has_the_times_that_the_rfc_states(rule, count, times):
    expected = [_instant(f"1997-09-02 {time}") for time in times.split()]
    schedule = _schedule("1997-09-02", rule)
    assert list(between(schedule, MIN_INSTANT, MAX_INSTANT, len(expected))) == expected
    end = expected[-1] + 1
    assert list(between_backwards(schedule, MIN_INSTANT, end, 99)) == expected[::-1]
    if count is not None:
        assert schedule.next_after(expected[-1]) is None


def test_every_20_minutes_of_a_day_is_the_same_by_days_and_by_minutes():
    by_days, by_minutes = (_schedule("1997-09-02", TIMES_OF_A_DAY[n][0]) for n in (3, 4))
    days = list(between(by_days, MIN_INSTANT, MAX_INSTANT, 500))
    assert days == list(between(by_minutes, MIN_INSTANT, MAX_INSTANT, 500))


def test_friday_the_13th_leaves_out_its_excluded_start():
    schedule = _schedule(
        "1997-09-02",
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
        "EXDATE;TZID=America/New_York:19970902T090000",
    )
    expected = _dates("1998: 2/13 3/13 11/13 1999: 8/13 2000: 10/13", "1998")
    assert list(between(schedule, MIN_INSTANT, MAX_INSTANT, 5)) == expected
