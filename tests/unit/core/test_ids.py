"""Ids: pure functions of what asked for a run, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_core import ids
from sexton_core.errors import IdError
from sexton_core.instants import MAX_INSTANT, SECOND, parse_instant
from sexton_core.words import Origin

UID = "abcdefghijklmnopqrstuvwx"
THREE = parse_instant("2026-11-29T03:00:00Z")


def test_a_scheduled_run_is_named_by_its_nominal_time_and_the_job_incarnation() -> None:
    assert ids.scheduled_run_id(UID, THREE) == "t20261129T030000Z-abcdefgh"


def test_a_manual_run_is_named_by_its_second_and_its_request() -> None:
    made = ids.manual_run_id(UID, THREE + 999_999_999, "request")
    assert made == ids.manual_run_id(UID, THREE, "request")
    assert made.startswith("m20261129T030000Z-")
    assert made != ids.manual_run_id(UID, THREE, "another request")
    assert made != ids.manual_run_id("b" * 24, THREE, "request")


def test_a_backfill_run_is_named_by_its_backfill_and_its_nominal_time() -> None:
    backfill = ids.backfill_id(UID, "request")
    assert ids.backfill_run_id(backfill, THREE) == f"b{backfill}-20261129T030000Z"


@given(st.integers(0, MAX_INSTANT // SECOND), st.text(min_size=1))
def test_every_run_id_can_be_read_back(second: int, request_id: str) -> None:
    nominal = second * SECOND
    backfill = ids.backfill_id(UID, request_id)
    for made, origin, source in (
        (ids.scheduled_run_id(UID, nominal), Origin.SCHEDULE, UID[:8]),
        (ids.backfill_run_id(backfill, nominal), Origin.BACKFILL, backfill),
    ):
        assert ids.parse_run_id(made) == (origin, nominal, source)
        assert made[0] == {"schedule": "t", "backfill": "b"}[origin]
    manual = ids.parse_run_id(ids.manual_run_id(UID, nominal, request_id))
    assert (manual.origin, manual.time) == (Origin.MANUAL, nominal)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t20261129T030000Z",
        "t20261129T030000Z-ABCDEFGH",
        "t20261129T030000Z-abcdefg1",
        "t20261329T030000Z-abcdefgh",
        "t20261129T246060Z-abcdefgh",
        "x20261129T030000Z-abcdefgh",
        "t20261129T030000Z-abcdefgh\n",
        "t２０２６1129T030000Z-abcdefgh",
        "m20261129T030000Z-abcdefgh",
        "../runs/t20261129T030000Z-abcdefgh",
    ],
)
def test_what_is_no_run_id_is_refused(text: str) -> None:
    with pytest.raises(IdError, match="a run id such as t20261129T030000Z-abcdefgh"):
        ids.parse_run_id(text)


def test_a_uid_holds_all_of_its_entropy() -> None:
    assert ids.make_uid(bytes(15)) == "a" * 24
    assert ids.make_uid(bytes(range(15))) != ids.make_uid(bytes(range(1, 16)))
    assert ids.check_uid(ids.make_uid(bytes([255] * 15))) == "7" * 24
    with pytest.raises(IdError, match="uid"):
        ids.check_uid("A" * 24)


def test_uids_that_are_made_together_have_five_bits_of_each_byte() -> None:
    first, second, third = ids.make_uids(bytes(range(24)) + bytes([255] * 24) + bytes(24))
    assert first == "abcdefghijklmnopqrstuvwx"
    assert (second, third) == ("7" * 24, "a" * 24)
    assert ids.make_uids(b"") == []
    drawn = "".join(ids.make_uids(bytes(range(256)) * 3))
    assert {drawn.count(character) for character in set(drawn)} == {24}
    assert len(set(drawn)) == 32


@pytest.mark.parametrize("name", ["a", "a1", "nightly-backup", "a--b", "a" * 63])
def test_an_id_of_a_job_is_letters_digits_and_inner_hyphens(name: str) -> None:
    assert ids.check_name("job", name) == name
