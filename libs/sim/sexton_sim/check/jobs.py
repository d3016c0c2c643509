"""What the checker knows of one incarnation of a job, and what one commit says about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2
from sexton_core.policy import Definition, Job
from sexton_core.policy.state import Rule
from sexton_core.policy.timeline import Timeline
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records import keys
from sexton_records.spec import decode_definition, run_template
from sexton_sim.check.records import MeshCommit

Start = pb.RunRecord | pb.BufferedRecord


@dataclass(slots=True)
class JobLog:
    """One incarnation, as far as the log has come."""

    uid: str
    namespace: str = ""
    name: str = ""
    created_ns: int = 0
    versions: dict[int, Definition] = field(default_factory=dict)
    specs: dict[int, job_pb2.JobSpec] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    state: pb.StateRecord | None = None
    buffered: dict[str, pb.BufferedRecord] = field(default_factory=dict)
    fired: dict[int, int] = field(default_factory=dict)
    """Revision of the run of each of the last nominal times."""
    live: set[bytes] = field(default_factory=set)
    """Handles of its runs in flight."""
    idle_since_ns: int = 0
    """Since when starts wait in its buffer although nothing is live; 0: it is not so."""
    timeline: Timeline | None = None
    known_from_ns: int = 0
    """Which definition rules earlier nominal times is not known."""
    adopted: bool = False
    """Whether it was there before the log began: not all of its live runs are known."""
    templates: dict[int, pb.RunTemplate] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """Names it for people."""
        return f"{self.namespace}/{self.name} ({self.uid[:8]})"

    @property
    def paused(self) -> bool:
        """Tells whether no start is made: it is paused, or was deleted."""
        return self.state is None or self.state.HasField("paused_at_ns")

    def is_over(self) -> bool:
        """Tells whether nothing of it can come any more."""
        return self.state is None and not (self.live or self.buffered)

    def learn(self, record: pb.JobRecord, schedules: ScheduleCache) -> None:
        """Takes note of a version of its definition."""
        effective = record.effective_time_ns
        identity = JobIdentity(
            namespace=self.namespace, name=self.name, uid=self.uid, since=effective
        )
        self.versions[record.version] = decode_definition(
            record.spec, record.version, identity, schedules
        )
        self.specs[record.version] = record.spec
        if self.adopted and not self.rules:
            self.known_from_ns = effective
        self.rules = [rule for rule in self.rules if rule.after < effective]
        self.rules.append(Rule(effective, record.version))
        job = Job(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            created_at=self.created_ns,
            definitions=tuple(self.versions[number] for number in sorted(self.versions)),
        )
        self.timeline = Timeline(job, tuple(self.rules))

    def template(self, version: int) -> pb.RunTemplate | None:
        """Gives what the runs of a version share; None: the version is not known."""
        if version in self.versions and version not in self.templates:
            self.templates[version] = run_template(
                self.namespace, self.name, self.uid, self.specs[version], self.versions[version]
            )
        return self.templates.get(version)


@dataclass(slots=True)
class Decided:
    """What one commit says about one job's starts."""

    runs: list[pb.RunRecord] = field(default_factory=list)
    handles: list[bytes] = field(default_factory=list)
    buffered: list[pb.BufferedRecord] = field(default_factory=list)
    unbuffered: dict[str, pb.BufferedRecord] = field(default_factory=dict)
    decisions: list[pb.DecisionRecord] = field(default_factory=list)


def decided_in(commit: MeshCommit) -> dict[str, Decided]:
    """Gives what a commit says, by the job's uid."""
    found: dict[str, Decided] = {}
    for changed in commit.of(keys.ACTIVE):
        if changed.before is None:
            uid = keys.parse_handle_key(changed.key).uid
            one = found.setdefault(uid, Decided())
            one.runs.append(changed.after)
            one.handles.append(changed.key)
    for changed in commit.of(keys.BUFFERED):
        one = found.setdefault(changed.uid, Decided())
        if changed.after is not None:
            one.buffered.append(changed.after)
        else:
            one.unbuffered[changed.before.run_id] = changed.before
    for changed in commit.of(keys.DECISIONS):
        if changed.after is not None:
            found.setdefault(changed.uid, Decided()).decisions.append(changed.after)
    return found
