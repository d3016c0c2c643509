"""The checker finds what is wrong in small histories, says where, and leaves sound ones alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexton_runtime.kv.types import Compare, Delete, Put, Target, Txn, fence
from sexton_sim.check import Verdict, WriteRules, check
from sexton_sim.check.linearize import Step, linearizable
from sexton_sim.history import Recorder, commits_as_entries, read_entries, read_file, txn_entry
from sexton_store.cluster import encode_lease
from sexton_store.disk import Record
from sexton_store.history import Change, Commit, commit_line

S = 10**9
TTL_S = 3
LEASE = b"leases/alpha"
RULES = WriteRules(fenced=("guarded/",), compared=("count/",), counters=("count/",))


class Story:
    """Writes a history by hand: `now` is what the clock shows."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.recorder = Recorder(lambda: self.now_ns)
        self.revision = 0
        self.records: dict[bytes, Record] = {}

    def at(self, seconds: float) -> Story:
        self.now_ns = round(seconds * S)
        return self

    def commit(
        self,
        *ops: Put | Delete,
        compares: tuple[Compare, ...] = (),
        mesh_s: float | None = None,
        skip: int = 0,
    ) -> int:
        """The store makes a transaction durable now."""
        self.revision += 1 + skip
        changes = []
        for op in ops:
            before = self.records.get(op.key)
            after = None
            if isinstance(op, Put):
                create = before.create_revision if before else self.revision
                version = before.version + 1 if before else 1
                after = self.records[op.key] = Record(op.value, create, self.revision, version)
            else:
                self.records.pop(op.key, None)
            changes.append(Change(op.key, before, after))
        mesh_ns = self.now_ns if mesh_s is None else round(mesh_s * S)
        line = commit_line(Commit(self.revision, mesh_ns, compares, tuple(changes)))
        self.recorder.commits([line], begun_ns=self.now_ns, durable_ns=self.now_ns)
        return self.revision

    def begin_commit(self, txn: Txn, process: str = "c", *, unique: bool = True) -> int:
        return self.recorder.invoke(process, "commit", txn=txn_entry(txn), unique=unique)

    def begin_get(self, *keys: str, process: str = "c") -> int:
        return self.recorder.invoke(process, "get", keys=list(keys))

    def got(self, call: int, revision: int, *kvs: list[Any], mesh_s: float = 0) -> None:
        self.recorder.ok(call, revision=revision, kvs=list(kvs), mesh_time_ns=round(mesh_s * S))

    def committed(self, call: int, revision: int) -> None:
        self.recorder.ok(call, outcome="COMMITTED", revision=revision)

    def refused(self, call: int, revision: int, index: int = 0, found: int = 0) -> None:
        self.recorder.ok(
            call,
            outcome="REFUSED",
            revision=revision,
            failed_compare=index,
            found_mod_revision=found,
        )

    def grant(self, holder: str = "h") -> int:
        """A holder acquires the lease; gives the token."""
        call = self.recorder.invoke(
            holder, "acquire", name="alpha", holder=holder, ttl_ms=TTL_S * 1000, replaces=0
        )
        token = self.commit(Put(LEASE, encode_lease(holder, TTL_S * 1000, b"")))
        self.recorder.ok(call, granted=True, token=token, holder=holder)
        return token

    def renew(self, token: int, *, renewed: bool = True, holder: str = "h") -> None:
        call = self.recorder.invoke(holder, "renew", leases=[["alpha", token]])
        self.recorder.ok(call, renewed=[renewed])

    def expire(self, token: int) -> int:
        return self.commit(Delete(LEASE), compares=(fence("alpha", token),))

    def verdict(self, **options: Any) -> Verdict:
        return check(self.recorder.history(), rules=RULES, **options)


@pytest.fixture
def story() -> Story:
    return Story()


def write(value: str, key: str = "reg/a", *compares: Compare) -> Txn:
    return Txn(compares, (Put(key.encode(), value.encode()),))


def test_a_sound_history_is_ok_and_says_what_was_checked(story: Story) -> None:
    call = story.at(1).begin_commit(write("c#1"))
    revision = story.at(2).commit(Put(b"reg/a", b"c#1"))
    story.at(3).committed(call, revision)
    call = story.at(4).begin_get("reg/a", "reg/b")
    story.at(5).got(call, 1, ["reg/a", "c#1", 1, 1, 1], ["reg/b", None, 0, 0, 0], mesh_s=5)
    verdict = story.verdict(registers="reg/")
    assert verdict.ok, verdict
    assert verdict.checked["S1"] > 0
    assert str(verdict).startswith("ok\nchecked: ")


def test_what_was_acknowledged_and_is_not_in_the_log_breaks_s2(story: Story) -> None:
    call = story.at(1).begin_commit(write("c#1"))
    story.at(3).committed(call, 1)
    assert story.verdict().rules() == ["S2"]


def test_a_hole_in_the_log_breaks_s2(story: Story) -> None:
    story.at(1).commit(Put(b"a", b"1"))
    story.at(2).commit(Put(b"a", b"2"), skip=1)
    assert "S2" in story.verdict().rules()


def test_another_answer_than_the_log_has_breaks_s2(story: Story) -> None:
    call = story.at(1).begin_commit(write("c#1"))
    story.at(2).commit(Put(b"reg/a", b"c#2"))
    story.at(3).committed(call, 1)
    assert story.verdict().rules() == ["S2"]


def test_an_ok_before_the_commit_is_durable_breaks_s23(story: Story) -> None:
    call = story.at(1).begin_commit(write("c#1"))
    story.at(2).committed(call, 1)
    story.at(3).commit(Put(b"reg/a", b"c#1"))
    assert story.verdict().rules() == ["S23"]


def test_a_read_of_an_older_revision_than_was_told_breaks_s19(story: Story) -> None:
    story.at(1).commit(Put(b"reg/a", b"x"))
    call = story.at(2).begin_commit(write("c#1"))
    story.at(3).commit(Put(b"reg/a", b"c#1"))
    story.at(4).committed(call, 2)
    call = story.at(5).begin_get("reg/a")
    story.at(6).got(call, 1, ["reg/a", "x", 1, 1, 1], mesh_s=6)
    verdict = story.verdict()
    assert verdict.rules() == ["S19"]
    assert "2 had been told" in str(verdict)


def test_a_read_that_the_log_contradicts_breaks_s1(story: Story) -> None:
    story.at(1).commit(Put(b"reg/a", b"x"))
    call = story.at(2).begin_get("reg/a")
    story.at(3).got(call, 1, ["reg/a", "y", 1, 1, 1], mesh_s=3)
    assert story.verdict().rules() == ["S1"]


def test_a_refusal_although_the_compare_held_breaks_s1(story: Story) -> None:
    story.at(1).commit(Put(b"reg/a", b"x"))
    compare = Compare(b"reg/a", Target.MOD_REVISION, 1)
    call = story.at(2).begin_commit(write("c#1", "reg/a", compare))
    story.at(3).refused(call, 1)
    assert story.verdict().rules() == ["S1"]


def test_a_refused_transaction_in_the_log_breaks_s22(story: Story) -> None:
    compare = Compare(b"reg/a", Target.EXISTS, operand=True)
    call = story.at(1).begin_commit(write("c#1", "reg/a", compare))
    story.at(2).refused(call, 0)
    story.at(3).commit(Put(b"reg/a", b"c#1"))
    assert story.verdict().rules() == ["S22"]


def test_a_failed_call_in_the_log_breaks_s22_but_an_unknown_one_does_not(story: Story) -> None:
    unknown = story.at(1).begin_commit(write("c#1"))
    story.at(2).recorder.unknown(unknown, "no answer")
    story.at(3).commit(Put(b"reg/a", b"c#1"))
    assert story.verdict().ok
    failed = story.at(4).begin_commit(write("c#2"))
    story.at(5).recorder.fail(failed, "not sent")
    story.at(6).commit(Put(b"reg/a", b"c#2"))
    assert story.verdict().rules() == ["S22"]


def test_one_transaction_applied_twice_breaks_s1(story: Story) -> None:
    unknown = story.at(1).begin_commit(write("c#1"))
    story.at(2).commit(Put(b"reg/a", b"c#1"))
    story.at(3).commit(Put(b"reg/a", b"c#1"))
    story.at(4).recorder.unknown(unknown, "no answer")
    assert story.verdict().rules() == ["S1"]


def test_mesh_time_that_goes_back_breaks_s20(story: Story) -> None:
    story.at(1).commit(Put(b"a", b"1"), mesh_s=100)
    story.at(2).commit(Put(b"a", b"2"), mesh_s=99)
    assert story.verdict().rules() == ["S20"]


def test_a_commit_outside_its_bounds_of_mesh_time_breaks_s20(story: Story) -> None:
    txn = write("c#1")._replace(not_before_ns=50 * S)
    call = story.at(1).begin_commit(txn)
    story.at(2).commit(Put(b"reg/a", b"c#1"), mesh_s=49)
    story.at(3).committed(call, 1)
    assert story.verdict().rules() == ["S20"]


def test_an_expiry_before_the_full_time_breaks_s4(story: Story) -> None:
    token = story.at(1).grant()
    story.at(3).renew(token)
    story.at(5.5).expire(token)
    verdict = story.verdict()
    assert verdict.rules() == ["S4"]
    assert "expired 2.500 s of the store's awake time after h's renew" in str(verdict)


def test_an_expiry_after_the_full_time_is_right(story: Story) -> None:
    token = story.at(1).grant()
    story.at(3).renew(token)
    story.at(6.01).expire(token)
    assert story.verdict().ok


def test_what_the_store_slept_does_not_count(story: Story) -> None:
    token = story.at(1).grant()
    story.at(2).recorder.fault("suspend", "store")
    story.at(7).recorder.fault("resume", "store")
    story.at(7.5).expire(token)
    assert story.verdict().rules() == ["S4"]


def test_what_may_be_counted_of_a_sleep_is_counted_on_the_stores_own_clock(story: Story) -> None:
    story.recorder.clock("rate", "store", rate=0.5)
    token = story.at(1).grant()
    story.at(2).recorder.fault("suspend", "store")
    story.at(9).recorder.fault("resume", "store")
    story.at(13.51).expire(token)  # 5.51 s awake at half speed, and 0.25 s of its own clock
    assert story.verdict().ok
    story.at(14).grant()
    story.at(15).recorder.fault("suspend", "store")
    story.at(22).recorder.fault("resume", "store")
    story.at(26).expire(story.revision)
    assert story.verdict().rules() == ["S4"]


def test_after_a_restart_a_lease_has_its_full_time_again(story: Story) -> None:
    token = story.at(1).grant()
    story.at(2).recorder.fault("crash", "store")
    story.at(3).recorder.fault("start", "store")
    story.at(4.5).expire(token)
    assert story.verdict().rules() == ["S4"]


def test_a_release_may_end_a_lease_at_any_time(story: Story) -> None:
    token = story.at(1).grant()
    call = story.at(1.5).recorder.invoke("h", "release", name="alpha", token=token)
    revision = story.at(1.6).expire(token)
    story.recorder.ok(call, revision=revision)
    assert story.verdict().ok


def test_a_renewal_after_the_end_breaks_s4(story: Story) -> None:
    token = story.at(1).grant()
    story.at(5).expire(token)
    story.at(6).renew(token, renewed=False)
    assert story.verdict().ok
    story.at(7).renew(token, renewed=True)
    assert story.verdict().rules() == ["S4"]


def test_acting_under_a_lease_that_has_ended_breaks_s4(story: Story) -> None:
    token = story.at(1).grant()
    story.at(2).recorder.exec("act", "h", lease="alpha", token=token)
    story.at(5).expire(token)
    assert story.verdict().ok
    story.at(6).recorder.exec("act", "h", lease="alpha", token=token)
    assert story.verdict().rules() == ["S4"]


def test_with_odd_clocks_when_a_holder_stopped_is_inconclusive(story: Story) -> None:
    token = story.at(1).grant()
    story.at(1).recorder.clock("rate", "h", rate=0.5)
    story.at(5).expire(token)
    story.at(6).recorder.exec("act", "h", lease="alpha", token=token)
    verdict = story.verdict()
    assert verdict.ok
    assert any("other rates" in why for why in verdict.inconclusive)


def test_a_lease_written_over_breaks_s4(story: Story) -> None:
    story.at(1).grant()
    story.at(9).grant("other")
    assert "S4" in story.verdict().rules()


def test_a_grant_that_the_log_does_not_have_breaks_s4(story: Story) -> None:
    call = story.at(1).recorder.invoke(
        "h", "acquire", name="alpha", holder="h", ttl_ms=3000, replaces=0
    )
    story.at(2).recorder.ok(call, granted=True, token=9, holder="h")
    assert story.verdict().rules() == ["S4"]


def test_a_fence_that_did_not_hold_breaks_s5(story: Story) -> None:
    token = story.at(1).grant()
    story.at(5).expire(token)
    story.at(6).commit(Put(b"guarded/alpha/x", b"1:h#1"), compares=(fence("alpha", token),))
    assert story.verdict().rules() == ["S5"]


def test_a_write_without_the_fence_that_its_key_demands_breaks_s5(story: Story) -> None:
    token = story.at(1).grant()
    story.at(2).commit(
        Put(b"guarded/alpha/x", b"%d:h#1" % token), compares=(fence("alpha", token),)
    )
    assert story.verdict().ok
    story.at(3).commit(Put(b"guarded/alpha/x", b"%d:h#2" % token))
    verdict = story.verdict()
    assert verdict.rules() == ["S5"]
    assert "guarded/alpha/x was written without a fence" in str(verdict)


def test_a_counter_that_lost_an_increment_breaks_s1_and_s5(story: Story) -> None:
    story.at(1).commit(Put(b"count/a", b"1"), compares=(Compare(b"count/a", Target.EXISTS, 0),))
    assert story.verdict().ok
    story.at(2).commit(Put(b"count/a", b"1"))
    assert story.verdict().rules() == ["S1", "S5"]


def _watch(story: Story, *updates: Any) -> None:
    """Each update: its events, its revision, and whether it is synced (unless said, it is)."""
    call = story.recorder.invoke("w", "watch", prefix="reg/")
    for events, revision, *synced in updates:
        story.recorder.ok(call, events=events, revision=revision, synced=synced != [False])


def test_a_whole_watch_is_right(story: Story) -> None:
    story.at(1).commit(Put(b"reg/a", b"x"), Put(b"reg/b", b"y"))
    story.at(2).commit(Delete(b"reg/a"))
    _watch(
        story,
        ([["PUT", "reg/a", "x", 1], ["PUT", "reg/b", "y", 1]], 1),
        ([["DELETE", "reg/a", "", 2]], 2),
    )
    assert story.verdict().ok


@pytest.mark.parametrize(
    "updates",
    [
        [([["PUT", "reg/a", "x", 1]], 1)],
        [([["PUT", "reg/a", "x", 1], ["PUT", "reg/b", "y", 1]], 2)],
        [([["PUT", "reg/a", "z", 1], ["PUT", "reg/b", "y", 1]], 1)],
        [
            ([["PUT", "reg/a", "x", 1], ["PUT", "reg/b", "y", 1]], 1),
            ([["PUT", "reg/a", "x", 1], ["DELETE", "reg/a", "", 2]], 2),
        ],
        [
            ([["PUT", "reg/a", "x", 1], ["PUT", "reg/b", "y", 1], ["DELETE", "reg/a", "", 2]], 2),
            ([], 1),
        ],
    ],
    ids=["split", "a gap", "another value", "told twice", "backwards"],
)
def test_a_watch_that_shows_something_else_breaks_s18(story: Story, updates: Any) -> None:
    story.at(1).commit(Put(b"reg/a", b"x"), Put(b"reg/b", b"y"))
    story.at(2).commit(Delete(b"reg/a"))
    _watch(story, *updates)
    assert story.verdict().rules() == ["S18"]


@pytest.mark.parametrize(
    ("what", "updates"),
    [
        ("went back", [([["PUT", "reg/a", "x", 1]], 2), ([], 1)]),
        ("repeats", [([["PUT", "reg/a", "x", 1]], 1), ([["PUT", "reg/a", "x", 1]], 2)]),
        (
            "repeats before it is synced",
            [([["PUT", "reg/a", "x", 1]], 1, False), ([["PUT", "reg/a", "x", 1]], 1)],
        ),
        (
            "repeats what is gone",
            [
                ([["PUT", "reg/a", "x", 1]], 4),
                ([["PUT", "reg/b", "y", 3], ["DELETE", "reg/b", "", 4]], 5),
            ],
        ),
    ],
)
def test_a_watch_that_goes_back_or_repeats_breaks_s18_though_its_picture_is_right(
    story: Story, what: str, updates: Any
) -> None:
    story.at(1).commit(Put(b"reg/a", b"x"))
    story.at(2).commit(Put(b"elsewhere", b"z"))
    story.at(3).commit(Put(b"reg/b", b"y"))
    story.at(4).commit(Delete(b"reg/b"))
    story.at(5).commit(Delete(b"elsewhere"))
    _watch(story, *updates)
    assert story.verdict().rules() == ["S18"], what


def step(
    span: tuple[int, int],
    expected: str | None,
    written: str | None,
    *,
    blind: bool = False,
    succeeded: bool = True,
    optional: bool = False,
) -> Step:
    return Step(*span, expected, written, blind, succeeded, optional)


def read(span: tuple[int, int], value: str | None) -> Step:
    return step(span, value, value)


def put(span: tuple[int, int], value: str, *, optional: bool = False) -> Step:
    return step(span, None, value, blind=True, optional=optional)


NEVER = 1 << 62


@pytest.mark.parametrize(
    ("steps", "possible"),
    [
        ([put((0, 1), "a"), read((2, 3), "a")], True),
        ([put((0, 1), "a"), read((2, 3), None)], False),
        ([put((0, 5), "a"), read((1, 2), None), read((3, 4), "a")], True),
        ([put((0, 5), "a"), read((1, 2), "a"), read((3, 4), None)], False),
        ([put((0, 3), "a"), put((0, 3), "b"), read((4, 5), "a"), read((6, 7), "a")], True),
        ([put((0, 3), "a"), put((0, 3), "b"), read((4, 5), "a"), read((6, 7), "b")], False),
        ([step((0, 1), None, "a"), step((0, 1), None, "b")], False),
        ([step((0, 1), None, "a"), step((0, 1), None, "b", succeeded=False)], True),
        ([put((0, NEVER), "a", optional=True), read((5, 6), None)], True),
        ([put((0, NEVER), "a", optional=True), read((5, 6), "a"), read((7, 8), None)], False),
        ([put((0, NEVER), "a", optional=True), read((5, 6), None), read((7, 8), "a")], True),
    ],
)
def test_the_search_finds_an_order_where_there_is_one(steps: list[Step], possible: object) -> None:
    assert linearizable(steps) is possible


def test_the_search_needs_no_revision_to_find_a_stale_read(story: Story) -> None:
    call = story.at(1).begin_commit(write("c#1"))
    story.at(2).commit(Put(b"reg/a", b"c#1"))
    story.at(3).committed(call, 1)
    call = story.at(4).begin_get("reg/a")
    story.at(5).got(call, 0, ["reg/a", None, 0, 0, 0], mesh_s=5)
    verdict = story.verdict(registers="reg/")
    assert {"S1", "S19"} <= set(verdict.rules())
    assert "no order of the 2 calls on reg/a" in str(verdict)


def test_a_history_file_is_read_as_it_was_written(story: Story, tmp_path: Path) -> None:
    token = story.at(1).grant()
    call = story.at(2).begin_get("reg/\xff")
    story.at(3).got(call, token, ["reg/\xff", None, 0, 0, 0], mesh_s=3)
    story.recorder.exec("act", "h", lease="alpha", token=token)
    path = tmp_path / "history.jsonl"
    story.recorder.dump(path)
    with path.open("a") as file:
        file.write('{"kind": "op", "cut off')
    assert read_file(path) == story.recorder.history()


def test_a_stores_own_history_can_be_judged_without_times(story: Story) -> None:
    story.at(1).grant()
    story.at(2).expire(1)
    commits = [entry.commit for entry in story.recorder.history().commits]
    verdict = check(read_entries(commits_as_entries(commits)))
    assert verdict.ok
    (why,) = verdict.inconclusive
    assert "renewals leave no line in it (S4)" in why
