"""The window of the line: what it keeps, forgets and passes over, and how all is found again."""

from unit.queue.lines import T, entry_of, python_task, waiting

from sexton_core.instants import SECOND
from sexton_queue.entries import Entry, Place
from sexton_queue.line import GATHER_NS, Line, Refill

SHELL = frozenset({"shell"})
NOW = T + 100 * SECOND


class Shelf:
    """A store of runs from which a line is filled."""

    def __init__(self, *, window: int = 4, max_delayed: int = 3, **bounds: int) -> None:
        self.dropped: list[Entry] = []
        self.stored: dict[bytes, Entry] = {}
        self.pages = 0
        self.line = Line(
            0,
            max_running=bounds,
            window=window,
            max_delayed=max_delayed,
            on_dropped=self.dropped.append,
        )

    def put(self, entry: Entry) -> Entry:
        self.stored[entry.key] = entry
        return entry

    def read(self, refill: Refill, *, now: int = NOW) -> None:
        found = sorted(key for key in self.stored if refill.start <= key < refill.end)
        page = found[: refill.limit]
        for key in page:
            if self.stored[key].place is Place.NOWHERE:
                self.line.arrive(self.stored[key], now)
        self.line.refilled(refill, page[-1] if len(found) > len(page) else b"")
        self.pages += 1

    def fill(self, *, now: int = NOW) -> None:
        """Reads until nothing more is wanted."""
        for _ in range(1_000):
            refills = list(self.line.refills(8))
            if not refills:
                return
            for refill in refills:
                self.read(refill, now=now)
        raise AssertionError("the line never has enough")

    def take(self, offers: frozenset[str] = SHELL, *, now: int = NOW) -> Entry | None:
        self.fill(now=now)
        entry = self.line.pick("default", offers)
        if entry is not None:
            self.line.leave(entry)
            del self.stored[entry.key]
        return entry


def shell(number: int, **fields: int) -> Entry:
    return entry_of(waiting(number, **fields))


def test_a_long_lane_leaves_in_order_and_never_fills_memory() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    shelf.line.offer(["default"], SHELL)
    entries = [shelf.put(shell(number)) for number in range(50)]
    taken = []
    for _ in range(50):
        taken.append(shelf.take())
        assert len(shelf.line.ready) <= 8
    assert taken == entries
    assert shelf.take() is None


def test_what_arrives_while_a_page_is_read_is_taken() -> None:
    shelf = Shelf(window=10)
    shelf.line.discover("default", 0)
    (refill,) = shelf.line.refills(1)
    late = shelf.put(shell(3))
    assert shelf.line.arrive(late, NOW)
    shelf.read(refill)
    assert shelf.take() is late


def test_what_arrives_beyond_the_page_is_found_later() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    entries = [shelf.put(shell(number)) for number in range(10)]
    (refill,) = shelf.line.refills(1)
    last = shelf.put(shell(99))
    assert shelf.line.arrive(last, NOW)
    shelf.read(refill)
    assert last.place is Place.NOWHERE
    assert [shelf.take() for _ in range(11)] == [*entries, last]


def test_a_page_that_could_not_be_read_is_read_again() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    entry = shelf.put(shell(1))
    (refill,) = shelf.line.refills(1)
    assert list(shelf.line.refills(1)) == []
    shelf.line.not_refilled(refill)
    assert shelf.take() is entry


def test_priorities_are_strict() -> None:
    shelf = Shelf()
    low = [shelf.put(shell(number, priority=-1)) for number in range(3)]
    high = [shelf.put(shell(number, priority=1)) for number in range(3)]
    for priority in (-1, 1):
        shelf.line.discover("default", priority)
    assert [shelf.take() for _ in range(6)] == [*high, *low]


def test_delayed_runs_stand_apart_and_come_in_their_time() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    delayed = shelf.put(shell(0, delay=200 * SECOND))
    ready = shelf.put(shell(1))
    assert shelf.take() is ready
    assert shelf.take() is None
    assert shelf.line.next_wake() == delayed.run.assignable_at + GATHER_NS
    shelf.line.wake(shelf.line.next_wake())
    assert shelf.take() is None
    assert shelf.line.next_wake() == delayed.run.not_before
    shelf.line.wake(delayed.run.not_before)
    assert shelf.take(now=delayed.run.not_before) is delayed


def test_of_many_delayed_runs_the_next_are_kept_and_the_others_are_found_in_time() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    entries = [shelf.put(shell(n, delay=(200 + n) * SECOND)) for n in range(20)]
    shelf.fill()
    assert sum(len(lane.delayed) for lane in shelf.line.lanes_of("default")) <= 6
    taken = []
    for entry in entries:
        now = entry.run.not_before
        shelf.line.wake(now)
        taken.append(shelf.take(now=now))
    assert taken == entries


def test_runs_that_nobody_takes_make_room_for_those_behind_them() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    shelf.line.offer(["default"], SHELL)
    strange = [shelf.put(entry_of(waiting(n, task=python_task("report")))) for n in range(30)]
    plain = shelf.put(shell(99))
    assert shelf.take() is plain
    able = frozenset({"python:report"})
    shelf.line.offer(["default"], able)
    assert [shelf.take(able) for _ in range(30)] == strange


def test_where_nobody_takes_anything_the_lane_is_not_read_to_its_end() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    for number in range(100):
        shelf.put(shell(number))
    shelf.fill()
    assert shelf.pages <= 2


def test_the_bound_of_a_queue_holds() -> None:
    shelf = Shelf(default=1)
    shelf.line.discover("default", 0)
    first, second = shelf.put(shell(1)), shelf.put(shell(2))
    shelf.fill()
    assert shelf.line.pick("default", SHELL) is first
    shelf.line.leave(first)
    shelf.line.running["default"] += 1
    assert shelf.line.pick("default", SHELL) is None
    shelf.line.running["default"] -= 1
    assert shelf.line.pick("default", SHELL) is second


def test_what_has_left_is_not_picked_and_may_come_back() -> None:
    shelf = Shelf()
    shelf.line.discover("default", 0)
    entry = shelf.put(shell(1))
    shelf.fill()
    shelf.line.leave(entry)
    assert shelf.line.pick("default", SHELL) is None
    assert shelf.line.arrive(entry, NOW)
    assert shelf.line.pick("default", SHELL) is entry


def test_a_lane_of_which_a_push_tells_first_is_read_from_its_beginning() -> None:
    shelf = Shelf()
    unknown, told = shelf.put(shell(1)), shelf.put(shell(2))
    assert shelf.line.arrive(told, NOW)
    assert shelf.line.next_wake() <= NOW
    shelf.line.wake(NOW)
    assert [shelf.take(), shelf.take()] == [unknown, told]
