"""Time zones: IANA names, and the pieces of time between two changes of a zone's offset.

The data comes from the `tzdata` package and never from the host, so that every process of one
installation agrees; its version is recorded with what was computed from it.

Inside the core a zone speaks whole seconds: *seconds* since the epoch, and *wall* seconds, which
are what the zone's clock shows, counted as if it showed UTC. `second + offset == wall`.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from sexton_core._tzif import Change, ZoneData, read_zone
from sexton_core.errors import UnknownZoneError
from sexton_core.instants import SECOND, Instant

DST_LIMIT: Final = 3 * 3600
"""Seconds. A change of the clock by this much or more is no DST but a correction of the civil
calendar (Apia skipped a day in 2011), as in Debian's cron: nothing is made up, nothing is held
back."""

FAR: Final = 1 << 60
"""Beyond every instant, in seconds."""

_NEVER_ZONES = frozenset({"Factory", "localtime"})
"""Placeholders of the data, not places."""

_LEAST_GROWTH: Final = 50
"""Years. The table of a zone with a yearly rule grows as far as it is asked, by at least this and
by at least a half, so that a walk to the year 2261 copies it a dozen times."""

_YEAR_SECONDS: Final = 31_556_952
_LONGEST_NAME: Final = 64


class Segment(NamedTuple):
    """A stretch of time with one offset, and how it began.

    start, end: seconds, [start, end).
    offset: seconds east of UTC in it; before: the offset until `start`.
    gap: seconds that the clock skipped at `start`; 0 where it skipped none or DST_LIMIT or more.
        The skipped wall seconds are [start + before, start + offset).
    fold: seconds that the clock shows again from `start` on; 0 likewise.
        The repeated wall seconds are [start + offset, start + before).
    """

    start: int
    end: int
    offset: int
    before: int
    gap: int
    fold: int


class Zone:
    """One IANA zone. Get it from `get_zone`: there is one object per name."""

    def __init__(self, key: str, data: ZoneData) -> None:
        self.key = key
        self._initial = data.initial_offset
        self._changes = data.changes
        self._rule = data.rule
        self._rule_from = data.rule_from
        # The horizon bounds what the table is right about; without a rule it is right for ever.
        self._horizon = -FAR if data.rule else FAR
        self._starts: list[int] = []
        self._segments: list[Segment] = []
        self._build(data.changes)

    def __repr__(self) -> str:
        return f"Zone({self.key!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return get_zone, (self.key,)

    def segment(self, second: int) -> Segment:
        """Returns the stretch that contains the second; memoised, well below a microsecond."""
        if second >= self._horizon:
            self._grow(second)
        return self._segments[bisect_right(self._starts, second) - 1]

    def offset(self, second: int) -> int:
        """Returns the seconds east of UTC in force at the second."""
        return self.segment(second).offset

    def wall(self, second: int) -> int:
        """Returns what the clock shows at the second, as wall seconds."""
        return second + self.segment(second).offset

    def local(self, instant: Instant) -> datetime:
        """Returns the instant as an aware datetime with the zone's fixed offset at it."""
        second = instant // SECOND
        offset = timezone(timedelta(seconds=self.offset(second)))
        return datetime.fromtimestamp(second, offset) + timedelta(
            microseconds=instant % SECOND // 1000
        )

    def changes(self, first: int, last: int) -> Iterator[Segment]:
        """Yields the stretches that begin at a change of offset in [first, last], in order."""
        found = self.segment(first - 1)
        while found.end <= last:
            found = self.segment(found.end)
            yield found

    def seconds_showing(self, wall: int) -> list[int]:
        """Returns the seconds at which the clock shows the wall second: none, one or two."""
        # No zone is a whole day from UTC, and changes are further than two days apart, so the
        # stretches a day before and after are all that could show it.
        candidates = {self.segment(wall - 86_400), self.segment(wall + 86_400), self.segment(wall)}
        return sorted(
            second
            for found in candidates
            if found.start <= (second := wall - found.offset) < found.end
        )

    def _grow(self, second: int) -> None:
        rule = self._rule
        assert rule is not None, "a zone without a rule has no horizon"
        changes = list(self._changes)
        last = changes[-1] if changes else Change(0, self._initial)
        known_until = max(last.at, self._rule_from)
        year = 1970 + known_until // _YEAR_SECONDS
        growth = max(_LEAST_GROWTH, (year - 1970) // 2)
        until = max(1970 + second // _YEAR_SECONDS + 3, year + growth)
        for later in range(year - 1, until):
            for change in rule.changes(later):
                if change.at > known_until and change.offset != last.offset:
                    changes.append(change)
                    last = change
        self._build(changes)

    def _build(self, changes: list[Change]) -> None:
        starts = [-FAR]
        offsets = [self._initial]
        for change in changes:
            starts.append(change.at)
            offsets.append(change.offset)
        ends = [*starts[1:], FAR]
        befores = [self._initial, *offsets[:-1]]
        segments = [_segment(*parts) for parts in zip(starts, ends, offsets, befores, strict=True)]
        # A reader in another thread may see the old lists with the old horizon or the new ones,
        # in any mixture: each is right below the old horizon.
        self._changes = changes
        self._segments = segments
        self._starts = starts
        if self._rule is not None:
            # The last stretch's end is not known yet.
            self._horizon = starts[-1]


def _segment(start: int, end: int, offset: int, before: int) -> Segment:
    change = offset - before
    gap = change if 0 < change < DST_LIMIT else 0
    fold = -change if 0 < -change < DST_LIMIT else 0
    return Segment(start, end, offset, before, gap, fold)


@cache
def _load(name: str) -> Zone:
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    return Zone(name, read_zone(path.read_bytes()))


def get_zone(name: str, *, field: str = "timezone") -> Zone:
    """Returns the zone of an IANA name, spelled exactly: `Europe/Berlin`, `UTC`.

    Raises:
        UnknownZoneError: the name is not in the data; the message offers the nearest ones.
    """
    if name not in zone_names():
        raise UnknownZoneError(field, name, _expected(name))
    return _load(name)


@cache
def zone_names() -> frozenset[str]:
    """Returns every name that `get_zone` accepts."""
    names = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(names) - _NEVER_ZONES


@cache
def tzdata_version() -> str:
    """Returns the release of the IANA data in force, such as `2026a`."""
    source = resources.files("tzdata").joinpath("zoneinfo", "tzdata.zi")
    with source.open(encoding="utf-8") as lines:
        return lines.readline().rpartition(" ")[2].strip()


def _expected(name: str) -> str:
    expected = "an IANA time zone, such as Europe/Berlin, America/New_York or UTC"
    if not 0 < len(name) <= _LONGEST_NAME:
        return expected
    spelled = {known.lower(): known for known in zone_names()}
    near = [spelled[found] for found in get_close_matches(name.lower(), spelled, n=3, cutoff=0.75)]
    return f"{expected}; did you mean {' or '.join(near)}?" if near else expected
