"""What an expression means, by the first runs after a Sunday in November."""

from hashlib import blake2b

import pytest

from sexton_core.cron import CronSpec, EveryMacro, build_cron, parse
from sexton_core.instants import MAX_INSTANT, SECOND, parse_instant
from sexton_core.schedule import between
from sexton_core.words import DayRule

NOW = parse_instant("2026-11-29T20:00:30Z")  # a Sunday


def runs(text: str, count: int, days: DayRule = DayRule.DEBIAN, start: int = NOW) -> list[str]:
    schedule = build_cron(text, days=days, seed="default/backup")
    due = between(schedule, start, MAX_INSTANT, count)
    return [schedule.zone.local(t).strftime("%Y-%m-%d %H:%M:%S") for t in due]


def dates(text: str, count: int, days: DayRule = DayRule.DEBIAN) -> list[str]:
    return [run[:10] for run in runs(f"0 0 {text}", count, days)]


def values(text: str, field: str) -> list[int]:
    spec = parse(text)
    assert isinstance(spec, CronSpec)
    mask = getattr(spec, field).mask
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


def test_five_fields_fire_at_second_zero() -> None:
    assert runs("30 4 * * *", 2) == ["2026-11-30 04:30:00", "2026-12-01 04:30:00"]


def test_six_fields_begin_with_the_second() -> None:
    assert runs("15 30 4 * * *", 1) == ["2026-11-30 04:30:15"]


def test_seven_fields_end_with_the_year() -> None:
    assert runs("0 0 12 1 1 * 2028,2030", 3) == ["2028-01-01 12:00:00", "2030-01-01 12:00:00"]
    assert runs("0 0 12 1 1 * 2020-2025", 1) == []


@pytest.mark.parametrize(
    ("macro", "first"),
    [
        ("@yearly", "2027-01-01 00:00:00"),
        ("@annually", "2027-01-01 00:00:00"),
        ("@monthly", "2026-12-01 00:00:00"),
        ("@weekly", "2026-12-06 00:00:00"),
        ("@daily", "2026-11-30 00:00:00"),
        ("@Midnight", "2026-11-30 00:00:00"),
        ("@hourly", "2026-11-29 21:00:00"),
        ("@MINUTELY", "2026-11-29 20:01:00"),
    ],
)
def test_macros_in_any_case(macro: str, first: str) -> None:
    assert runs(macro, 1) == [first]


def test_every_is_handed_back_as_elapsed_time() -> None:
    for text in ("@every 90s", "@EVERY  1m30s", "@every 90s # ping", "@every\t90s"):
        spec = parse(text)
        assert isinstance(spec, EveryMacro)
        assert spec.period_ns == 90 * SECOND


@pytest.mark.parametrize("prefix", ["TZ=", "CRON_TZ="])
def test_a_prefix_names_the_zone(prefix: str) -> None:
    schedule = build_cron(f"{prefix}Asia/Kathmandu 0 9 * * *")
    assert schedule.zone.key == "Asia/Kathmandu"
    due = schedule.next_after(NOW)
    assert due == parse_instant("2026-11-30T09:00:00+05:45")


def test_a_prefix_also_goes_before_a_macro() -> None:
    assert build_cron("TZ=Europe/Berlin @daily").zone.key == "Europe/Berlin"


def test_a_trailing_comment_is_no_part_of_it() -> None:
    spec = parse("  0 9 * * MON#2\t# second Monday, café ")
    assert isinstance(spec, CronSpec)
    assert spec.text == "0 9 * * MON#2"


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("5-5 * * * *", "minute", [5]),
        ("50/4 * * * *", "minute", [50, 54, 58]),
        ("*/20 * * * *", "minute", [0, 20, 40]),
        ("?/20 * * * *", "minute", [0, 20, 40]),
        ("*/90 * * * *", "minute", [0]),
        ("10-20/5,3 * * * *", "minute", [3, 10, 15, 20]),
        ("58-3 * * * *", "minute", [0, 1, 2, 3, 58, 59]),
        ("007 * * * *", "minute", [7]),
        ("0 22-2 * * *", "hour", [0, 1, 2, 22, 23]),
        ("0 23-3/2 * * *", "hour", [1, 3, 23]),
        ("0 20-4/3 * * *", "hour", [2, 20, 23]),
        ("0 0 30-2 * *", "day", [1, 2, 30, 31]),
        ("0 0 * NOV-feb *", "month", [1, 2, 11, 12]),
        ("0 0 * january,Mar,12 *", "month", [1, 3, 12]),
        ("0 0 * * 0", "weekday", [0]),
        ("0 0 * * 7", "weekday", [0]),
        ("0 0 * * 0-7", "weekday", [0, 1, 2, 3, 4, 5, 6]),
        ("0 0 * * 5-7", "weekday", [0, 5, 6]),
        ("0 0 * * 7-2", "weekday", [0, 1, 2]),
        ("0 0 * * FRI-MON", "weekday", [0, 1, 5, 6]),
        ("0 0 * * FRI-MON/2", "weekday", [0, 5]),
        ("0 0 * * sat-sun", "weekday", [0, 6]),
        ("0 0 * * Monday-5", "weekday", [1, 2, 3, 4, 5]),
        ("0 0 * * 1/2", "weekday", [0, 1, 3, 5]),
        ("0 0 * * ?", "weekday", [0, 1, 2, 3, 4, 5, 6]),
        ("0 5-1 * * *", "hour", [0, 1, *range(5, 24)]),
    ],
)
def test_lists_ranges_and_steps(text: str, field: str, expected: list[int]) -> None:
    assert values(text, field) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L * *", ["2026-11-30", "2026-12-31", "2027-01-31", "2027-02-28"]),
        ("L-3 * *", ["2026-12-28", "2027-01-28", "2027-02-25", "2027-03-28"]),
        ("L-30 * *", ["2026-12-01", "2027-01-01", "2027-03-01", "2027-05-01"]),
        ("LW * *", ["2026-11-30", "2026-12-31", "2027-01-29", "2027-02-26"]),
        ("15W * *", ["2026-12-15", "2027-01-15", "2027-02-15", "2027-03-15"]),
        # 1 May and 1 August 2027 are a Saturday and a Sunday; 15 May is a Saturday.
        ("1W 5,8 *", ["2027-05-03", "2027-08-02", "2028-05-01", "2028-08-01"]),
        ("15W 5 *", ["2027-05-14", "2028-05-15", "2029-05-15", "2030-05-15"]),
        # 31 January 2027 is a Sunday: the nearest weekday inside the month is Friday 29.
        ("31W * *", ["2026-12-31", "2027-01-29", "2027-03-31", "2027-05-31"]),
        ("* * 5L", ["2026-12-25", "2027-01-29", "2027-02-26", "2027-03-26"]),
        ("* * FRIL", ["2026-12-25", "2027-01-29", "2027-02-26", "2027-03-26"]),
        ("* * MON#2", ["2026-12-14", "2027-01-11", "2027-02-08", "2027-03-08"]),
        ("* * 0#5", ["2027-01-31", "2027-05-30", "2027-08-29", "2027-10-31"]),
        ("1,L * *", ["2026-11-30", "2026-12-01", "2026-12-31", "2027-01-01"]),
        ("29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29", "2040-02-29"]),
        ("29 2 */1", ["2028-02-29", "2032-02-29", "2036-02-29", "2040-02-29"]),
    ],
)
def test_days_that_the_month_decides(text: str, expected: list[str]) -> None:
    assert dates(text, 4) == expected


@pytest.mark.parametrize(
    ("text", "days", "joined", "expected"),
    [
        # Neither begins with a star: Debian takes either.
        ("13 * FRI", DayRule.DEBIAN, "or", ["2026-12-04", "2026-12-11", "2026-12-13"]),
        # `*/2` begins with one, although it restricts: Debian takes both.
        ("*/2 * MON", DayRule.DEBIAN, "and", ["2026-12-07", "2026-12-21", "2027-01-11"]),
        ("1-7 * */1", DayRule.DEBIAN, "and", ["2026-12-01", "2026-12-02", "2026-12-03"]),
        ("?/2 * MON", DayRule.DEBIAN, "and", ["2026-12-07", "2026-12-21", "2027-01-11"]),
        ("13 * */5", DayRule.DEBIAN, "and", ["2026-12-13", "2027-06-13", "2027-08-13"]),
        ("13 * FRI", DayRule.AND, "and", ["2027-08-13", "2028-10-13", "2029-04-13"]),
        ("*/10 * MON", DayRule.OR, "or", ["2026-11-30", "2026-12-01", "2026-12-07"]),
        # A field that restricts nothing takes no part, whatever the rule.
        ("* * MON", DayRule.OR, "and", ["2026-11-30", "2026-12-07", "2026-12-14"]),
        ("13 * *", DayRule.OR, "and", ["2026-12-13", "2027-01-13", "2027-02-13"]),
        ("L * FRI#1", DayRule.DEBIAN, "or", ["2026-11-30", "2026-12-04", "2026-12-31"]),
        ("1-31 * MON", DayRule.DEBIAN, "or", ["2026-11-30", "2026-12-01", "2026-12-02"]),
    ],
)
def test_both_day_fields(text: str, days: DayRule, joined: str, expected: list[str]) -> None:
    assert dates(text, 3, days) == expected
    spec = parse(f"0 0 {text}", days=days)
    assert isinstance(spec, CronSpec)
    assert spec.days_joined_by == joined


def test_a_rare_day_is_found_across_the_century() -> None:
    # 2072-02-29 is a Monday. 2100 is no leap year, so the next one is forty years away.
    start = parse_instant("2072-03-01T00:00:00Z")
    assert runs("0 0 29 2 */1", 1, start=start) == ["2076-02-29 00:00:00"]
    assert runs("0 0 29 2 MON", 1, DayRule.AND, start) == ["2112-02-29 00:00:00"]
    schedule = build_cron("0 0 29 2 MON", days=DayRule.AND)
    assert schedule.previous_before(parse_instant("2112-02-29T00:00:00Z")) == parse_instant(
        "2072-02-29T00:00:00Z"
    )


def expected_hash(field: str) -> int:
    digest = blake2b(b"default/backup\0" + field.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def test_a_hash_spreads_jobs_and_stays_for_ever() -> None:
    minute, hour = expected_hash("minute"), expected_hash("hour")
    assert runs("H H * * *", 1)[0][11:] == f"{hour % 24:02d}:{minute % 60:02d}:00"
    # The number itself is part of the promise: another would move every job that uses H.
    assert (minute % 60, hour % 24) == (46, 9)


def test_a_hash_with_a_range_or_a_step() -> None:
    number = expected_hash("minute")
    seed = "default/backup"

    def minutes(text: str) -> list[int]:
        spec = parse(f"{text} * * * *", seed=seed)
        assert isinstance(spec, CronSpec)
        return [value for value in range(60) if spec.minute.mask >> value & 1]

    assert minutes("H/15") == [number % 15 + 15 * k for k in range(4)]
    assert minutes("H(10-19)") == [10 + number % 10]
    assert minutes("H(0-29)/10") == [number % 10, number % 10 + 10, number % 10 + 20]
    assert minutes("h(55-4)") == [(55 + number % 10) % 60]


def test_a_hashed_day_exists_in_every_month() -> None:
    for job in range(200):
        spec = parse("H H H * *", seed=f"default/job-{job}")
        assert isinstance(spec, CronSpec)
        assert spec.day.mask.bit_length() - 1 <= 28


@pytest.mark.parametrize(("item", "values"), [("H/90", range(60)), ("H(10-12)/9", range(10, 13))])
def test_a_hashed_step_beyond_its_values_leaves_one_of_them(item: str, values: range) -> None:
    found = set()
    for job in range(500):
        spec = parse(f"{item} * * * *", seed=f"default/job-{job}")
        assert isinstance(spec, CronSpec)
        assert spec.minute.mask.bit_count() == 1
        found.add(spec.minute.mask.bit_length() - 1)
    assert found == set(values)


def test_a_hash_spreads_evenly() -> None:
    counts = [0] * 60
    for job in range(6_000):
        spec = parse("H * * * *", seed=f"default/job-{job}")
        assert isinstance(spec, CronSpec)
        counts[spec.minute.mask.bit_length() - 1] += 1
    assert min(counts) > 60
    assert max(counts) < 150


@pytest.mark.parametrize(
    ("text", "wildcard"),
    [
        ("* * * * *", True),
        ("*/5 3 * * *", True),
        ("0 * * * *", True),
        ("? 3 * * *", True),
        ("H/15 3 * * *", True),
        ("*,5 3 * * *", True),
        ("* 0 3 * * *", True),
        ("0 3 * * *", False),
        ("0-59 3 * * *", False),
        ("5,* 3 * * *", False),
        ("H 3 * * *", False),
        ("H(0-29)/10 3 * * *", False),
        ("0 0 3 * * *", False),
        ("@daily", False),
        ("@hourly", True),
    ],
)
def test_which_times_follow_real_time(text: str, wildcard: bool) -> None:  # noqa: FBT001
    spec = parse(text, seed="default/backup")
    assert isinstance(spec, CronSpec)
    assert spec.wildcard is wildcard


def test_equal_expressions_share_their_bit_sets() -> None:
    one = build_cron("H H * * *", seed="default/backup")
    other = build_cron("46 9 * * *", timezone="Europe/Berlin")
    assert one.walls is other.walls


def test_equal_schedules_are_one_object_and_hashed_ones_are_their_jobs_own() -> None:
    assert build_cron("0 3 * * *") is build_cron("0 3 * * *", seed="default/backup")
    one, other = (build_cron("H 3 * * *", seed=f"default/{job}") for job in ("a", "b"))
    assert one.spec.minute.mask != other.spec.minute.mask
