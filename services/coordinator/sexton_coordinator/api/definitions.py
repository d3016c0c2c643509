"""Definitions as they come from outside: checked, written out whole, compared."""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from sexton.errors import InvalidArgument
from sexton.v1 import job_pb2 as pb
from sexton_coordinator.api.checks import Name, refusing
from sexton_coordinator.jobs_store import JobReader
from sexton_coordinator.templates import Template
from sexton_coordinator.writes import JobName
from sexton_core.ids import UID_CHARACTERS, make_uids
from sexton_core.instants import Instant
from sexton_core.policy import Definition
from sexton_core.schedule import first_or_refuse
from sexton_runtime.randomness import Randomness

SPEC: Final = "spec."
MAX_SPEC_BYTES: Final = 400 * 1024
"""A commit has at most 1 MiB and holds two: also the one before, or the answer to a request."""

_UIDS_AT_ONCE: Final = 50
"""Drawn together: each draw asks the operating system."""
_ALIKE: Final = 2
"""Characters with which the uids of one request begin, 10 of 120 bits."""
_WELL_KNOWN: Final = "google.protobuf."


class Checked(NamedTuple):
    """A definition that can be used.

    spec: with every default written out; not to be changed, for other jobs may share it.
    template: what it was made of.
    """

    spec: pb.JobSpec
    definition: Definition
    template: Template


def check_spec(
    reader: JobReader, name: JobName, spec: pb.JobSpec, version: int, since: Instant
) -> Checked:
    """Checks a definition that comes into force at `since`.

    Args:
        reader: decodes it.
        name: whose it is.
        spec: as it was given.
        version: its number.
        since: from when its schedules count.

    Raises:
        InvalidArgument: a field has a value that can't be used.

    """
    with refusing(SPEC):
        template = reader.template(name, spec, version, since)
        whole = template.whole()
    size = whole.ByteSize()
    if size > MAX_SPEC_BYTES:
        raise InvalidArgument("spec", f"{size:,} bytes", f"at most {MAX_SPEC_BYTES:,} bytes")
    return Checked(whole, template.definition, template)


def require_a_time(definition: Definition, now: Instant) -> None:
    """Refuses a schedule that has no time after `now`.

    Raises:
        InvalidArgument: naming it.

    """
    if definition.schedule is not None:
        with refusing(SPEC):
            first_or_refuse(definition.schedule, now, field="schedules")


def new_name(reader: JobReader, name: Name, randomness: Randomness) -> JobName:
    """Returns the name of a new incarnation."""
    (uid,) = _draw_uids(randomness, 1)
    return reader.name_of(name.namespace, name.job, uid)


class Uids:
    """Gives the uids of the new incarnations of one request.

    They begin alike, so that their states stand near each other: of a million jobs, each new one
    would otherwise have a page of the store to itself.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._drawn: list[str] = []
        self._beginning = ""

    def take(self) -> str:
        """Returns one that nobody has."""
        if not self._drawn:
            self._drawn = _draw_uids(self._randomness, _UIDS_AT_ONCE)
            self._beginning = self._beginning or self._drawn[0][:_ALIKE]
        return self._beginning + self._drawn.pop()[_ALIKE:]

    def give_back(self, uid: str) -> None:
        """Takes one back that was used for nothing."""
        self._drawn.append(uid)


def _draw_uids(randomness: Randomness, number: int) -> list[str]:
    return make_uids(bytes.fromhex(randomness.token_hex(UID_CHARACTERS * number)))


def merged(stored: pb.JobSpec, given: pb.JobSpec, mask: FieldMask) -> pb.JobSpec:
    """Returns the stored definition with the mask's paths taken from another; no mask: the other.

    Raises:
        InvalidArgument: a path names no field.

    """
    if not mask.paths:
        return given
    for path in mask.paths:
        if not FieldMask(paths=[path]).IsValidForDescriptor(pb.JobSpec.DESCRIPTOR):
            raise InvalidArgument(
                "update_mask", path, "paths below spec, such as schedules or retry.max_attempts"
            )
    spec = pb.JobSpec()
    spec.CopyFrom(stored)
    mask.MergeMessage(given, spec, replace_message_field=True, replace_repeated_field=True)
    return spec


def changed_paths(before: Message, after: Message, prefix: str = "") -> list[str]:
    """Returns the paths at which two definitions differ; lists and maps are one path each."""
    paths: list[str] = []
    for field in before.DESCRIPTOR.fields:
        old, new = getattr(before, field.name), getattr(after, field.name)
        if field.has_presence:
            same = before.HasField(field.name) == after.HasField(field.name) and old == new
        else:
            same = old == new
        if same:
            continue
        path = prefix + field.name
        if _is_group(before, after, field.name):
            paths += changed_paths(old, new, f"{path}.")
        else:
            paths.append(path)
    return paths


def _is_group(before: Message, after: Message, field_name: str) -> bool:
    """Tells whether a field is a message of both, whose own fields say more than its name."""
    field = before.DESCRIPTOR.fields_by_name[field_name]
    return (
        field.message_type is not None
        and not field.is_repeated
        and not field.message_type.full_name.startswith(_WELL_KNOWN)
        and before.HasField(field_name)
        and after.HasField(field_name)
    )
