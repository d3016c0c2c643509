"""Bad input: the message names the field, the value and what would be right."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.examples import examples

from sexton_core.cron import build_cron, parse
from sexton_core.errors import NeverFiresError, ScheduleError, UnknownZoneError
from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, parse_instant
from sexton_core.schedule import between, first_or_refuse
from sexton_core.words import DstRule

NOW = parse_instant("2026-11-29T20:00:00Z")


@pytest.mark.parametrize(
    ("text", "field", "value", "hint"),
    [
        ("", "cron", "", "these are 0 fields"),
        ("   ", "cron", "", "these are 0 fields"),
        ("# nothing but a comment", "cron", "", "these are 0 fields"),
        ("* * * *", "cron", "* * * *", "these are 4 fields"),
        ("* * * * * * * *", "cron", "* * * * * * * *", "these are 8 fields"),
        ("60 * * * *", "minute", "60", "0-59"),
        ("0 24 * * *", "hour", "24", "0-23"),
        ("0 0 0 * *", "day of month", "0", "1-31"),
        ("0 0 32 * *", "day of month", "32", "1-31"),
        ("0 0 * 13 *", "month", "13", "1-12"),
        ("0 0 * * 8", "day of week", "8", "0-7"),
        ("60 0 0 * * *", "second", "60", "0-59"),
        ("0 0 0 * * * 1969", "year", "1969", "1970-2261"),
        ("0 0 0 * * * 2262", "year", "2262", "1970-2261"),
        ("0 0 0 * * * 2030-2026", "year", "2030-2026", "earlier to the later"),
        ("0 0 0 * * * H", "year", "H", "1970-2261"),
        ("*/0 * * * *", "minute", "*/0", "a step of 1 or more"),
        ("5-9/0 * * * *", "minute", "5-9/0", "a step of 1 or more"),
        ("H/0 * * * *", "minute", "H/0", "a step of 1 or more"),
        ("*/ * * * *", "minute", "*/", "0-59"),
        ("-1 * * * *", "minute", "-1", "0-59"),
        ("+1 * * * *", "minute", "+1", "0-59"),
        ("1.5 * * * *", "minute", "1.5", "0-59"),
        ("1, * * * *", "minute", "", "0-59"),
        ("1,,2 * * * *", "minute", "", "0-59"),
        ("1-2-3 * * * *", "minute", "1-2-3", "0-59"),
        ("*-5 * * * *", "minute", "*-5", "0-59"),
        ("L * * * *", "minute", "L", "0-59"),
        ("MON * * * *", "minute", "MON", "0-59"),
        ("0 0 * MON *", "month", "MON", "JAN"),
        ("0 0 * * JAN", "day of week", "JAN", "SUN"),
        ("0 0 * * MONT", "day of week", "MONT", "SUN"),
        ("0 0 * * TUES", "day of week", "TUES", "SUN"),
        ("0 0 * * L", "day of week", "L", "FRIL"),
        ("0 0 * * 8L", "day of week", "8L", "FRIL"),
        ("0 0 * * MON#0", "day of week", "MON#0", "MON#2"),
        ("0 0 * * MON#6", "day of week", "MON#6", "MON#2"),
        ("0 0 * * #2", "cron", "0 0 * *", "these are 4 fields"),
        ("0 0 L-0 * *", "day of month", "L-0", "L-N"),
        ("0 0 L-31 * *", "day of month", "L-31", "L-N"),
        ("0 0 0W * *", "day of month", "0W", "NW"),
        ("0 0 32W * *", "day of month", "32W", "NW"),
        ("0 0 W * *", "day of month", "W", "NW"),
        ("0 0 WL * *", "day of month", "WL", "LW"),
        ("0 0 1-5W * *", "day of month", "1-5W", "NW"),
        ("H(0-60) * * * *", "minute", "H(0-60)", "0-59"),
        ("H( * * * *", "minute", "H(", "0-59"),
        ("1000000000000 * * * *", "minute", "1000000000000", "0-59"),
        ("*/1000000000000 * * * *", "minute", "*/1000000000000", "0-59"),
        ("@reboot", "cron", "@reboot", "sexton jobs trigger"),
        ("@fortnightly", "cron", "@fortnightly", "@weekly"),
        ("@every", "@every", "", "90s"),
        ("@every 0s", "@every", "0s", "at least 1s"),
        ("@every -1s", "@every", "-1s", "90s"),
        ("@every 1ms", "@every", "1ms", "at least 1s"),
        ("@every 1500ms", "@every", "1500ms", "at least 1s"),
        ("@everyday", "cron", "@everyday", "@every 90s"),
        ("TZ=UTC @every 90s", "cron", "@every 90s", "no zone"),
        ("0 0 * * *\n0 1 * * *", "cron", "0 0 * * *\n0 1 * * *", "one line"),
        ("0 0 * * \0", "cron", "0 0 * * \0", "one line"),
        ("0 0 * * fr\u0131", "cron", "0 0 * * fr\u0131", "ASCII"),
        ("\u0661 0 * * *", "cron", "\u0661 0 * * *", "ASCII"),
    ],
)
def test_what_is_wrong_is_named(text: str, field: str, value: str, hint: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(text, seed="default/backup")
    assert (caught.value.field, caught.value.value) == (field, value)
    assert hint in caught.value.expected
    assert str(caught.value).startswith(f"{field}: ")


def test_a_long_text_is_refused_before_it_is_read_and_not_repeated_whole() -> None:
    with pytest.raises(ScheduleError, match="at most 1,024 characters") as caught:
        parse("*," * 5_000 + "* * * * *")
    assert len(str(caught.value)) < 250


def test_the_longest_sensible_expression_is_no_long_text() -> None:
    every = ",".join(str(second) for second in range(60))
    assert build_cron(f"{every} {every} * * * *").next_after(NOW) is not None


def test_a_hash_without_a_job_is_refused() -> None:
    with pytest.raises(ScheduleError, match="there is no job"):
        parse("H * * * *")
    assert parse("0 9 * MAR THU") is not None


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("", "IANA"),
        ("Mars/Base", "IANA"),
        ("../../etc/passwd", "IANA"),
        ("/etc/localtime", "IANA"),
        ("Europe", "IANA"),
        ("europe/berlin", "did you mean Europe/Berlin"),
        ("CEST", "IANA"),
        ("Factory", "IANA"),
        ("x" * 10_000, "IANA"),
        ("Europe/Berl\u00efn", "IANA"),
        ("UTC\0", "IANA"),
    ],
)
def test_a_zone_that_does_not_exist_is_refused(zone: str, hint: str) -> None:
    with pytest.raises(UnknownZoneError) as caught:
        build_cron("0 3 * * *", timezone=zone)
    assert caught.value.field == "timezone"
    assert hint in caught.value.expected
    assert len(str(caught.value)) < 350


def test_a_zone_in_the_expression_is_refused_under_its_own_name() -> None:
    for text, field in (("TZ=Mars/Base * * * * *", "TZ"), ("CRON_TZ= * * * * *", "CRON_TZ")):
        with pytest.raises(UnknownZoneError) as caught:
            parse(text)
        assert caught.value.field == field


def test_names_that_only_look_like_abbreviations_are_zones_where_iana_says_so() -> None:
    schedule = build_cron("0 3 * * *", timezone="EST")
    assert schedule.next_after(NOW) == parse_instant("2026-11-30T03:00:00-05:00")


def test_two_zones_that_differ_are_refused() -> None:
    with pytest.raises(ScheduleError, match="Europe/Berlin, or none"):
        build_cron("TZ=Europe/Berlin 0 3 * * *", timezone="Europe/Paris")
    build_cron("TZ=Europe/Berlin 0 3 * * *", timezone="Europe/Berlin")


def test_elapsed_time_is_no_cron_schedule() -> None:
    with pytest.raises(ScheduleError, match="every"):
        build_cron("@every 90s")


@pytest.mark.parametrize(
    "text",
    [
        "* * 31 2 *",
        "* * 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31W 2 *",
        "0 0 0 1 1 * 1999",
        "0 0 0 29 2 * 2027,2029-2031",
        "0 0 0 29 2 * 2100",
        "0 0 L-30 2 *",
    ],
)
def test_what_never_fires_is_refused_saying_so(text: str) -> None:
    schedule = build_cron(text, timezone="Europe/Berlin")
    assert schedule.next_after(NOW) is None
    with pytest.raises(NeverFiresError, match="never fires after 2026-11-29T20:00:00Z"):
        first_or_refuse(schedule, NOW, field="cron", value=text)


def test_a_time_that_only_a_gap_holds_never_fires_where_the_rule_makes_nothing_up() -> None:
    text = "0 30 2 29 3 * 2026"
    start = parse_instant("2026-01-01T00:00:00Z")
    for rule, fires in (("vixie", True), ("shift", True), ("skip", False), ("literal", False)):
        schedule = build_cron(text, timezone="Europe/Berlin", dst=DstRule(rule))
        assert (schedule.next_after(start) is not None) is fires


@pytest.mark.parametrize("text", ["* * * * * *", "0 3 * * *", "0 0 29 2 *", "0 0 0 1 1 * 1970"])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_ends_of_time_are_answers(text: str, zone: str) -> None:
    schedule = build_cron(text, timezone=zone)
    for t in (MIN_INSTANT - 1, MIN_INSTANT, MIN_INSTANT + 1, MAX_INSTANT - 1, MAX_INSTANT):
        following, before = schedule.next_after(t), schedule.previous_before(t)
        assert following is None or t < following <= MAX_INSTANT
        assert before is None or MIN_INSTANT <= before < t
    assert schedule.next_after(MAX_INSTANT) is None
    assert schedule.previous_before(MIN_INSTANT) is None


def test_west_of_greenwich_time_begins_on_the_last_evening_of_1969() -> None:
    schedule = build_cron("0 20 * * *", timezone="Pacific/Pago_Pago")  # UTC-11
    first = parse_instant("1970-01-01T07:00:00Z")
    assert schedule.next_after(MIN_INSTANT) == first
    assert schedule.previous_before(parse_instant("1970-01-02T00:00:00Z")) == first
    assert schedule.previous_before(first) is None


def test_the_last_second_of_time_is_a_nominal_time_like_any_other() -> None:
    schedule = build_cron("59 59 23 31 12 *")
    assert list(between(schedule, parse_instant("2260-06-01T00:00:00Z"), MAX_INSTANT, 9)) == [
        parse_instant("2260-12-31T23:59:59Z"),
        MAX_INSTANT,
    ]


PIECES = st.sampled_from(
    [
        *"*?/-,#LWH()@=05 \t\x7f\u0130\u2028",
        "every",
        "MON",
        "dec",
        "61",
        "99999",
        "TZ=",
        "UTC ",
        "0-7 ",
    ]
)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    refusal = ""
    try:
        parse(text, seed="default/backup")
    except ScheduleError as refused:
        refusal = str(refused)
    assert refusal.isprintable()
    assert len(refusal) < 500
