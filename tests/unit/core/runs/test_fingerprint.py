"""Which failures look alike."""

import pytest

from sexton_core.runs.fingerprint import fingerprint


def mark(message: str, kind: str = "ValueError", job: str = "report") -> str:
    return fingerprint("default", job, kind, message)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 is unknown", "order 18 is unknown"),
        ("10.0.0.7:5432 refused", "10.0.0.12:5433 refused"),
        ("no file /tmp/x9f3/a.txt", "no file /tmp/q71/a.txt"),
        (
            "user 7c9e6679-7425-40de-944b-e07fc1f90ae7 is away",
            "user deadbeef-0000-4000-8000-000000000001 is away",
        ),
        ("at 2026-11-29T03:00:00Z  it broke", "at 2027-01-01T04:30:01Z\nit broke"),
        ("x" * 500 + "a tail", "x" * 500 + "another"),
        ("", ""),
    ],
)
def test_numbers_and_ids_make_no_difference(one: str, other: str) -> None:
    assert mark(one) == mark(other)


def test_words_kinds_and_jobs_do() -> None:
    marks = {
        mark("the disk is full"),
        mark("the disk is empty"),
        mark("the disk is full", kind="OSError"),
        mark("the disk is full", job="backup"),
    }
    assert len(marks) == 4
    assert all(len(one) == 16 and one.isascii() for one in marks)


def test_whatever_a_program_prints_has_a_mark() -> None:
    assert len(mark("\x1b[31m\udcff\0 <script>")) == 16
    assert len(mark("7" * 10_000 + "-" * 10_000)) == 16
