"""The schedule in English, and what it warns of."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.cron.expressions import expressions
from unit.examples import examples

from sexton_core.cron import build_cron, day_rule_in_words
from sexton_core.instants import parse_instant
from sexton_core.schedules import CronTiming, ScheduleSpec, build, warnings_of
from sexton_core.words import DayRule, DstRule, WarningKind

BOTH = "day of month and day of week are both given"
NOW = parse_instant("2026-11-29T20:00:00Z")


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("0 3 * * MON-FRI", "at 03:00 on weekdays"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0 3,15 * * SAT,SUN", "at 03:00 and 15:00 at weekends"),
        ("5 4 * * sun", "at 04:05 on Sunday"),
        ("0 9 * * MON,WED,FRI", "at 09:00 on Monday, Wednesday and Friday"),
        ("0 0 * * FRI-MON", "at 00:00 from Friday to Monday"),
        ("0 9 * * FRIL", "at 09:00 on the last Friday of the month"),
        ("0 9 * * MON#2", "at 09:00 on the 2nd Monday of the month"),
        ("0 0 1 * *", "at 00:00 on the 1st"),
        ("0 0 1-7 * *", "at 00:00 from the 1st to the 7th"),
        ("30 4 1,15 6-8 *", "at 04:30 on the 1st and 15th of each month from June to August"),
        ("@yearly", "at 00:00 on the 1st of January"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "at 00:00 on the 3rd day before the last day of the month"),
        ("0 0 LW * *", "at 00:00 on the last weekday of the month"),
        ("0 12 15W * *", "at 12:00 on the weekday nearest the 15th"),
        ("5 0 * 8 *", "at 00:05 every day in August"),
        ("0 0 * DEC-FEB *", "at 00:00 every day from December to February"),
        ("0 0 13 * FRI", "at 00:00 on the 13th, and on Friday as well"),
        (
            "0 0 */2 * MON",
            "at 00:00 on every 2nd day from the 1st to the 31st when that is also Monday",
        ),
        ("0 0 1-7 * */5", "at 00:00 on the 1st to the 7th when that is also Sunday and Friday"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("7/15 * * * *", "every 15 minutes from minute 7 on"),
        ("*/10 9-17 * * 1-5", "every 10 minutes from 09:00 to 17:59 on weekdays"),
        ("* 3 * * *", "every minute from 03:00 to 03:59"),
        ("@hourly", "every hour on the hour"),
        ("45 * * * *", "at minute 45 of every hour"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("30 */2 * * *", "every 2 hours from 00:30 to 22:30"),
        ("0 22-4 * * *", "every hour from 22:00 to 04:00"),
        ("3,17,40 * * * *", "at minutes 3, 17 and 40 of every hour"),
        ("*/7 */5 * * *", "at every 7th minute from 0 to 56 of the hours 00, 05, 10, 15 and 20"),
        ("15 30 4 * * *", "at 04:30:15 every day"),
        ("*/15 * * * * *", "every 15 seconds"),
        ("* * * * * *", "every second"),
        ("30 * * * * *", "every minute at second 30"),
        ("30 5 * * * *", "at minute 5 at second 30 of every hour"),
        ("5,20 10-30 * * * *", "at seconds 5 and 20 of minutes 10 to 30 of every hour"),
        ("*/10 0 9 * * *", "every 10 seconds of minute 0 of the hour 09"),
        ("0 0 12 * * * 2027", "at 12:00 every day in 2027"),
        ("0 0 12 29 2 * 2027-2040", "at 12:00 on the 29th of February from 2027 to 2040"),
        ("*/90 * * * *", "every hour on the hour"),
    ],
)
def test_an_expression_is_said_in_plain_words(text: str, english: str) -> None:
    schedule = build_cron(text, timezone="Europe/Berlin")
    assert schedule.explain() == f"{english}, Europe/Berlin"


def warnings(text: str, dst: str = "vixie", zone: str = "Europe/Berlin") -> list[tuple[str, str]]:
    timing = CronTiming(expression=text)
    schedule = build(ScheduleSpec(timing=timing, timezone=zone, dst=DstRule(dst)))
    return [(warning.kind, warning.message) for warning in warnings_of(schedule, NOW)]


def test_an_ordinary_expression_warns_of_nothing() -> None:
    for text in ("0 4 * * *", "*/5 * * * *", "0 * * * *", "@monthly"):
        assert warnings(text) == []


@pytest.mark.parametrize(
    ("dst", "in_gap", "in_fold"),
    [
        ("vixie", "it runs at 03:00", "it runs in the first pass only"),
        ("literal", "it does not run", "it runs in both passes"),
        ("skip", "it does not run", "it runs in the first pass only"),
        ("shift", "it runs at 03:30", "it runs in the first pass only"),
    ],
)
def test_a_time_in_a_gap_or_a_fold_is_foretold(dst: str, in_gap: str, in_fold: str) -> None:
    assert warnings("30 2 * * *", dst) == [
        (
            WarningKind.CLOCK_GAP,
            f"2027-03-28 02:30 does not exist in Europe/Berlin: {in_gap} (dst: {dst})",
        ),
        (
            WarningKind.CLOCK_FOLD,
            f"2027-10-31 02:30 happens twice in Europe/Berlin: {in_fold} (dst: {dst})",
        ),
    ]


def test_a_change_that_misses_the_schedule_is_not_mentioned() -> None:
    assert warnings("30 2 * * MON-SAT") == []
    assert warnings("30 2 * 1-2 *") == []
    assert warnings("30 2 * * *", zone="UTC") == []


def test_both_day_fields_are_said_with_the_rule_that_joins_them() -> None:
    assert warnings("0 4 13 * FRI") == [
        (
            WarningKind.BOTH_DAYS,
            f"{BOTH}: a day may match either (Debian's rule: neither starts with * or ?)",
        )
    ]
    assert warnings("0 4 */2 * FRI") == [
        (
            WarningKind.BOTH_DAYS,
            f"{BOTH}: a day must match both (Debian's rule: one of them starts with * or ?)",
        )
    ]
    schedule = build_cron("0 4 13 * FRI", days=DayRule.AND)
    assert day_rule_in_words(schedule) == (f"{BOTH}: a day must match both (days: and)")
    assert day_rule_in_words(build_cron("0 4 13 * *")) == (
        "at most one of day of month and day of week restricts the days"
    )


@pytest.mark.parametrize("text", ["*/90 * * * *", "*/60 * * * *", "10-20/11 * * * *"])
def test_a_step_that_leaves_one_value_is_mentioned(text: str) -> None:
    item = text.split(maxsplit=1)[0]
    assert warnings(text) == [
        (
            WarningKind.IDLE_STEP,
            f"minute: the step of '{item}' leaves nothing but its first value",
        )
    ]


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(expressions(), st.sampled_from(DayRule))
def test_whatever_can_be_read_can_be_said_on_one_line(text: str, days: DayRule) -> None:
    said = build_cron(text, timezone="Europe/Berlin", days=days, seed="default/backup").explain()
    assert said.startswith(("at ", "every "))
    assert said.endswith(", Europe/Berlin")
    assert "  " not in said
    assert said.isprintable()
    assert len(said) < 700
