"""A restore in a history: what is there again, and what that excuses."""

from __future__ import annotations

from sexton_sim.check.faults import Faults
from sexton_sim.check.model import prefix
from sexton_sim.history import Durable, History, Note
from sexton_store.history import Commit


def commit(revision: int) -> Durable:
    return Durable(Commit(revision, 0, (), ()), revision, revision)


def revisions(commits: list[int], restores: dict[int, int], restored: int) -> list[int]:
    kept = prefix([commit(it) for it in commits], restores, restored)
    return [entry.commit.revision for entry in kept]


def test_a_restored_store_is_made_of_what_its_backup_held() -> None:
    assert revisions([1, 2, 3, 4], {100: 3}, 100) == [1, 2, 3]


def test_the_same_backup_twice_holds_nothing_of_what_was_between() -> None:
    written = [1, 2, 3, 4, 101, 102]
    assert revisions(written, {100: 3, 200: 3}, 200) == [1, 2, 3]


def test_a_backup_of_a_restored_store_holds_what_that_one_held_and_its_own() -> None:
    written = [1, 2, 3, 4, 101, 102, 103]
    assert revisions(written, {100: 2, 200: 102}, 200) == [1, 2, 101, 102]


def test_a_backup_made_before_another_restore_is_not_changed_by_it() -> None:
    written = [1, 2, 3, 4, 101, 102, 201, 202]
    restores = {100: 2, 200: 1, 300: 102}
    assert revisions(written, restores, 300) == [1, 2, 101, 102]


def test_a_backup_made_right_after_a_restore_holds_what_was_restored() -> None:
    assert revisions([1, 2, 3, 201], {100: 2, 200: 100}, 200) == [1, 2]


def test_an_attempt_may_be_begun_again_only_after_a_restore_that_held_it() -> None:
    facts = {"backup": 50, "revision": 100}
    faults = Faults(History(notes=[Note("fault", 10, "restore", "store", facts)]))
    assert faults.brought_back(50, 5, 15)
    assert not faults.brought_back(51, 5, 15)
    assert not faults.brought_back(50, 11, 15)
