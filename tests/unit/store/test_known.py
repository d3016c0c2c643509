"""What is known by heart is what was written last, and is bounded."""

from __future__ import annotations

from sexton_store.known import KnownHeads, Written


def head(known: KnownHeads, key: bytes) -> Written | None:
    return known.young.get(key) or known.old.get(key)


def note(known: KnownHeads, key: bytes, revision: int, value: bytes | None = b"") -> Written:
    change = (key, value, revision, revision, 1) if value is not None else (key, None, 0, 0, 0)
    known.note({key: change}, len(value or b""))
    return change


def test_the_last_write_is_known_and_a_deletion_too() -> None:
    known = KnownHeads()
    note(known, b"a", 7)
    last = note(known, b"a", 8)
    assert head(known, b"a") == last
    last = note(known, b"a", 9, None)
    assert head(known, b"a") == last
    assert head(known, b"b") is None


def test_what_was_written_long_ago_is_forgotten_and_never_shown_again() -> None:
    known = KnownHeads(kept=2)
    note(known, b"a", 1)
    note(known, b"b", 2)
    last = note(known, b"a", 3)
    for revision in range(4, 7):
        assert head(known, b"a") == last
        note(known, b"%d" % revision, revision)
    note(known, b"7", 7)
    assert head(known, b"a") is None


def test_large_values_are_kept_no_longer_than_their_room() -> None:
    known = KnownHeads(kept_bytes=10)
    for revision in range(9):
        note(known, b"%d" % revision, revision, b"ten bytes!")
    assert len(known.young) + len(known.old) == 2
