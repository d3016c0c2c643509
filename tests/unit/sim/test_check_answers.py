"""The checker does not believe answers, numbers and silences that the log gives the lie to."""

from __future__ import annotations

from unit.sim.test_check import LEASE, Story

from sexton_runtime.kv.types import Put
from sexton_sim.check import Verdict, check_recovery
from sexton_store.cluster import encode_lease
from sexton_store.disk import Record
from sexton_store.history import Change, Commit, commit_line

S = 10**9


def log(story: Story, *commits: Commit) -> None:
    for commit in commits:
        now_ns = story.now_ns
        story.recorder.commits([commit_line(commit)], begun_ns=now_ns, durable_ns=now_ns)


def test_a_token_that_does_not_rise_breaks_s3() -> None:
    story, value = Story().at(1), encode_lease("h", 3_000, b"")
    first, second = Record(value, 1, 1, 1), Record(value, 1, 3, 1)
    log(
        story,
        Commit(1, S, (), (Change(LEASE, None, first),)),
        Commit(2, S, (), (Change(LEASE, first, None),)),
        Commit(3, S, (), (Change(LEASE, None, second),)),
    )
    assert "S3" in story.verdict().rules()


def test_a_release_that_the_log_does_not_have_breaks_s4() -> None:
    story = Story().at(1)
    token = story.grant()
    call = story.recorder.invoke("h", "release", name="alpha", token=token)
    story.recorder.ok(call, revision=2)
    assert "S4" in story.verdict().rules()


def test_a_list_with_a_key_left_out_breaks_s1() -> None:
    story = Story().at(1)
    story.commit(Put(b"reg/a", b"x"), Put(b"reg/b", b"y"))
    call = story.recorder.invoke("c", "scan", prefix="reg/")
    story.recorder.ok(call, revision=1, whole=True, kvs=[["reg/a", "x", 1, 1, 1]], mesh_time_ns=S)
    assert story.verdict().rules() == ["S1"]


def test_mesh_time_that_went_back_between_answers_breaks_s20() -> None:
    story = Story()
    story.at(1).commit(Put(b"reg/a", b"x"))
    for at_s, mesh_s in ((2, 9.0), (3, 8.0)):
        call = story.at(at_s).begin_get()
        story.at(at_s + 0.5).got(call, 1, mesh_s=mesh_s)
    assert story.verdict().rules() == ["S20"]


def test_numbers_and_states_that_do_not_follow_from_the_log_break_s1_and_s2() -> None:
    story = Story().at(1)
    log(
        story,
        Commit(1, S, (), (Change(b"a", None, Record(b"x", 1, 1, 2)),)),
        Commit(2, S, (), (Change(b"b", Record(b"ghost", 1, 1, 1), None),)),
    )
    assert story.verdict().rules() == ["S1", "S2"]


def test_nobody_acting_and_nobody_told_after_healing_break_l2_and_l5() -> None:
    verdict = Verdict()
    check_recovery(
        Story().recorder.history(),
        verdict,
        clients=[],
        holders=["h"],
        watchers=["w"],
        quiet=(0, 20 * S),
    )
    assert verdict.rules() == ["L2", "L5"]
