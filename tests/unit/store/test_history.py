from __future__ import annotations

from pathlib import Path

import pytest

from sexton_runtime.kv.types import Compare, Target
from sexton_store.disk import Record
from sexton_store.history import (
    Change,
    Commit,
    FileHistory,
    MemoryHistory,
    commit_line,
    read_history,
    read_lines,
    start_line,
)

CREATED = Commit(
    7,
    1_700_000_000_000_000_000,
    (
        Compare(b"jobs/a", Target.MOD_REVISION, 0),
        Compare(b"flag", Target.EXISTS, operand=True),
        Compare(b"state", Target.VALUE, b"\x00\xff"),
    ),
    (
        Change(b"jobs/a", None, Record(b"\x00value", 7, 7, 1)),
        Change(b"old", Record(b"", 1, 2, 2), None),
    ),
    5_000_000_000,
)


def commit(revision: int) -> Commit:
    return Commit(revision, 0, (), (Change(b"k", None, Record(b"v", revision, revision, 1)),))


def revisions(folder: Path) -> list[int]:
    return [entry.revision for entry in read_history(folder)]


def test_a_line_is_one_json_object() -> None:
    assert commit_line(Commit(1, 2, (), (Change(b"key", None, Record(b"v", 1, 1, 1)),))) == (
        b'{"revision":1,"mesh_time_ns":2,"compares":[],"changes":[{"key":"a2V5","before":null,'
        b'"after":{"value":"dg==","create_revision":1,"mod_revision":1,"version":1}}]}\n'
    )


def test_a_start_line_says_which_store_and_which_boot() -> None:
    assert start_line(41, incarnation="abc", boot_id="b") == (
        b'{"start":41,"incarnation":"abc","boot_id":"b"}\n'
    )


def test_a_commit_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = FileHistory(tmp_path)
    history.append([start_line(6), commit_line(CREATED)])
    history.close()
    assert list(read_history(tmp_path)) == [CREATED]


def test_lines_that_never_became_durable_are_left_out() -> None:
    lines = [start_line(0), *(commit_line(commit(revision)) for revision in (1, 2, 3))]
    lines += [start_line(2), commit_line(commit(3)), commit_line(commit(4))]
    assert [entry.revision for entry in read_lines(lines)] == [1, 2, 3, 4]


def test_an_undone_step_leaves_no_trace(tmp_path: Path) -> None:
    history = FileHistory(tmp_path)
    history.append([commit_line(commit(1))])
    history.append([commit_line(commit(2))])
    history.undo()
    history.append([commit_line(commit(2))])
    history.close()
    assert revisions(tmp_path) == [1, 2]


def test_files_are_rotated_by_size_and_read_in_order(tmp_path: Path) -> None:
    history = FileHistory(tmp_path, file_bytes=100)
    for revision in range(1, 12):
        history.append([commit_line(commit(revision))])
    history.close()
    assert len(list(tmp_path.glob("history-*.jsonl"))) == 11
    assert revisions(tmp_path) == list(range(1, 12))


def test_a_restart_begins_a_new_file(tmp_path: Path) -> None:
    for start in (0, 1):
        history = FileHistory(tmp_path)
        history.append([start_line(start), commit_line(commit(start + 1))])
        history.close()
        history.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["history-00000001.jsonl", "history-00000002.jsonl"]
    assert revisions(tmp_path) == [1, 2]


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    history = FileHistory(tmp_path)
    history.append([start_line(0), commit_line(commit(1)), commit_line(commit(2))[:-5]])
    history.close()
    assert revisions(tmp_path) == [1]


def test_what_does_not_fit_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = FileHistory(tmp_path)
    history.append([commit_line(commit(1))])
    fd = history._fd
    with open("/dev/full", "wb") as full:
        monkeypatch.setattr(history, "_fd", full.fileno())
        monkeypatch.setattr("os.ftruncate", lambda *_: None)
        with pytest.raises(OSError, match="No space left"):
            history.append([commit_line(commit(2))])
        monkeypatch.setattr(history, "_fd", fd)
    history.append([commit_line(commit(2))])
    history.close()
    assert revisions(tmp_path) == [1, 2]


def test_the_twin_keeps_and_undoes_lines() -> None:
    history = MemoryHistory()
    history.append([b"a"])
    history.append([b"b", b"c"])
    history.undo()
    assert history.lines == [b"a"]


def test_its_files_are_its_owners_alone_and_others_in_the_folder_are_left(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    FileHistory(folder).close()
    (folder / "history-of-rome.jsonl").write_text("ab urbe condita")
    history = FileHistory(folder)
    history.append([start_line(0), commit_line(commit(1))])
    history.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "history-00000002.jsonl").stat().st_mode & 0o777 == 0o600
    assert revisions(folder) == [1]
