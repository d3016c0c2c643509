"""Files of real histories: what is read of them, what is passed over, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sexton_sim.export import export
from sexton_sim.history import Durable
from sexton_sim.sources import Opening, Sources, UnreadableError
from sexton_sim.verify import verify
from sexton_store.disk import Record
from sexton_store.history import Change, Commit, commit_line, start_line


class Store:
    """Writes what a store would, one step for each commit."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.files = 0
        self.key: Record | None = None

    def file(self, *lines: bytes) -> Path:
        self.files += 1
        path = self.folder / f"history-{self.files:08d}.jsonl"
        path.write_bytes(b"".join(lines))
        return path

    def commits(self, *revisions: int) -> list[bytes]:
        return [self.commit(revision) for revision in revisions]

    def commit(self, revision: int, *, step: int | None = None, mesh: int | None = None) -> bytes:
        version = self.key.version + 1 if self.key else 1
        create = self.key.create_revision if self.key else revision
        after = Record(b"%d" % revision, create, revision, version)
        change = Change(b"other/k", self.key, after)
        self.key = after
        at = (step or revision) * 1000
        mesh_ns = revision if mesh is None else mesh
        return commit_line(Commit(revision, mesh_ns, (), (change,), at))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "history")


def start(revision: int, incarnation: str = "one", boot_id: str = "b1") -> bytes:
    return start_line(revision, incarnation=incarnation, boot_id=boot_id)


def told(sources: Sources) -> list[int | str]:
    """Gives revisions, and openings as `start N`."""
    return [
        item.commit.revision if isinstance(item, Durable) else f"start {item.revision}"
        for item in sources.log()
    ]


def lines(path: Path, entries: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_rotated_files_and_restarts_are_one_history(store: Store) -> None:
    store.file(start(0), *store.commits(1, 2))
    store.file(*store.commits(3))
    store.file(start(3), *store.commits(4), store.commit(5)[:-9])
    sources = Sources([store.folder])
    assert told(sources) == ["start 0", 1, 2, 3, "start 3", 4]
    assert verify([store.folder]).ok


def test_what_came_to_nothing_in_a_crash_is_no_commit(store: Store) -> None:
    store.file(start(0), store.commit(1), store.commit(2))
    store.key = Record(b"1", 1, 1, 1)
    store.file(start(1), store.commit(2), store.commit(3))
    sources = Sources([store.folder])
    assert told(sources) == ["start 0", 1, "start 1", 2, 3]
    assert verify([store.folder]).ok


def test_only_the_last_step_before_a_crash_can_come_to_nothing(store: Store) -> None:
    store.file(start(0), store.commit(1), store.commit(2), store.commit(3))
    store.key = Record(b"1", 1, 1, 1)
    store.file(start(1), store.commit(2))
    verdict = verify([store.folder])
    assert verdict.rules() == ["S2"]
    assert "2 commits of 2 steps" in str(verdict)


def test_a_step_is_durable_by_the_time_of_the_next_one(store: Store) -> None:
    store.file(start(0), store.commit(1, step=7), store.commit(2, step=7), store.commit(3, step=9))
    found = [item for item in Sources([store.folder]).log() if isinstance(item, Durable)]
    assert [(it.begun_ns, it.durable_ns) for it in found] == [
        (7000, 9000),
        (7000, 9000),
        (9000, None),
    ]


def test_a_history_that_begins_late_is_believed_from_there_on(store: Store) -> None:
    store.key = Record(b"40", 3, 40, 9)
    store.file(start(40), *store.commits(41, 42))
    verdict = verify([store.folder])
    assert verdict.ok
    assert "what was before revision 41, where the log begins (S2, S8)" in verdict.inconclusive


def test_a_time_without_a_history_is_said_and_passed_over(store: Store) -> None:
    store.file(start(0), *store.commits(1, 2))
    store.key = Record(b"x", 1, 9, 5)
    store.file(start(9), *store.commits(10))
    verdict = verify([store.folder])
    assert verdict.ok
    assert any("revisions 3 to 9" in why for why in verdict.inconclusive)


def test_a_restore_begins_anew(store: Store) -> None:
    store.file(start(0), *store.commits(1, 2, 3))
    store.key = Record(b"1", 1, 1, 1)
    store.file(start(2**50, incarnation="two"), store.commit(2**50 + 1, mesh=1))
    verdict = verify([store.folder])
    assert verdict.ok
    assert any("restore" in why for why in verdict.inconclusive)


def test_a_store_that_forgets_what_was_durable_is_caught(store: Store) -> None:
    store.file(start(0), *store.commits(1, 2, 3))
    store.file(start(3), *store.commits(4))
    store.key = Record(b"1", 1, 1, 1)
    store.file(start(1), *store.commits(2))
    assert verify([store.folder]).rules() == ["S2"]


def test_a_missing_file_in_the_middle_is_caught(store: Store) -> None:
    store.file(start(0), *store.commits(1, 2))
    lost = store.file(*store.commits(3))
    store.file(*store.commits(4))
    lost.unlink()
    verdict = verify([store.folder])
    assert "revisions 3 to 3 are gone" in str(verdict)


def test_an_export_holds_the_same_history(store: Store, tmp_path: Path) -> None:
    store.file(start(0), store.commit(1), store.commit(2))
    store.key = Record(b"1", 1, 1, 1)
    store.file(start(1), *store.commits(2, 3))
    note = {"kind": "fault", "at_ns": 5, "what": "crash", "target": "store", "facts": {}}
    noted = lines(tmp_path / "faults.jsonl", [note])
    sources = Sources([store.folder, noted])
    for name in ("all.jsonl", "all.jsonl.gz"):
        exported = export(sources, tmp_path / name)
        assert (exported.commits, exported.notes) == (4, 1)
        again = Sources([tmp_path / name])
        assert told(again) == told(sources)
        assert again.notes() == sources.notes()
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        export(sources, tmp_path / "all.jsonl")


def test_the_same_file_named_twice_is_read_once(store: Store) -> None:
    path = store.file(start(0), *store.commits(1))
    assert told(Sources([store.folder, path, path])) == ["start 0", 1]


def test_two_stores_are_refused(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    one.file(start(0), *one.commits(1, 2))
    other.file(start(0, incarnation="x"), *other.commits(1, 2))
    with pytest.raises(UnreadableError, match="two stores"):
        Sources([one.folder, other.folder])


@pytest.mark.parametrize(
    "line", [b"no json\n", b"[1]\n", b'{"what": 1}\n', b'{"kind": "exec", "what": "started"}\n']
)
def test_a_line_that_is_no_history_is_named(store: Store, line: bytes) -> None:
    path = store.file(start(0), *store.commits(1), line)
    with pytest.raises(UnreadableError, match=rf"{path}:3: "):
        Sources([path])


@pytest.mark.parametrize(
    "line",
    [
        b'{"revision":x,"mesh_time_ns":1}\n',
        b'{"revision":7}\n',
        b'{"start":"one"}\n',
        b'{"kind":"commit"}\n',
        b'{"kind":"history","format":"2"}\n',
        b'{"kind":"op","phase":"invoke","id":1,"at_ns":5}\n',
        b'{"kind":"op","phase":"invoke","id":[1],"at_ns":5,"process":"p","call":"c","args":{}}\n',
        b'{"kind":"op","phase":"lost","id":1,"at_ns":5,"result":{}}\n',
        b'{"kind":"exec","what":"started","at_ns":5,"facts":{"token":"x"}}\n',
        b'{"kind":"exec","what":"effect","at_ns":5,"facts":{"token":5}}\n',
        b'{"kind":"fault","what":"restore","at_ns":5,"facts":{"revision":"x"}}\n',
        b'{"kind":"fault","what":"cut","at_ns":5,"facts":[1]}\n',
        b'{"kind":"clock","what":"rate","at_ns":5}\n',
        b'{"kind":' + b"[" * 200_000 + b"\n",
    ],
)
def test_a_line_that_lacks_what_its_kind_needs_is_named(store: Store, line: bytes) -> None:
    path = store.file(start(0), *store.commits(1), line)
    with pytest.raises(UnreadableError, match=rf"{path}:3: "):
        Sources([path])


def test_a_file_without_one_whole_line_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"a" * 1000)
    with pytest.raises(UnreadableError, match="not one whole line"):
        Sources([path])


@pytest.mark.parametrize("key", [b"active/x", b"leases/queue/000", b"jobs/default/a"])
def test_a_commit_that_no_mesh_writes_is_named_and_not_called_a_broken_promise(
    store: Store, key: bytes
) -> None:
    change = Change(key, None, Record(b"\xff", 1, 1, 1))
    path = store.file(start(0), commit_line(Commit(1, 1, (), (change,), 1000)))
    with pytest.raises(UnreadableError, match="revision 1 is not as a mesh writes it"):
        verify([path])


def test_notes_alone_can_not_be_judged_and_it_is_said_what_is_missing(tmp_path: Path) -> None:
    note = {"kind": "fault", "at_ns": 5, "what": "crash", "target": "store", "facts": {}}
    path = lines(tmp_path / "faults.jsonl", [note])
    with pytest.raises(UnreadableError, match="the store writes with --history"):
        verify([path])


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl.gz"
    path.write_bytes(gzip.compress(start(0) * 1000)[:-20])
    with pytest.raises(UnreadableError, match="damaged"):
        Sources([path])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no history"):
        Sources([tmp_path])


def test_calls_of_several_clients_in_one_file_are_told_apart(tmp_path: Path) -> None:
    def op(at_ns: int, number: str, phase: str, **entry: Any) -> dict[str, Any]:
        return {"kind": "op", "at_ns": at_ns, "id": number, "phase": phase, **entry}

    asked = {"process": "p", "call": "GetJob", "args": {}}
    path = lines(
        tmp_path / "calls.jsonl",
        [
            op(1, "a-1", "invoke", **asked),
            op(2, "b-1", "invoke", **asked),
            op(3, "b-1", "ok", result={"x": 1}),
            op(4, "a-1", "unknown", result={}),
            op(5, "c-9", "ok", result={}),
        ],
    )
    calls = Sources([path]).notes().calls
    assert [(call.invoked_ns, call.ended_ns, call.outcome) for call in calls] == [
        (1, 4, "unknown"),
        (2, 3, "ok"),
    ]


def test_notes_of_another_boot_are_counted_and_passed_over(store: Store, tmp_path: Path) -> None:
    store.file(start(0), *store.commits(1))
    note = {"kind": "fault", "at_ns": 1, "what": "crash", "target": "store"}
    noted = lines(tmp_path / "f.jsonl", [{**note, "boot_id": boot} for boot in ("b1", "b2")])
    sources = Sources([store.folder, noted])
    assert len(sources.notes().notes) == 1
    assert sources.foreign == 1


def test_commits_of_several_boots_have_no_times(store: Store) -> None:
    store.file(start(0), *store.commits(1))
    store.file(start(1, boot_id="b2"), *store.commits(2))
    sources = Sources([store.folder])
    assert not sources.comparable
    assert [item for item in sources.log() if isinstance(item, Opening)][1].boot_id == "b2"
    assert {it.begun_ns for it in sources.log() if isinstance(it, Durable)} == {None}
