"""Logs of supervised processes: bounded, followed, and readable."""

from __future__ import annotations

import os

import pytest

from sexton_cli.up.logs import LogFile, readable


def test_lines_are_given_once_and_only_when_whole(tmp_path):
    path = tmp_path / "store.log"
    log = LogFile(path)
    assert list(log.new_lines()) == []
    path.write_text("one\ntwo\nthr")
    assert list(log.new_lines()) == ["one", "two"]
    path.write_text("one\ntwo\nthree\n")
    assert list(log.new_lines()) == ["three"]
    assert list(log.new_lines()) == []


def test_what_an_earlier_mesh_wrote_is_not_given(tmp_path):
    path = tmp_path / "store.log"
    path.write_text("of yesterday\n")
    log = LogFile(path)
    path.write_text("of yesterday\nof today\n")
    assert list(log.new_lines()) == ["of today"]


def test_what_a_process_has_said_is_told_from_what_the_one_before_it_said(tmp_path):
    path = tmp_path / "worker.log"
    log = LogFile(path)
    os.close(log.open())
    path.write_text("worker ready as one\n")
    assert log.said_since_open("worker ready ")
    os.close(log.open())
    assert not log.said_since_open("worker ready ")
    path.write_text("")  # it was moved meanwhile
    assert log.said_since_open("worker ready ")


def test_a_log_is_bounded_while_its_writer_goes_on(tmp_path):
    path = tmp_path / "store.log"
    log = LogFile(path)
    descriptor = log.open()
    try:
        for number in range(5):
            os.write(descriptor, b"%d" % number * 99 + b"\n")
            assert log.rotate(max_bytes=250) is (number == 2)
        assert path.read_bytes() == b"3" * 99 + b"\n" + b"4" * 99 + b"\n"
        assert (tmp_path / "store.log.1").read_bytes().startswith(b"0" * 49 + b"\n" + b"1" * 99)
        assert list(log.new_lines()) == ["3" * 99, "4" * 99]
    finally:
        os.close(descriptor)
    assert sorted(os.listdir(tmp_path)) == ["store.log", "store.log.1"]
    assert path.stat().st_mode & 0o077 == 0


def test_a_log_that_can_not_be_moved_stays_as_it_is(tmp_path):
    path = tmp_path / "store.log"
    path.write_text("x" * 300)
    (tmp_path / "store.log.1" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        LogFile(path).rotate(max_bytes=250)
    assert path.read_text() == "x" * 300
    assert sorted(os.listdir(tmp_path)) == ["store.log", "store.log.1"]


def test_the_last_line_is_the_last_that_says_something(tmp_path):
    path = tmp_path / "store.log"
    log = LogFile(path)
    assert log.last_line() == ""
    path.write_text('{"message": "It has started."}\nsexton_store: no room on the disk\n\n')
    assert log.last_line() == "sexton_store: no room on the disk"


def test_a_line_of_json_becomes_a_sentence_with_its_fields():
    line = (
        '{"message": "A part did not stop.", "level": "error", "service": "queue", "action": '
        '"stop", "part": "Owner", "timestamp": "2027-01-01T00:00:00Z", "number": 3, '
        '"exception": "Traceback ...\\n  File ...\\nValueError: no"}'
    )
    assert readable(line) == "error: A part did not stop. part=Owner number=3 (ValueError: no)"
    assert readable("{broken") == "{broken"
    assert readable("[1, 2]") == "[1, 2]"
    assert len(readable("x" * 10_000)) == 500
