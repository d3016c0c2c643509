"""A recurrence is explained in English, so that its writer sees what was understood."""

import pytest

from sexton_core.schedules import RRuleTiming, ScheduleSpec, build

EXPLAINED = [
    ("FREQ=DAILY;COUNT=10", "at 09:00 every day, 10 times"),
    ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "at 09:00 every 2 weeks on Monday and Friday"),
    ("FREQ=MONTHLY;BYDAY=2TU,-1FR", "at 09:00 every month on the 2nd Tuesday and the last Friday"),
    (
        "FREQ=MONTHLY;BYMONTHDAY=1,15,-1",
        "at 09:00 every month on the 1st, 15th and last day of the month",
    ),
    (
        "FREQ=YEARLY;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        "every year on Tuesday falling on the 2nd through 8th day of the month in November",
    ),
    (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        (
            "at 09:00 every month on Monday, Tuesday, Wednesday, Thursday and Friday, "
            "but only the 2nd to last of these"
        ),
    ),
    ("FREQ=YEARLY;BYYEARDAY=1,100,-1", "on the 1st, 100th and last day of the year"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "at 09:00 every year on Monday in week 20"),
    ("FREQ=DAILY;BYHOUR=9,17;BYMINUTE=30", "at 09:30 and 17:30 every day"),
    ("FREQ=HOURLY;INTERVAL=3", "at minute 0 every 3 hours"),
    ("FREQ=MINUTELY;BYHOUR=9", "at hour 9 every minute"),
    ("FREQ=SECONDLY;INTERVAL=90", "every 90 seconds"),
]


@pytest.mark.parametrize(("rule", "expected"), EXPLAINED)
def test_a_rule_is_explained(rule, expected):
    text = f"DTSTART;TZID=Europe/Berlin:20270101T090000\nRRULE:{rule}"
    explained = build(ScheduleSpec(timing=RRuleTiming(text=text))).explain()
    assert expected in explained
    assert explained.endswith("from 2027-01-01 09:00, Europe/Berlin")


def test_added_and_excluded_dates_are_counted():
    text = (
        "DTSTART:20270101T090000\nRRULE:FREQ=DAILY;UNTIL=20270110\n"
        "RDATE:20270201T090000\nEXDATE:20270102T090000,20270103T090000"
    )
    assert build(ScheduleSpec(timing=RRuleTiming(text=text))).explain() == (
        "at 09:00 every day, from 2027-01-01 09:00 until 2027-01-10 and on 1 given date, "
        "except 2 dates, UTC"
    )
