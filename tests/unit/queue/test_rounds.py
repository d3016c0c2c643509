"""The order in which the line is read: a short lane never waits for a long one."""

from sexton_queue.rounds import Rounds
from sexton_records.keys import active_prefix

PAGE = 10


class Walker:
    """Keys in order, and the pages of them that have been read."""

    def __init__(self, *lanes: tuple[str, int]) -> None:
        self.keys = sorted(
            b"%s%020d/uid/run" % (active_prefix(0, queue, 0), number)
            for queue, runs in lanes
            for number in range(runs)
        )
        self.rounds = Rounds(active_prefix(0))
        self.pages: list[list[bytes]] = []

    def walk(self, *, due: bool = False) -> None:
        """Makes one round, and goes on until the next one; `due`: that waits already."""
        self.rounds.begin()
        while stretch := self.rounds.next(due=due):
            found = [key for key in self.keys if stretch.start <= key < stretch.end]
            page = found[:PAGE]
            self.pages.append(page)
            more = len(found) > PAGE
            self.rounds.took(page[0] if page else b"", page[-1] if more else b"")

    def read(self) -> list[bytes]:
        return [key for page in self.pages for key in page]


def test_what_stands_behind_a_very_long_line_is_found_in_the_first_pages() -> None:
    walker = Walker(("a", 1_000), ("b", 2), ("c", 1_000), ("d", 1))
    walker.walk(due=True)
    early = {key.split(b"/")[2] for page in walker.pages[:4] for key in page}
    assert early == {b"a", b"b", b"c", b"d"}


def test_a_long_line_is_read_to_its_end_however_often_a_round_is_due() -> None:
    walker = Walker(("a", 95), ("b", 2), ("c", 57))
    for _ in range(12):
        walker.walk(due=True)
    assert set(walker.read()) == set(walker.keys)


def test_where_nothing_else_is_due_one_round_reads_everything_once() -> None:
    walker = Walker(("a", 31), ("b", 2), ("c", 7), ("d", 25))
    walker.walk()
    assert sorted(walker.read()) == walker.keys


def test_a_page_that_could_not_be_read_is_read_again() -> None:
    walker = Walker(("a", 25))
    walker.rounds.begin()
    stretch = walker.rounds.next(due=False)
    assert stretch is not None
    walker.rounds.failed(stretch)
    assert walker.rounds.next(due=False) == stretch
    walker.rounds.took(walker.keys[0], walker.keys[PAGE - 1])
    assert walker.rounds.next(due=False) is not None  # the rest of the round: nothing behind
    walker.rounds.took(b"", b"")
    behind = walker.rounds.next(due=False)
    assert behind is not None
    walker.rounds.failed(behind)
    assert walker.rounds.next(due=False) == behind
