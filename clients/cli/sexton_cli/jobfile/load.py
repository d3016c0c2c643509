"""From the text of a job file to the core's own objects, or to a list of what to correct."""

from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import cache
from hashlib import blake2b
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from sexton.errors import SextonError
from sexton.holidays import holiday_dates
from sexton_cli.jobfile import models
from sexton_cli.jobfile._convert import (
    calendar_of,
    catch_up_of,
    retention_of,
    run_policy_of,
    spec_of,
)
from sexton_cli.jobfile._task import task_message
from sexton_cli.jobfile._yaml import Document, Path, dotted, read
from sexton_cli.jobfile.problems import JobFileError, Problem
from sexton_core.errors import FieldError
from sexton_core.ids import UID_ENTROPY_BYTES, make_uid
from sexton_core.instants import Instant
from sexton_core.policy import CatchUp, Definition, Retention
from sexton_core.policy import Job as CoreJob
from sexton_core.runs.policy import RunPolicy
from sexton_core.schedules import (
    AnySpec,
    CalendarSpec,
    JobIdentity,
    JobSchedule,
    ScheduleCache,
    check_calendar,
)
from sexton_core.words import Overlap
from sexton_records.spec import check_description
from sexton_records.tasks import check_task

_SHOWN_CHARACTERS: Final = 60
# What pydantic calls a wrong type -> what would be right.
_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob:
    """One job of a file, checked, with the line that it begins on."""

    namespace: str
    name: str
    line: int
    spec: AnySpec | None
    """None: it runs by trigger and backfill only."""
    task: models.Task
    overlap: Overlap
    max_buffered: int
    max_live: int
    catch_up: CatchUp
    run: RunPolicy
    retention: Retention
    labels: tuple[tuple[str, str], ...]
    description: str

    @property
    def full_name(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def identity(self, since: Instant, uid: str | None = None) -> JobIdentity:
        """Returns the job's identity; without a uid of its own, one made from its name.

        A real uid is random: jitter computed here shows the pattern, not the real delays.
        """
        if uid is None:
            entropy = blake2b(self.full_name.encode(), digest_size=UID_ENTROPY_BYTES).digest()
            uid = make_uid(entropy)
        return JobIdentity(namespace=self.namespace, name=self.name, uid=uid, since=since)

    def definition(self, schedule: JobSchedule | None, version: int = 1) -> Definition:
        """Returns the job's first definition, with a schedule built from its `spec`."""
        return Definition(
            version=version,
            schedule=None if schedule is None else schedule.nominal,
            unfiltered=None if schedule is None else schedule.unfiltered,
            jitter_ns=0 if schedule is None else schedule.jitter_ns,
            overlap=self.overlap,
            max_buffered=self.max_buffered,
            max_live=self.max_live,
            catch_up=self.catch_up,
            run=self.run,
            retention=self.retention,
        )

    def job(self, schedule: JobSchedule | None, since: Instant) -> CoreJob:
        """Returns the job as the policies see it, created at an instant."""
        identity = self.identity(since)
        return CoreJob(
            namespace=self.namespace,
            name=self.name,
            uid=identity.uid,
            created_at=since,
            definitions=(self.definition(schedule),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A job file, checked."""

    source: str
    namespace: str
    jobs: tuple[FileJob, ...]
    notes: tuple[str, ...] = ()
    """What whoever uses it should know, though nothing is wrong."""

    def job(self, name: str) -> FileJob | None:
        """Returns the job of that name, None where the file has none."""
        return next((job for job in self.jobs if name in (job.name, job.full_name)), None)


def load_file(path: str | FilePath) -> JobFile:
    """Reads a job file from disk.

    Raises:
        JobFileError: it can't be used; the text names each line and what would be right.
        OSError: it can't be read.

    """
    with FilePath(path).open("rb") as file:
        return load(file.read(), source=str(path))


def load(text: bytes | str, source: str = "jobs.yaml", *, today: date | None = None) -> JobFile:
    """Reads a job file; `source` names it in messages, holidays are those from `today`'s year on.

    Raises:
        JobFileError: as `load_file`.

    """
    document = read(text, source)
    if not isinstance(document.value, dict):
        problem = Problem(1, 1, "", "no mapping; expected `jobs:` and a list of jobs")
        raise JobFileError(source, [problem])
    try:
        file = models.File.model_validate(document.value)
    except ValidationError as error:
        problems = [_problem(document, found) for found in error.errors(include_url=False)]
        raise JobFileError(source, problems) from None
    return _Checker(document, source, file, today or date.today()).check()  # noqa: DTZ011


@cache
def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a job file, for editors."""
    schema = models.File.model_json_schema(schema_generator=_SchemaWithoutNull)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Sexton job file"
    return schema


class _SchemaWithoutNull(GenerateJsonSchema):
    """A field is given or left out; null is neither."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        if isinstance(schema.get("default"), BaseModel | None):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


class _Checker:
    """Turns the models into the core's objects, and the core's objections into problems."""

    def __init__(self, document: Document, source: str, file: models.File, today: date) -> None:
        self._today = today
        self._notes: list[str] = []
        self._document = document
        self._source = source
        self._file = file
        self._problems: list[Problem] = []
        self._schedules = ScheduleCache()
        self._broken_calendars: set[str] = set()

    def check(self) -> JobFile:
        calendars: dict[str, models.Calendar] = {}
        for index, calendar in enumerate(self._file.calendars):
            if calendar.name in calendars:
                self._add(("calendars", index, "name"), f"a second calendar {calendar.name!r}")
            calendars[calendar.name] = self._with_holidays(("calendars", index), calendar)
            self._calendar(("calendars", index), calendars[calendar.name])
        jobs: dict[str, FileJob | None] = {}
        for index, job in enumerate(self._file.jobs):
            if job.name in jobs:
                self._add(("jobs", index, "name"), f"a second job {job.name!r}; expected one")
            jobs[job.name] = self._job(("jobs", index), job, calendars)
        if self._problems:
            raise JobFileError(self._source, self._problems)
        return JobFile(
            source=self._source,
            namespace=self._file.namespace,
            jobs=tuple(job for job in jobs.values() if job is not None),
            notes=tuple(self._notes),
        )

    def _job(
        self, path: Path, job: models.Job, calendars: dict[str, models.Calendar]
    ) -> FileJob | None:
        known = len(self._problems)
        spec = self._spec(path, job, calendars)
        try:
            found = FileJob(
                namespace=self._file.namespace,
                name=job.name,
                line=self._document.place(path).line,
                spec=spec,
                task=job.task,
                overlap=job.overlap,
                max_buffered=job.max_buffered,
                max_live=job.max_live,
                catch_up=catch_up_of(job),
                run=run_policy_of(job),
                retention=retention_of(job),
                labels=tuple(sorted(job.labels.items())),
                description=job.description,
            )
            # The limits that only the whole definition knows, and what a task may hold.
            found.definition(None)
            check_task(task_message(job.task))
            check_description(job.labels, job.description)
        except FieldError as error:
            self._refuse(path, error)
            return None
        if spec is not None and len(self._problems) == known and not self._broken(job):
            single = bool(job.given("schedule"))
            where: Path = (*path, "schedule") if single else (*path, "schedules")
            try:
                self._schedules.build(spec, found.identity(since=0))
            except FieldError as error:
                self._refuse(self._part_of(where, job, found, error), error)
        return found

    def _with_holidays(self, path: Path, calendar: models.Calendar) -> models.Calendar:
        """Writes a calendar's holidays out as dates: definitions hold their days by value."""
        if not calendar.holidays:
            return calendar
        found: set[date] = set()
        for index, region in enumerate(calendar.holidays):
            try:
                found.update(holiday_dates(region, years=calendar.holiday_years, today=self._today))
            except SextonError as error:
                self._broken_calendars.add(calendar.name)
                self._add((*path, "holidays", index), str(error).removeprefix("holidays: "))
        last = self._today.year + calendar.holiday_years - 1
        self._notes.append(
            f"calendar {calendar.name}: the holidays of {', '.join(calendar.holidays)} are written "
            f"out up to the end of {last}; apply the file again before"
        )
        return calendar.model_copy(update={"dates": sorted({*calendar.dates, *found})})

    def _calendar(self, path: Path, calendar: models.Calendar) -> None:
        """Checks a calendar whether a schedule excludes it or not, entry by entry."""
        whole = calendar_of(calendar)
        entries: list[tuple[Path, CalendarSpec]] = []
        for index, each in enumerate(whole.ranges):
            entries.append((("ranges", index), CalendarSpec(name=whole.name, ranges=(each,))))
        for index, cron in enumerate(whole.crons):
            entries.append((("crons", index), CalendarSpec(name=whole.name, crons=(cron,))))
        for place, spec in [*entries, ((), whole)]:
            if not place and whole.name in self._broken_calendars:
                return
            try:
                check_calendar(spec)
            except FieldError as error:
                self._broken_calendars.add(whole.name)
                self._add((*path, *place), str(error).removeprefix(f"calendar {whole.name}: "))

    def _broken(self, job: models.Job) -> bool:
        excluded = {name for _, each in _schedules((), job) for name in each.exclude}
        return not self._broken_calendars.isdisjoint(excluded)

    def _spec(
        self, path: Path, job: models.Job, calendars: dict[str, models.Calendar]
    ) -> AnySpec | None:
        unknown = False
        for where, schedule in _schedules(path, job):
            for index, name in enumerate(schedule.exclude):
                if name not in calendars:
                    unknown = True
                    expected = (
                        models.one_of(name, sorted(calendars))
                        if calendars
                        else "a calendar that this file declares under `calendars`"
                    )
                    message = f"{name!r} is no calendar of this file; expected {expected}"
                    self._add((*where, "exclude", index), message)
        return None if unknown else spec_of(job, calendars)

    def _part_of(self, where: Path, job: models.Job, found: FileJob, error: FieldError) -> Path:
        """Returns which of several schedules an objection is about: the first that shares it."""
        if not job.schedules or found.spec is None:
            return where
        for index, part in enumerate(getattr(found.spec, "parts", (found.spec,))):
            try:
                self._schedules.build(part, found.identity(since=0))
            except FieldError as own:
                if str(own) == str(error):
                    return (*where, index)
        return where

    def _refuse(self, path: Path, error: FieldError) -> None:
        """Records an objection of the core at the field that it is about, as far as it is known."""
        fields = error.field.split(".")
        for candidate in (tuple(fields), tuple(fields[:1])):
            if (*path, *candidate) in self._document.places:
                # The place says which field it is.
                message = str(error).removeprefix(f"{error.field}: ")
                self._add((*path, *candidate), message)
                return
        value = self._document.value
        for part in path:
            value = value[part]
        given = value if isinstance(value, dict) else {}
        inner = next((kind for kind in models.KINDS if kind in given), None)
        self._add(path if inner is None else (*path, inner), str(error))

    def _add(self, path: Path, message: str) -> None:
        self._problems.append(Problem(*self._document.place(path), dotted(path), message))


def _schedules(path: Path, job: models.Job) -> list[tuple[Path, models.Schedule]]:
    if job.schedule is not None:
        return [((*path, "schedule"), job.schedule)]
    return [((*path, "schedules", index), each) for index, each in enumerate(job.schedules)]


def _problem(document: Document, found: Any) -> Problem:
    """Turns pydantic's finding into ours: line, value, what would be right."""
    path: Path = ()
    value = document.value
    for part in found["loc"]:
        try:
            value = value[part]
        except (LookupError, TypeError):
            continue
        path = (*path, part)
    kind = found["type"]
    name = found["loc"][-1] if found["loc"] else ""
    if kind == "missing":
        message = f"{name!r} is missing; expected it here"
    elif kind == "extra_forbidden":
        message = f"unknown field; expected {_known_fields(found['loc'])}"
    else:
        message = f"{_shown(value)} can't be used; {_expectation(found)}"
    return Problem(*document.place(path), dotted(path), message)


def _expectation(found: Any) -> str:
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        return f"expected {cause.expected}"
    if isinstance(cause, ValueError):
        return str(cause)
    context = found.get("ctx", {})
    bounds = {
        "too_short": "at least {min_length} of them",
        "too_long": "at most {max_length} of them",
        "string_too_short": "at least {min_length} characters",
        "string_too_long": "at most {max_length} characters",
        "greater_than_equal": "at least {ge}",
        "less_than_equal": "at most {le}",
        "string_pattern_mismatch": "text that matches {pattern}",
    }
    bound = bounds.get(found["type"])
    expected = bound.format(**context) if bound else _EXPECTED.get(found["type"])
    if found["type"] == "model_type":
        model = _model_at(found["loc"])
        expected = f"a mapping of {', '.join(model.model_fields)}" if model else expected
    elif found["type"] == "string_type" and not isinstance(found["input"], list | dict):
        expected = "text; put it in quotes"
    return f"expected {expected}" if expected else str(found["msg"])


def _known_fields(location: tuple[str | int, ...]) -> str:
    """Returns the fields of the model in which an unknown one stands, and the nearest of them."""
    model = _model_at(location[:-1])
    if model is None:
        return "another one"
    names = list(model.model_fields)
    near = get_close_matches(str(location[-1]), names, n=1, cutoff=0.6)
    return f"{near[0]!r}, did you mean that?" if near else f"one of {', '.join(names)}"


def _model_at(location: tuple[str | int, ...]) -> type[BaseModel] | None:
    """Returns the model of the mapping that belongs at a place."""
    model: Any = models.File
    for part in location:
        if isinstance(part, str) and model is not None:
            field = model.model_fields.get(part)
            model = None if field is None else _model_in(field.annotation)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(part) for part in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    words: dict[object, str] = {None: "nothing", True: "true", False: "false"}
    plain = value is None or isinstance(value, bool)
    text = words[value] if plain else repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        size = len(value if isinstance(value, str) else text)  # without the quotes
        return f"{text[:_SHOWN_CHARACTERS]}... ({size} characters)"
    return text
