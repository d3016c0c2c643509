"""What is known by heart is what was written last, and is bounded."""

from __future__ import annotations

from sexton_store.known import KnownHeads


def test_the_last_write_is_known_and_a_deletion_too() -> None:
    known = KnownHeads()
    known.note([(7, 1, ((b"a", b"1", 7, 7, 1),)), (8, 1, ((b"a", b"2", 7, 8, 2),))])
    assert known.get(b"a") == (7, 8, 2)
    known.note([(9, 1, ((b"a", None, 0, 0, 0),))])
    assert known.get(b"a") == (0, 0, 0)
    assert known.get(b"b") is None


def test_what_was_written_long_ago_is_forgotten_and_never_shown_again() -> None:
    known = KnownHeads(kept=2)
    known.note([(1, 1, ((b"old", b"", 1, 1, 1),))])
    for revision in range(2, 9):
        known.note([(revision, 1, ((b"%d" % revision, b"", revision, revision, 1),))])
    assert known.get(b"old") is None
    assert known.get(b"8") == (8, 8, 1)
    known.note([(9, 1, ((b"8", b"", 8, 9, 2),))])
    for revision in range(10, 13):
        assert known.get(b"8") == (8, 9, 2)
        known.note([(revision, 1, ((b"%d" % revision, b"", revision, revision, 1),))])
