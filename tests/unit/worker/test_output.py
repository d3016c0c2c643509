"""The last part of an output, as text."""

from __future__ import annotations

import logging
import threading

from sexton_worker.output import AttemptLogger, Tail


def tail_of(*pieces: bytes, limit: int = 8) -> str:
    kept = Tail(limit)
    for piece in pieces:
        kept.write(piece)
    return kept.text()


def test_short_output_is_kept_whole() -> None:
    assert tail_of(b"ab", b"", b"cdefgh") == "abcdefgh"


def test_of_long_output_the_end_is_kept() -> None:
    assert tail_of(b"abcdefghi") == "bcdefghi"
    assert tail_of(*[b"x"] * 1_000, b"end") == "xxxxxend"
    assert tail_of(b"y" * 1_000 + b"end") == "yyyyyend"


def test_no_character_is_cut() -> None:
    assert tail_of("ä".encode() * 10) == "ääää"
    assert tail_of(b"x" + "ä".encode() * 10 + b"x") == "äääx"
    assert tail_of("\U0001f600".encode() * 9 + b"abc") == "\U0001f600abc"


def test_what_is_not_text_is_replaced_within_the_limit() -> None:
    assert tail_of(b"\xff") == "\ufffd"
    assert len(tail_of(b"\xff" * 8).encode()) <= 8
    assert tail_of(b"\x1b[1m\0") == "\x1b[1m\0"


def test_threads_may_write_at_once() -> None:
    kept = Tail(1_000)

    def write() -> None:
        for _ in range(500):
            kept.write(b"x")

    threads = [threading.Thread(target=write) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.text() == "x" * 1_000


def test_the_attempts_logger_keeps_lines_and_tracebacks() -> None:
    kept = Tail()
    logger = AttemptLogger(kept)
    logger.debug("%d of %d", 1, 2)
    try:
        int("no")
    except ValueError:
        logger.exception("it failed")
    assert kept.text().startswith("DEBUG 1 of 2\nERROR it failed\nTraceback")
    assert kept.text().endswith("ValueError: invalid literal for int() with base 10: 'no'\n")
    assert logger not in logging.Logger.manager.loggerDict.values()
