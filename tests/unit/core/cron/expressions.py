"""Hypothesis strategies for expressions of the whole dialect."""

from hypothesis import strategies as st

MONTHS = ("JAN", "feb", "Mar", "apr", "MAY", "June", "JULY", "aug", "sep", "oct", "nov", "December")
WEEKDAYS = ("SUN", "mon", "Tue", "wednesday", "THU", "fri", "Saturday")


def _joined(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    made = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*made).map("".join)


def items(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    """Every form that all fields but the year have."""
    value = st.integers(low, high).map(str)
    if names:
        value |= st.sampled_from(names)
    step = st.integers(1, high + 5).map(str)
    hashed_high = min(high, 28) if low == 1 else high
    hashed_range = st.tuples(st.integers(low, hashed_high), st.integers(low, hashed_high)).map(
        lambda ends: f"H({min(ends)}-{max(ends)})"
    )
    base = value | _joined(value, "-", value)
    return st.one_of(
        base,
        base,
        _joined(base, "/", step),
        st.sampled_from(["*", "*", "*", "?"]),
        _joined("*/", step),
        st.just("H"),
        _joined("H/", step),
        hashed_range,
        _joined(hashed_range, "/", step),
    )


def _lists(item: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(item, min_size=1, max_size=3).map(",".join) | item


def _time(low: int, high: int) -> st.SearchStrategy[str]:
    return _lists(items(low, high))


_DAY = _lists(
    items(1, 31)
    | st.sampled_from(["L", "LW", "l", "1W", "15W", "31w"])
    | st.integers(1, 30).map(lambda n: f"L-{n}")
)
_WEEKDAY = _lists(
    items(0, 7, WEEKDAYS)
    | st.sampled_from(["5L", "FRIL", "mondayL", "MON#2", "0#1", "7#5", "sat#3"])
)
_MONTH = _lists(items(1, 12, MONTHS))
_STAR = st.just("*")
_YEAR = st.sampled_from(["*", "2000-2040", "2001/3", "2010,2020-2031/2", "*/2"])


def five_fields() -> st.SearchStrategy[str]:
    """Expressions that have a fair chance to fire within a day."""
    return st.tuples(
        _time(0, 59),
        _time(0, 23) | st.sampled_from(["0-3", "1,2", "*"]),
        _DAY | _STAR | _STAR,
        _MONTH | _STAR | _STAR | _STAR,
        _WEEKDAY | _STAR | _STAR,
    ).map(" ".join)


def six_fields() -> st.SearchStrategy[str]:
    """Expressions that have a fair chance to fire within minutes."""
    seconds = st.sampled_from(["*", "*/7", "0", "5-55", "50-10/3", "H/20", "30/15", "H"])
    wide = st.sampled_from(["*", "0-59", "58-3", "*/2", "0,1,2", "30-29"])
    hours = st.sampled_from(["*", "0-23", "0-4", "22-3", "*/2"])
    return st.tuples(seconds, wide, hours, _DAY | _STAR, _STAR, _WEEKDAY | _STAR).map(" ".join)


def expressions() -> st.SearchStrategy[str]:
    """Expressions of five, six and seven fields, many of which seldom or never fire."""
    six = st.tuples(_time(0, 59), five_fields()).map(" ".join)
    return st.one_of(five_fields(), six, st.tuples(six, _YEAR).map(" ".join))
