"""The schema of a job file: strict, frozen, and closed to unknown fields.

These models say which fields exist and which form a value has. What a value means - whether a
cron expression can be read, whether a window is wide enough - is judged by `sexton_core`, once.
"""

from collections.abc import Callable
from datetime import date, datetime, time
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from sexton.holidays import DEFAULT_YEARS, MAX_YEARS
from sexton_core.ids import check_name
from sexton_core.instants import (
    MICROSECOND,
    Duration,
    Instant,
    parse_date,
    parse_duration,
    parse_instant,
    parse_moment,
    parse_time,
)
from sexton_core.schedules import CalendarUnit, ShortMonth
from sexton_core.words import CatchUpPolicy, DayRule, Delivery, DstRule, Overlap

MAX_JOBS: Final = 10_000
"""Jobs of one file."""

_WEEKDAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_Word = TypeVar("_Word", bound=StrEnum)


def one_of(value: object, words: list[str]) -> str:
    """Returns `one of a, b; did you mean b?` for a value that is none of the words."""
    near = get_close_matches(str(value).lower(), [word.lower() for word in words], n=1, cutoff=0.6)
    guess = next((word for word in words if near and word.lower() == near[0]), None)
    return f"one of {', '.join(words)}" + (f"; did you mean {guess}?" if guess else "")


def _text(value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {expected}")  # noqa: TRY004 - pydantic collects ValueError
    return value


def _word(words: type[_Word]) -> Callable[[object], _Word]:
    def read(value: object) -> _Word:
        for word in words:
            if value == word.value:
                return word
        raise ValueError("expected " + one_of(value, [word.value for word in words]))

    return read


def _read_duration(value: object) -> Duration:
    duration_ns = parse_duration(_text(value, "a duration with its unit, such as 30s, 1h30m or 2d"))
    if duration_ns % MICROSECOND:
        raise ValueError("expected whole microseconds: most clients know no less")
    return duration_ns


def _read_instant(value: object) -> Instant:
    return parse_instant(_text(value, "a time with its offset, such as 2026-11-29T03:00:00Z"))


def _read_date(value: object) -> date:
    return parse_date(_text(value, "a date, as 2026-12-24"))


def _read_range(value: object) -> tuple[date, date]:
    first, dots, last = _text(value, "two dates, as 2026-12-24..2027-01-01").partition("..")
    if not dots:
        raise ValueError("expected two dates, as 2026-12-24..2027-01-01")
    return _read_date(first.strip()), _read_date(last.strip())


def _read_time(value: object) -> time:
    return parse_time(_text(value, "a wall time in quotes, as '09:00'"))


def _read_weekday(value: object) -> int:
    if value not in _WEEKDAYS:
        raise ValueError("expected " + one_of(value, list(_WEEKDAYS)))
    return _WEEKDAYS.index(str(value))


def _read_moment(value: object) -> Instant | datetime:
    return parse_moment(_text(value, "a time, as 2026-11-29T03:00:00 or 2026-11-29T03:00:00Z"))


def _read_id(value: object) -> str:
    return check_name("name", _text(value, "a name in quotes"))


def _read_anchor(value: object) -> Instant:
    return 0 if value == "epoch" else _read_instant(value)


class FromWorker(BaseModel):
    """A value that the worker takes from its own environment, so that no definition holds it."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    from_worker: str = Field(min_length=1, max_length=200)


def _read_env_value(value: object) -> str | FromWorker:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and list(value) == ["from_worker"]:
        name = value["from_worker"]
        if isinstance(name, str) and 1 <= len(name) <= 200:
            return FromWorker(from_worker=name)
    raise ValueError("expected text (numbers in quotes), or {from_worker: NAME}")


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


def _word_schema(words: type[StrEnum]) -> WithJsonSchema:
    return _schema("string", enum=[word.value for word in words])


Id = Annotated[
    str,
    BeforeValidator(_read_id),
    _schema("string", pattern="^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"),
]
DurationText = Annotated[
    int,
    BeforeValidator(_read_duration),
    _schema("string", pattern="^([0-9]+(w|d|h|m|s|ms|us))+$", examples=["30s", "1h30m"]),
]
InstantText = Annotated[int, BeforeValidator(_read_instant), _schema("string", format="date-time")]
DateText = Annotated[date, BeforeValidator(_read_date), _schema("string", format="date")]
TimeText = Annotated[
    time, BeforeValidator(_read_time), _schema("string", pattern="^[0-9]{2}:[0-9]{2}(:[0-9]{2})?$")
]
RangeText = Annotated[
    tuple[date, date],
    PlainValidator(_read_range),
    _schema("string", examples=["2026-12-24..2027-01-01"]),
]
WeekdayText = Annotated[
    int, BeforeValidator(_read_weekday), _schema("string", enum=list(_WEEKDAYS))
]
MomentText = Annotated[
    int | datetime,
    PlainValidator(_read_moment),
    _schema("string", examples=["2026-11-29T03:00:00", "2026-11-29T03:00:00Z"]),
]
AnchorText = Annotated[
    int,
    BeforeValidator(_read_anchor),
    _schema("string", description="An instant, or `epoch`.", examples=["epoch"]),
]
EnvValue = Annotated[
    str | FromWorker,
    PlainValidator(_read_env_value),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"from_worker": {"type": "string", "minLength": 1}},
                    "required": ["from_worker"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
OverlapWord = Annotated[Overlap, BeforeValidator(_word(Overlap)), _word_schema(Overlap)]
CatchUpWord = Annotated[
    CatchUpPolicy, BeforeValidator(_word(CatchUpPolicy)), _word_schema(CatchUpPolicy)
]
DeliveryWord = Annotated[Delivery, BeforeValidator(_word(Delivery)), _word_schema(Delivery)]
DstWord = Annotated[DstRule, BeforeValidator(_word(DstRule)), _word_schema(DstRule)]
DayWord = Annotated[DayRule, BeforeValidator(_word(DayRule)), _word_schema(DayRule)]
ShortMonthWord = Annotated[ShortMonth, BeforeValidator(_word(ShortMonth)), _word_schema(ShortMonth)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _is_something(cls, value: object) -> object:
        """Refuses a field that is named and left empty: nobody can tell what was meant."""
        if value is None:
            raise ValueError("expected a value, or the field left out")
        return value

    def given(self, *names: str) -> list[str]:
        """Returns which of the fields the file gives."""
        return [name for name in names if name in self.model_fields_set]


def _exactly_one(given: list[str], names: tuple[str, ...]) -> None:
    if len(given) != 1:
        has = " and ".join(given) if given else "none"
        raise ValueError(f"expected exactly one of {', '.join(names)}; this has {has}")


def _one_required(names: tuple[str, ...]) -> dict[str, Any]:
    return {"oneOf": [{"required": [name]} for name in names]}


class Calendar(_Model):
    """Days and times on which schedules that exclude this calendar do not run."""

    name: Id
    dates: list[DateText] = []
    ranges: list[RangeText] = []
    weekdays: list[WeekdayText] = []
    crons: list[str] = Field(default=[], description="Cron expressions whose times are excluded.")
    holidays: list[str] = Field(
        default=[],
        description="Countries, or parts of them, whose public holidays are excluded: DE, DE-BY.",
    )
    holiday_years: int = Field(
        default=DEFAULT_YEARS,
        ge=1,
        le=MAX_YEARS,
        description="For how many years they are written out, the current one included.",
    )


_UNITS: Final = tuple(unit.value for unit in CalendarUnit)


class CalendarInterval(_Model):
    """A wall time every so many days, weeks, months or years."""

    model_config = ConfigDict(json_schema_extra=_one_required(_UNITS))

    days: int | None = None
    weeks: int | None = None
    months: int | None = None
    years: int | None = None
    at: TimeText
    anchor: DateText | None = Field(default=None, description="A day of the pattern.")
    short_month: ShortMonthWord | None = None

    @model_validator(mode="after")
    def _has_one_unit(self) -> Self:
        _exactly_one(self.given(*_UNITS), _UNITS)
        return self


KINDS: Final = ("cron", "every", "calendar_interval", "at", "rrule")


class Schedule(_Model):
    """When a job runs: one kind of timing, its zone, and its bounds."""

    model_config = ConfigDict(json_schema_extra=_one_required(KINDS))

    cron: str | None = Field(default=None, description="Five, six or seven fields, or a macro.")
    every: DurationText | None = Field(default=None, description="Elapsed time.")
    calendar_interval: CalendarInterval | None = None
    at: list[MomentText] | None = None
    rrule: str | None = Field(default=None, description="Lines of RFC 5545.")
    days: DayWord | None = Field(default=None, description="How cron's day fields combine.")
    offset: DurationText | None = Field(default=None, description="Of `every`.")
    anchor: AnchorText | None = Field(default=None, description="Of `every`.")
    timezone: str | None = Field(default=None, description="An IANA name; UTC if absent.")
    dst: DstWord = DstRule.VIXIE
    exclude: list[str] = Field(default=[], description="Names of calendars of this file.")
    start: InstantText | None = None
    end: InstantText | None = None
    max_runs: int | None = None
    jitter: DurationText | None = None

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        _exactly_one(self.given(*KINDS), KINDS)
        for name, kind in (("days", "cron"), ("offset", "every"), ("anchor", "every")):
            if self.given(name) and not self.given(kind):
                raise ValueError(f"expected `{name}` only beside `{kind}`")
        return self


class HttpTask(_Model):
    """A call over HTTP."""

    method: str = Field(default="POST", pattern="^(GET|HEAD|POST|PUT|PATCH|DELETE)$")
    url: str = Field(pattern="^https?://", max_length=2_000)
    headers: dict[str, EnvValue] = {}
    body: str = Field(default="", max_length=65_536)
    expect: list[Annotated[int, Field(ge=100, le=599)]] = []


_TASKS: Final = ("python", "shell", "http")


class Task(_Model):
    """What a run executes: one of three kinds."""

    model_config = ConfigDict(json_schema_extra=_one_required(_TASKS))

    python: Id | None = Field(default=None, description="A name registered by a worker.")
    shell: str | None = Field(default=None, min_length=1, max_length=32_768)
    http: HttpTask | None = None
    args: dict[str, JsonValue] = Field(default={}, description="Of `python`.")
    env: dict[str, EnvValue] = Field(default={}, description="Of `shell`.")
    cwd: str | None = Field(default=None, max_length=4_096, description="Of `shell`.")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        _exactly_one(self.given(*_TASKS), _TASKS)
        for name, kind in (("args", "python"), ("env", "shell"), ("cwd", "shell")):
            if self.given(name) and not self.given(kind):
                raise ValueError(f"expected `{name}` only beside `{kind}`")
        return self


class CatchUpPart(_Model):
    """What happens to times that were missed."""

    policy: CatchUpWord | None = None
    window: DurationText | None = None
    max: int | None = None
    late_after: DurationText | None = None


class RetryPart(_Model):
    """How failed attempts are repeated."""

    max_attempts: int | None = None
    max_deliveries: int | None = None
    initial_backoff: DurationText | None = None
    multiplier: float | None = None
    max_backoff: DurationText | None = None
    jitter: float | None = None


class RetentionPart(_Model):
    """How much history is kept."""

    max_age: DurationText | None = None
    max_runs: int | None = None


class Job(_Model):
    """One job."""

    name: Id
    description: str = Field(default="", max_length=1_000)
    labels: dict[str, str] = {}
    schedule: Schedule | None = None
    schedules: list[Schedule] = Field(default=[], description="Several: what any of them asks.")
    task: Task
    queue: Id = "default"
    priority: int | None = None
    overlap: OverlapWord = Overlap.SKIP
    max_buffered: int = 100
    max_live: int = 1_000
    catch_up: CatchUpPart = CatchUpPart()
    retry: RetryPart | None = None
    timeout: DurationText | None = None
    deadline: DurationText | None = None
    start_within: DurationText | None = None
    delivery: DeliveryWord = Delivery.AT_LEAST_ONCE
    exclusive: bool = False
    retention: RetentionPart = RetentionPart()

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if self.given("schedule") and self.given("schedules"):
            raise ValueError("expected `schedule` or `schedules`, not both")
        return self


class File(_Model):
    """A job file."""

    namespace: Id = "default"
    calendars: list[Calendar] = []
    jobs: list[Job] = Field(min_length=1, max_length=MAX_JOBS)
