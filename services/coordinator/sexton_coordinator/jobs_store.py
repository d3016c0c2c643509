"""Reads jobs out of the store, into what the core decides about.

A job's parts stand under several keys: its definition, the versions before it, its state, and the
starts that wait. Every change of any of them rewrites `state/`, so whoever commits comparing
`LoadedJob.state_revision` may read them one after the other, state first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from sexton.errors import IllegalState, ResourceExhausted
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2
from sexton_coordinator.templates import Template, Templates
from sexton_coordinator.writes import JobName
from sexton_core.errors import CoreError
from sexton_core.instants import Instant
from sexton_core.policy import Buffered, Job, JobState
from sexton_core.schedules import JobIdentity
from sexton_records import keys
from sexton_records.spec import encode_template
from sexton_records.state import decode_buffered, decode_state
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import KeyValue, prefix_end

_KEYS_PER_GET: Final = 200
"""Definitions are small but may have 100 KiB; an answer has at most 4 MiB. Halved where it has."""
_MAX_VERSIONS: Final = 5_000
_MAX_VERSION_BYTES: Final = 16 * 1024 * 1024
"""Decoded definitions kept for the next reading, by number and by the size of their records. One
takes up to 6 KiB more where no other job has the same; the jobs that are due soon keep theirs."""
_NO_VERSIONS: Final[frozenset[int]] = frozenset()
_CALLS_AT_ONCE: Final = 16
"""Calls to the store that one reading has under way."""
_FEW_JOBS: Final = 8
"""Of more jobs it is asked once who has waiting starts at all."""


class Version:
    """One version of a job's definition, decoded once."""

    __slots__ = ("_prefix", "_template", "definition", "spec")

    def __init__(self, template: Template) -> None:
        self.spec: Final = template.spec
        self.definition: Final = template.definition
        self._template = template
        self._prefix = b""

    @property
    def size(self) -> int:
        """Returns the size of the definition's message."""
        return len(self._template.key[1])

    def run_prefix(self, name: JobName) -> bytes:
        """Returns what the records of all its runs begin with: their template, serialised."""
        if not self._prefix:
            shared = self._template.of_runs()
            self._prefix = encode_template(name.namespace, name.job, name.uid, shared)
        return self._prefix


class JobRef(NamedTuple):
    """A job to be read: its uid, and its name where that is known."""

    uid: str
    namespace: str = ""
    job: str = ""


class LoadedJob(NamedTuple):
    """A job as read.

    timer: when the timer stands, that the state wrote; None: it wrote none.
    versions: at least those that the state and the waiting starts name, and the current one.
    state_value: the record of the state, as read.
    """

    name: JobName
    job: Job
    state: JobState
    state_revision: int
    timer: Instant | None
    record: pb.JobRecord
    job_revision: int
    versions: dict[int, Version]
    state_value: bytes


class UnreadableJob(NamedTuple):
    """A job whose records this software can't make sense of."""

    uid: str
    why: str


Loaded: TypeAlias = LoadedJob | UnreadableJob | None


class JobReader:
    """Reads jobs, sharing their schedules and remembering decoded versions."""

    def __init__(self, store: Engine, coordinator_shards: int) -> None:
        self._templates: Final = Templates()
        self._store = store
        self._shards = coordinator_shards
        self._versions: OrderedDict[tuple[str, int], Version] = OrderedDict()
        self._version_bytes = 0

    def name_of(self, namespace: str, job: str, uid: str) -> JobName:
        """Returns a job's name with its shard."""
        return JobName(namespace, job, uid, keys.shard_of(uid, self._shards))

    async def by_name(self, namespace: str, job: str) -> LoadedJob | None:
        """Reads a job by its name; None: there is none.

        Raises:
            IllegalState: it is there and can't be read.

        """
        (kv,) = (await self._store.get([keys.job_key(namespace, job)])).kvs
        if not kv.create_revision:
            return None
        uid = pb.JobRecord.FromString(kv.value).uid
        (loaded,) = await self.load([JobRef(uid, namespace, job)])
        if isinstance(loaded, UnreadableJob):
            raise IllegalState(
                f"job {namespace}/{job}",
                f"unreadable ({loaded.why})",
                ["readable by this version of the software"],
            )
        return loaded

    async def load(
        self,
        refs: Sequence[JobRef],
        waiting: Collection[str] | None = None,
        needed: Mapping[str, Collection[int]] | None = None,
    ) -> list[Loaded]:
        """Reads jobs of any number; each is None where its state or its definition is gone.

        Args:
            refs: uids, once each.
            waiting: uids that may have waiting starts; None: all may.
            needed: versions to be read too, by uid, where they are still there.

        """
        shards = {ref.uid: keys.shard_of(ref.uid, self._shards) for ref in refs}
        named = [ref for ref in refs if ref.job]
        kvs = await get_all(
            self._store,
            [
                *(keys.state_key(shards[ref.uid], ref.uid) for ref in refs),
                *(keys.job_key(ref.namespace, ref.job) for ref in named),
            ],
        )
        drafts = [_Draft(kv, ref, shards[ref.uid]) for kv, ref in zip(kvs, refs, strict=False)]
        if needed:
            for draft in drafts:
                draft.needed = frozenset(needed.get(draft.uid, ()))
        found = [draft for draft in drafts if draft.state is not None]
        await self._read_definitions(found, {kv.key: kv for kv in kvs[len(refs) :]})
        await self._read_buffered(
            [d for d in found if d.record is not None and (waiting is None or d.uid in waiting)]
        )
        await self._read_versions(found)
        return [self._finish(draft) for draft in drafts]

    async def _read_definitions(
        self, drafts: Sequence[_Draft], read: dict[bytes, KeyValue]
    ) -> None:
        """Reads the definitions that were not read with the states, for want of a name."""
        job_keys = [draft.name.job_key for draft in drafts]
        wanted = [key for key in job_keys if key not in read]
        read |= {kv.key: kv for kv in await get_all(self._store, wanted)}
        for draft, key in zip(drafts, job_keys, strict=True):
            draft.take_definition(read[key])

    async def _read_buffered(self, drafts: Sequence[_Draft]) -> None:
        if len(drafts) > _FEW_JOBS:
            waiting = await self._waiting({draft.shard for draft in drafts})
            if waiting is not None:
                drafts = [draft for draft in drafts if draft.uid in waiting]
        several = asyncio.Semaphore(_CALLS_AT_ONCE)

        async def read(draft: _Draft) -> None:
            async with several:
                kvs = await scan_all(self._store, keys.buffered_prefix(draft.shard, draft.uid))
            draft.take_buffered(kvs)

        await asyncio.gather(*map(read, drafts))

    async def _waiting(self, shards: Iterable[int]) -> set[str] | None:
        """Returns the jobs with waiting starts; None where so many wait that it is not told."""
        waiting: set[str] = set()
        for shard in shards:
            prefix = keys.buffered_prefix(shard)
            page = await self._store.scan(prefix, prefix_end(prefix), keys_only=True)
            if page.next_token:
                return None
            waiting.update(keys.parse_buffered_key(kv.key)[0] for kv in page.kvs)
        return waiting

    async def _read_versions(self, drafts: Iterable[_Draft]) -> None:
        wanted = [
            (draft, version)
            for draft in drafts
            for version in draft.former_versions() | draft.needed
            if (draft.uid, version) not in self._versions
        ]
        kvs = await get_all(
            self._store, [keys.version_key(draft.uid, version) for draft, version in wanted]
        )
        for (draft, version), kv in zip(wanted, kvs, strict=True):
            if kv.create_revision:
                draft.take_version(version, kv)

    def _finish(self, draft: _Draft) -> Loaded:
        if draft.why:
            return UnreadableJob(draft.uid, draft.why)
        record, state = draft.record, draft.state
        if record is None or state is None:
            return None
        wanted = [record.version]
        former = draft.former_versions()
        if former or draft.needed:
            still = {version for version in draft.needed if self._is_there(draft, version)}
            wanted = sorted({*wanted, *former, *still})
        try:
            versions = {version: self._version(draft, version) for version in wanted}
            job = Job(
                namespace=draft.name.namespace,
                name=draft.name.job,
                uid=draft.uid,
                created_at=record.create_time_ns,
                definitions=tuple(version.definition for version in versions.values()),
            )
            decoded = decode_state(state, draft.buffered)
        except (CoreError, LookupError, ValueError) as error:
            return UnreadableJob(draft.uid, f"{type(error).__name__}: {error}")
        return LoadedJob(
            draft.name,
            job,
            decoded,
            draft.state_kv.mod_revision,
            state.timer_ns if state.HasField("timer_ns") else None,
            record,
            draft.job_revision,
            versions,
            draft.state_kv.value,
        )

    def _is_there(self, draft: _Draft, number: int) -> bool:
        return number in draft.former or (draft.uid, number) in self._versions

    def _version(self, draft: _Draft, number: int) -> Version:
        """Returns a version, decoded now or before.

        Raises:
            LookupError: it is not in the store.
            FieldError: it says what this software does not know.

        """
        key = (draft.uid, number)
        version = self._versions.get(key)
        if version is not None:
            self._versions.move_to_end(key)
            return version
        assert draft.record is not None, "a job without a definition has no versions"
        if number == draft.record.version:
            spec, since = draft.record.spec, draft.record.effective_time_ns
        elif number in draft.former:
            spec, since = draft.former[number].spec, draft.former[number].after_time_ns
        else:
            raise LookupError(f"version {number} is not in the store")
        version = self.decode(draft.name, spec, number, since)
        self._remember(key, version)
        return version

    def _remember(self, key: tuple[str, int], version: Version) -> None:
        self._versions[key] = version
        self._version_bytes += version.size
        while len(self._versions) > _MAX_VERSIONS or self._version_bytes > _MAX_VERSION_BYTES:
            _, forgotten = self._versions.popitem(last=False)
            self._version_bytes -= forgotten.size

    def decode(self, name: JobName, spec: job_pb2.JobSpec, number: int, since: Instant) -> Version:
        """Returns a version of a definition that came, or comes, into force at `since`.

        Raises:
            FieldError: a field has a value that can't be used.

        """
        return Version(self.template(name, spec, number, since))

    def shared_template(self, spec: job_pb2.JobSpec, number: int) -> Template | None:
        """Returns what the jobs with a definition share, if that is known."""
        return self._templates.shared(spec, number)

    def template(
        self, name: JobName, spec: job_pb2.JobSpec, number: int, since: Instant
    ) -> Template:
        """Returns what `decode` makes a version of, which equal definitions of jobs share.

        Raises:
            FieldError: a field has a value that can't be used.

        """

        def identity() -> JobIdentity:
            return JobIdentity(namespace=name.namespace, name=name.job, uid=name.uid, since=since)

        return self._templates.decode(spec, number, identity)


class _Draft:
    """A job whose parts are being read."""

    __slots__ = (
        "buffered",
        "former",
        "job_revision",
        "name",
        "needed",
        "record",
        "shard",
        "state",
        "state_kv",
        "uid",
        "why",
    )

    def __init__(self, kv: KeyValue, ref: JobRef, shard: int) -> None:
        self.uid = ref.uid
        self.shard = shard
        self.state_kv = kv
        self.state: pb.StateRecord | None = None
        self.record: pb.JobRecord | None = None
        self.job_revision = 0
        self.buffered: list[Buffered] = []
        self.former: dict[int, pb.VersionRecord] = {}
        self.needed: frozenset[int] = frozenset()
        self.why = ""
        namespace, job = ref.namespace, ref.job
        if kv.create_revision:
            try:
                self.state = pb.StateRecord.FromString(kv.value)
            except DecodeError as error:
                self.why = f"its state: {error}"
            else:
                namespace, job = self.state.namespace, self.state.job
        self.name = JobName(namespace, job, ref.uid, shard)

    def take_definition(self, kv: KeyValue) -> None:
        """Takes the definition, if it is this incarnation's."""
        if not kv.create_revision:
            return
        try:
            record = pb.JobRecord.FromString(kv.value)
        except DecodeError as error:
            self.why = f"its definition: {error}"
            return
        if record.uid == self.uid:
            self.record, self.job_revision = record, kv.mod_revision

    def take_buffered(self, kvs: Sequence[KeyValue]) -> None:
        """Takes the starts that wait."""
        try:
            self.buffered = [decode_buffered(pb.BufferedRecord.FromString(kv.value)) for kv in kvs]
        except (DecodeError, LookupError) as error:
            self.why = f"a start that waits: {error!r}"

    def take_version(self, version: int, kv: KeyValue) -> None:
        """Takes a version that ruled before."""
        try:
            self.former[version] = pb.VersionRecord.FromString(kv.value)
        except DecodeError as error:
            self.why = f"version {version}: {error}"

    def former_versions(self) -> AbstractSet[int]:
        """Returns the versions before the current one that something undecided still needs."""
        if self.record is None or self.state is None:
            return _NO_VERSIONS
        rules = self.state.rules
        if not self.buffered and len(rules) == 1 and rules[0].version == self.record.version:
            return _NO_VERSIONS  # as of most jobs
        named = {rule.version for rule in rules}
        named |= {start.version for start in self.buffered}
        return named - {self.record.version}


async def get_all(
    store: Engine, wanted: Sequence[bytes], *, keys_only: bool = False
) -> list[KeyValue]:
    """Reads keys of any number and size, in their order; not one snapshot."""
    most = store.limits.max_keys_per_get if keys_only else _KEYS_PER_GET
    several = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def read(part: Sequence[bytes]) -> list[KeyValue]:
        async with several:
            return await _get(store, part, keys_only=keys_only)

    parts = [wanted[first : first + most] for first in range(0, len(wanted), most)]
    return [kv for found in await asyncio.gather(*map(read, parts)) for kv in found]


async def _get(store: Engine, wanted: Sequence[bytes], *, keys_only: bool) -> list[KeyValue]:
    try:
        return list((await store.get(wanted, keys_only=keys_only)).kvs)
    except ResourceExhausted:
        if len(wanted) == 1:
            raise
    half = len(wanted) // 2
    return [
        *await _get(store, wanted[:half], keys_only=keys_only),
        *await _get(store, wanted[half:], keys_only=keys_only),
    ]


async def scan_all(store: Engine, prefix: bytes, *, keys_only: bool = False) -> list[KeyValue]:
    """Reads everything below a prefix, page by page; for what is bounded by itself."""
    found: list[KeyValue] = []
    token = b""
    while True:
        page = await store.scan(prefix, prefix_end(prefix), keys_only=keys_only, page_token=token)
        found += page.kvs
        token = page.next_token
        if not token:
            return found
