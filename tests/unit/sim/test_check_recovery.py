"""What excuses an overlap, and who must be served, lead and be with another again, and when."""

from __future__ import annotations

from typing import Any

import pytest
from unit.sim.test_check import S, Story

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_records import keys
from sexton_runtime.kv.types import Delete, Put
from sexton_sim.check.executions import ExecutionRules, Times
from sexton_sim.check.faults import Faults
from sexton_sim.check.healing import HealingRules
from sexton_sim.check.lateness import LatenessRules
from sexton_sim.check.losses import LossRules
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.settling import Attempt, Moment, Run
from sexton_sim.check.takeovers import TakeoverRules
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Recorder
from sexton_store.cluster import encode_lease

TIMES = Times(session_ns=30 * S, grace_ns=2 * S)
HANDLE = b"active/000/default/100/00000000000000000001/%s/run-1" % (b"u" * 24)
LEADS = b"leases/coordinator/000"


class Told:
    """A history by hand, in seconds."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.recorder = Recorder(lambda: self.now_ns)
        self.verdict = Verdict()

    def at(self, seconds: float) -> Told:
        self.now_ns = round(seconds * S)
        return self

    def fault(self, seconds: float, what: str, target: str = "", **facts: Any) -> Told:
        self.at(seconds).recorder.fault(what, target, **facts)
        return self

    def executed(self, begin: float, end: float | None, token: int, worker: str) -> Told:
        facts = {"handle": HANDLE.decode(), "token": token}
        self.at(begin).recorder.exec("started", worker, **facts)
        if end is not None:
            self.at(end).recorder.exec("ended", worker, **facts, how="succeeded")
        return self

    def called(self, begin: float, end: float | None, error: str = "") -> Told:
        call = self.at(begin).recorder.invoke("user", "GetJob", name="n")
        if end is not None:
            self.at(end)
            if error:
                self.recorder.fail(call, error)
            else:
                self.recorder.ok(call, name="n")
        return self

    @property
    def faults(self) -> Faults:
        return Faults(self.recorder.history())


def moment(seconds: float, what: str = "something") -> Moment:
    return Moment(1, round(seconds * S), round(seconds * S), what)


def run_of(*attempts: Attempt, **template: Any) -> Run:
    record = pb.RunRecord(
        template=pb.RunTemplate(
            namespace="default", job="backup", job_uid="u" * 24, queue="default", **template
        ),
        run_id="run-1",
        state=run_pb2.RUN_STATE_RUNNING,
    )
    return Run(HANDLE, moment(0), record, list(attempts))


def attempt(token: int, worker: str, assigned: float, lost: float | None = None) -> Attempt:
    found = Attempt(token, token, worker, f"session-{worker}", moment(assigned, "assigned"))
    if lost is not None:
        found.lost = moment(lost, "recorded as lost")
    return found


def overlap(told: Told, **template: Any) -> list[str]:
    """Judges two executions, the second from 40 s on, while the first goes on until 50 s."""
    told.executed(1, 50, 7, "worker-1").executed(40, 60, 9, "worker-2")
    history = told.recorder.history()
    rules = ExecutionRules(history, Faults(history), told.verdict, TIMES)
    run = run_of(attempt(7, "worker-1", 0.5, 39), attempt(9, "worker-2", 39.5), **template)
    for one in run.attempts:
        rules.assigned(run, one)
    rules.ended(run)
    assert told.verdict.checked["S10 overlaps"] == 1
    return told.verdict.rules()


def test_an_overlap_without_a_cause_breaks_s10_and_names_all_that_proves_it() -> None:
    told = Told().fault(0, "crash", "worker-3")
    assert overlap(told) == ["S10"]
    (violation,) = told.verdict.violations
    assert "attempts 7 and 9 of run default/backup/run-1" in violation.message
    assert "nothing was done to worker-1 that allows it" in violation.message
    assert len(violation.events) == 6
    assert "at 1.000 s worker-1 started run-1 (token 7)" in violation.events


@pytest.mark.parametrize(
    ("begin", "end", "excused"),
    [(5, 48, True), (30, 36, True), (5, 6, False), (39, 48, False)],
)
def test_a_machine_that_stood_still_for_longer_than_the_margin_excuses_an_overlap(
    begin: float, end: float, *, excused: bool
) -> None:
    told = Told().fault(begin, "sleep", "worker-1").fault(end, "wake", "worker-1")
    assert (overlap(told, exclusive=True) == []) is excused


def test_another_workers_machine_excuses_nothing() -> None:
    told = Told().fault(5, "sleep", "worker-2").fault(48, "wake", "worker-2")
    assert overlap(told) == ["S10"]


@pytest.mark.parametrize(("exclusive", "broken"), [(False, []), (True, ["S10"])])
def test_a_broken_connection_excuses_an_overlap_but_of_an_exclusive_job(
    *, exclusive: bool, broken: list[str]
) -> None:
    told = Told().fault(30, "cut", "queue-1", source="worker-1")
    told.fault(45, "mend", "queue-1", source="worker-1")
    assert overlap(told, exclusive=exclusive) == broken


def test_a_slow_clock_excuses_an_overlap() -> None:
    told = Told()
    told.at(2).recorder.clock("rate", "worker-1", rate=0.5)
    told.fault(2, "inject")
    assert overlap(told, exclusive=True) == []


def test_without_any_word_about_faults_an_overlap_is_told_and_not_judged() -> None:
    told = Told()
    assert overlap(told) == []
    assert "no line tells what was done to the mesh (S10)" in told.verdict.inconclusive[0]


# Workers that are lost: L4


def lose(told: Told, killed: float | None, lost: float, **template: Any) -> list[str]:
    if killed is not None:
        told.fault(killed, "crash", "worker-1").fault(killed + 1, "start", "worker-1")
    rules = LossRules(told.faults, told.verdict, {}, TIMES, since_ns=0, until_ns=0)
    one = attempt(7, "worker-1", 20, lost)
    rules.given_up(run_of(one, **template), one)
    return told.verdict.rules()


@pytest.mark.parametrize(("lost", "broken"), [(32.5, []), (34, ["L4"])])
def test_a_killed_workers_runs_are_given_up_within_the_grace_and_a_second(
    lost: float, broken: list[str]
) -> None:
    told = Told()
    assert lose(told, 30, lost) == broken
    assert told.verdict.checked["L4"] == 1


@pytest.mark.parametrize(("lost", "broken"), [(60.5, []), (62, ["L4"])])
def test_an_exclusive_jobs_runs_wait_for_the_whole_session(lost: float, broken: list[str]) -> None:
    assert lose(Told(), 30, lost, exclusive=True) == broken


@pytest.mark.parametrize(("lost", "broken"), [(60.5, []), (62, ["L4"])])
def test_a_run_that_is_past_its_deadline_waits_for_the_whole_session(
    lost: float, broken: list[str]
) -> None:
    told = Told().fault(30, "crash", "worker-1").fault(31, "start", "worker-1")
    rules = LossRules(told.faults, told.verdict, {}, TIMES, since_ns=0, until_ns=0)
    one = attempt(7, "worker-1", 20, lost)
    late = run_of(one)
    late.record.deadline_passed = True
    rules.given_up(late, one)
    assert told.verdict.rules() == broken


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("state", [run_pb2.ATTEMPT_STATE_RETURNED, run_pb2.ATTEMPT_STATE_LOST])
def test_a_worker_that_is_there_gives_back_only_what_is_to_end(
    state: run_pb2.AttemptState.ValueType, *, asked: bool
) -> None:
    told = Told().fault(0, "crash", "worker-3")
    rules = LossRules(told.faults, told.verdict, {}, TIMES, since_ns=0, until_ns=0)
    one = attempt(7, "worker-1", 50, 50.1)
    one.state = state
    given = run_of(one)
    if asked:
        given.record.cancel.reason = "by hand"
    rules.given_up(given, one)
    returned = asked and state == run_pb2.ATTEMPT_STATE_RETURNED
    assert told.verdict.rules() == ([] if returned else ["L4"])


def test_what_happens_beside_another_fault_is_not_judged() -> None:
    told = Told().fault(29, "crash", "queue-1")
    assert lose(told, 30, 50) == []
    assert told.verdict.checked["L4"] == 0


@pytest.mark.parametrize(("until", "broken"), [(30, ["L4"]), (55, [])])
def test_a_short_outage_of_the_store_costs_no_running_job(until: float, broken: list[str]) -> None:
    told = Told().fault(25, "crash", "store").fault(until, "start", "store")
    assert lose(told, None, until + 20) == broken


# Leaders: L2 and L7


def lead(
    *tenures: tuple[float, float | None], stop: float | None = None, also: str = ""
) -> Verdict:
    """Leases from and until; all is calm from 20 s to 40 s."""
    story, told = Story(), Told()
    for begin, end in tenures:
        story.at(begin).commit(Put(LEADS, encode_lease(f"h{begin}", 2_000, b"")))
        if end is not None:
            story.at(end).commit(Delete(LEADS))
    if stop is not None:
        told.fault(stop, "stop", "coordinator-1")
        if also:
            told.fault(stop + 1, "stop", also)
    rules = TakeoverRules(told.faults, told.verdict, TIMES, since_ns=20 * S, until_ns=40 * S)
    for entry in story.recorder.history().commits:
        rules.take(entry)
    rules.finish()
    return told.verdict


def test_one_leader_all_the_time_is_right() -> None:
    verdict = lead((1, 5), (5.1, None))
    assert verdict.ok
    assert verdict.checked["L2"] == 1
    assert verdict.measures[0].max_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("tenures", "said"),
    [
        ([(1, 25), (25.1, None)], "changed hands 1 times"),
        ([(1, 25), (27.5, None)], "nobody held leases/coordinator/000 for 2.500 s"),
        ([(1, 25)], "nobody held leases/coordinator/000 for 15.000 s"),
    ],
)
def test_a_leader_that_changes_while_all_is_calm_breaks_l2(
    tenures: list[tuple[float, float | None]], said: str
) -> None:
    verdict = lead(*tenures)
    assert verdict.rules() == ["L2"]
    assert said in str(verdict)


@pytest.mark.parametrize(("end", "broken"), [(10.3, []), (12, ["L7"])])
def test_after_sigterm_the_successor_has_the_lease_within_a_second(
    end: float, broken: list[str]
) -> None:
    verdict = lead((1, end), (end + 0.1, None), stop=10)
    assert verdict.rules() == broken
    assert verdict.checked["L7"] == 1


@pytest.mark.parametrize(("also", "judged"), [("worker-0", 1), ("coordinator-0", 0), ("store", 0)])
def test_who_is_stopped_beside_others_that_matter_is_not_judged(also: str, judged: int) -> None:
    assert lead((1, 12), (12.1, None), stop=10, also=also).checked["L7"] == judged


# Starts: L1


@pytest.mark.parametrize(("written", "late_s"), [(39.6, 0), (40.2, 0.2)])
def test_a_start_that_is_written_before_it_is_due_is_not_late(
    written: float, late_s: float
) -> None:
    told = Told()
    rules = LatenessRules(told.faults, told.verdict, TIMES, since_ns=0, until_ns=100 * S)
    state = b"state/000/" + b"u" * 24
    run = pb.RunRecord(
        template=pb.RunTemplate(job_uid="u" * 24),
        origin=run_pb2.RUN_ORIGIN_SCHEDULE,
        reason="on_time",
        due_ns=40 * S,
    )
    for at, made in ((10.0, None), (written, run)):
        changes = {keys.STATE: [Changed(state, pb.StateRecord(), pb.StateRecord(), 1)]}
        if made is not None:
            changes[keys.ACTIVE] = [Changed(HANDLE, None, made, 0)]
        rules.take(MeshCommit(1, round(at * S), round(at * S), 0, (), changes))
    rules.finish()
    assert told.verdict.ok
    assert told.verdict.measures[0].max_s == pytest.approx(late_s)


# People, and a full disk: L6 and L8


def heal(told: Told) -> Verdict:
    history = told.recorder.history()
    rules = HealingRules(history, Faults(history), told.verdict, since_ns=100 * S, until_ns=200 * S)
    rules.finish()
    return told.verdict


def busy(told: Told, since: int, until: int, error: str = "") -> Told:
    for second in range(since, until):
        told.called(second, second + 0.1, error)
    return told


def test_calls_are_served_again_after_healing() -> None:
    assert heal(busy(busy(Told(), 0, 30), 110, 140)).checked["L6"] == 30
    assert heal(busy(busy(Told(), 0, 30), 110, 140, "NotFound: no such job")).ok
    verdict = heal(busy(busy(Told(), 0, 30), 110, 140, "Unavailable: nobody serves"))
    assert verdict.rules() == ["L6"]
    verdict = heal(busy(busy(Told(), 0, 30), 110, 140).called(150, None))
    assert verdict.rules() == ["L6"]


def test_too_little_load_before_the_fault_is_inconclusive_and_not_passed() -> None:
    verdict = heal(busy(busy(Told(), 0, 3), 110, 140))
    assert verdict.ok
    assert verdict.checked["L6"] == 0
    assert "there were 3 before and 30 after it (L6)" in verdict.inconclusive[0]


def test_calls_that_hang_while_the_disk_is_full_break_l8() -> None:
    told = Told().fault(10, "full_disk", "store").called(12, 28).fault(30, "emptied", "store")
    assert heal(told).rules() == ["L8"]
    told = Told().fault(10, "full_disk", "store").called(12, 12.1, "NoSpace: it is full")
    assert heal(told.fault(30, "emptied", "store")).ok
