"""Values that can't be accepted: the message names the field, the value and what would be right."""

from typing import Any

import pytest
from unit.core.policy.world import UID, Listed, World, definition, job_of

from sexton_core.errors import CoreError, FieldError, IdError, PolicyError
from sexton_core.instants import DAY, HOUR, SECOND
from sexton_core.policy import CatchUp, Job, Retention, request_backfill
from sexton_core.runs import RunPolicy
from sexton_core.words import Overlap

TENS = Listed(range(10, 100, 10))


@pytest.mark.parametrize(
    ("field", "shown", "expected", "policies"),
    [
        ("max_live", "-1", "1 to 1,000", {"max_live": -1}),
        ("max_live", "0", "1 to 1,000", {"max_live": 0}),
        ("max_live", "1001", "1 to 1,000", {"max_live": 1_001}),
        ("max_live", "True", "1 to 1,000", {"max_live": True}),
        ("max_live", "'5'", "1 to 1,000", {"max_live": "5"}),
        ("max_buffered", "0", "1 to 1,000", {"max_buffered": 0}),
        ("max_buffered", "1000000000", "1 to 1,000", {"max_buffered": 10**9}),
        ("jitter", "-1s", "from 0s", {"jitter_ns": -SECOND}),
        ("version", "0", "from 1", {"version": 0}),
    ],
)
def test_a_definition_out_of_range_is_refused(
    field: str, shown: str, expected: str, policies: dict[str, Any]
) -> None:
    with pytest.raises(PolicyError) as refused:
        definition(TENS, **policies)
    assert refused.value.field == field
    assert shown in str(refused.value)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("field", "shown", "fields"),
    [
        ("catch_up.max", "0", {"max_starts": 0}),
        ("catch_up.max", "1001", {"max_starts": 1_001}),
        ("catch_up.late_after", "0s", {"late_after_ns": 0}),
        ("catch_up.late_after", "2h", {"late_after_ns": 2 * HOUR}),
        ("catch_up.window", "1s", {"window_ns": SECOND}),
        ("catch_up.window", "-1d", {"window_ns": -DAY}),
    ],
)
def test_catch_up_rules_out_of_range_are_refused(
    field: str, shown: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(PolicyError) as refused:
        CatchUp(**fields)
    assert refused.value.field == field
    assert repr(shown) in str(refused.value) or shown in str(refused.value)


@pytest.mark.parametrize("fields", [{"max_runs": 0}, {"max_runs": 10**6}, {"max_age_ns": 0}])
def test_retention_out_of_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="retention"):
        Retention(**fields)


def test_an_exclusive_job_can_not_allow_all() -> None:
    with pytest.raises(PolicyError, match=r"exclusive: True .* overlap is allow_all"):
        definition(TENS, overlap=Overlap.ALLOW_ALL, run=RunPolicy(exclusive=True))


def test_no_request_starts_a_second_run_of_an_exclusive_job() -> None:
    world = World(job_of(TENS, run=RunPolicy(exclusive=True)), now_s=50)
    with pytest.raises(PolicyError, match=r"overlap: 'allow_all' .* the job is exclusive"):
        world.trigger("one", Overlap.ALLOW_ALL)
    with pytest.raises(PolicyError, match="exclusive"):
        request_backfill(
            world.job,
            world.now,
            "one",
            first=10 * SECOND,
            last=20 * SECOND,
            overlap=Overlap.ALLOW_ALL,
        )


BAD_NAMES = [
    "",
    "a/b",
    "..",
    "Report",
    "report-",
    "-report",
    "1report",
    "re port",
    "répor\u0301t",
    "\N{ALARM CLOCK}",
    "a" * 64,
    "a" * 256,
    "a\n",
    "a\x00",
    None,
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_id_is_refused_for_job_and_namespace(name: Any) -> None:
    for field in ("namespace", "name"):
        fields = {"namespace": "default", "name": "report"} | {field: name}
        with pytest.raises(IdError, match="1 to 63 of a-z"):
            Job(uid=UID, created_at=0, definitions=job_of(TENS).definitions, **fields)


def test_definitions_must_rise() -> None:
    one = definition(TENS)
    for definitions in ((), (one, one), (definition(TENS, 2), one)):
        with pytest.raises(PolicyError, match="definitions"):
            Job(namespace="default", name="report", uid=UID, created_at=0, definitions=definitions)


def test_what_is_refused_is_a_value_error_and_one_of_ours() -> None:
    with pytest.raises(CoreError) as refused:
        definition(TENS, max_live=-1)
    assert isinstance(refused.value, FieldError)
    assert isinstance(refused.value, ValueError)
    assert str(refused.value) == (
        "max_live: -1 can't be used; expected a whole number from 1 to 1,000"
    )
