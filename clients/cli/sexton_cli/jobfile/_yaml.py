"""YAML as a job file needs it: plain values, each with the line that it stands on.

Events are read instead of objects, so that nothing in a file can create one, nothing recurses, and
duplicate keys are seen. Words mean what YAML 1.2 says: `on` and `12:30` are text, only `true` and
`false` are booleans. Anchors, aliases and tags are refused: a file says what it says.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import yaml

from sexton_cli.jobfile.problems import JobFileError, Problem

MAX_BYTES: Final = 10 << 20
MAX_DEPTH: Final = 32
"""Levels of nesting; a job has seven."""
_KEPT_DEPTH: Final = 2
"""Levels whose places are kept: that of a job has two."""
MAX_NODES: Final = 500_000
MAX_DIGITS: Final = 20
"""Of a number, with its sign: 64 bits hold no more."""

Path: TypeAlias = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[-+]?\.inf|\.nan|nan|[-+]?inf(inity)?", re.IGNORECASE)
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Place(NamedTuple):
    """Line and column, from 1."""

    line: int
    column: int


class Document:
    """A file's values, and where each stands: that of a mapping's entry is its key.

    The places of a large file's values are many more than are ever asked for: only those of its
    jobs are kept, and the file is read once more where another is wanted.
    """

    def __init__(self, value: Any, places: dict[Path, Place], text: str, source: str) -> None:
        self.value: Final = value
        self._outer: Final = places
        self._text: Final = text
        self._source: Final = source

    @cached_property
    def places(self) -> dict[Path, Place]:
        """Where everything stands."""
        return _Reader(self._source, depth=MAX_DEPTH).places_of(self._text)

    def place(self, path: Path) -> Place:
        """Returns where a value stands, or the nearest thing around it."""
        if path in self._outer:
            return self._outer[path]
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1, 1))


def read(text: bytes | str, source: str) -> Document:
    """Reads one document.

    Raises:
        JobFileError: it is no YAML, or uses what is refused here; names the line.

    """
    return _Reader(source, depth=_KEPT_DEPTH).read(text)


class _PlaceMissingError(Exception):
    """The file has to be read once more, with the places of everything."""


class _Frame:
    """A mapping or sequence that is being filled."""

    __slots__ = ("container", "key", "path", "waits_for_value")

    def __init__(self, container: dict[str, Any] | list[Any], path: Path) -> None:
        self.container = container
        self.path = path
        self.key: str = ""
        self.waits_for_value = False


class _Reader:
    def __init__(self, source: str, *, depth: int) -> None:
        self._source = source
        self._depth = depth  # of the places that are noted
        self._places: dict[Path, Place] = {}
        self._problems: list[Problem] = []
        self._stack: list[_Frame] = []
        self._root: Any = None

    def read(self, text: bytes | str) -> Document:
        if len(text) > MAX_BYTES:
            self._fail(Place(1, 1), f"the file is {len(text):,} bytes; at most {MAX_BYTES:,}")
        if isinstance(text, bytes):
            text = self._decode(text)
        try:
            self._read(text)
        except _PlaceMissingError:
            return _Reader(self._source, depth=MAX_DEPTH).read(text)
        if self._problems:
            raise JobFileError(self._source, self._problems)
        return Document(self._root, self._places, text, self._source)

    def places_of(self, text: str) -> dict[Path, Place]:
        """Reads once more what has been read, for the places."""
        self._read(text)
        return self._places

    def _read(self, text: str) -> None:
        documents = 0
        for number, event in enumerate(self._events(text)):
            if number > MAX_NODES:
                self._fail(_place(event), f"more than {MAX_NODES:,} values")
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fail(_place(event), "a second document; expected one per file")
            elif isinstance(event, yaml.NodeEvent):
                self._node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._stack.pop()

    def _decode(self, text: bytes) -> str:
        try:
            return text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            self._fail(Place(line, 1), f"byte {text[error.start]:#04x}; expected UTF-8")

    def _events(self, text: str) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
            what = " ".join(filter(None, (error.context, error.problem))) or "not YAML"
            self._fail(place, what)
        except yaml.YAMLError as error:
            self._fail(self._bad_character(text), str(error).splitlines()[0])

    def _bad_character(self, text: str) -> Place:
        found = re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)
        at = found.start() if found else 0
        return Place(text.count("\n", 0, at) + 1, 1)

    def _node(self, event: yaml.NodeEvent) -> None:
        if event.anchor:
            what = f"anchor or alias {event.anchor!r}; expected the value written out"
            self._fail(_place(event), what)
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.container, dict) and not frame.waits_for_value:
            self._key(frame, event)
            return
        path: Path = ()
        if len(self._stack) <= self._depth:
            if frame is not None:
                key = frame.key if isinstance(frame.container, dict) else len(frame.container)
                path = (*frame.path, key)
            self._places.setdefault(path, _place(event))
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        else:
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
            tag = getattr(event, "tag", None)
            if tag:
                self._fail(_place(event), f"tag {tag!r}; expected a plain value")
            if len(self._stack) >= MAX_DEPTH:
                self._fail(_place(event), f"nesting deeper than {MAX_DEPTH} levels")
        if frame is None:
            self._root = value
        elif isinstance(frame.container, dict):
            frame.container[frame.key] = value
            frame.waits_for_value = False
        else:
            frame.container.append(value)
        if not isinstance(event, yaml.ScalarEvent):
            self._stack.append(_Frame(value, path))

    def _key(self, frame: _Frame, event: yaml.NodeEvent) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            self._fail(_place(event), "a list or mapping as a key; expected text")
        key = event.value
        if key in frame.container:
            if self._depth < MAX_DEPTH:
                raise _PlaceMissingError
            path = (*frame.path, key)
            first = self._places[path].line
            what = f"duplicate key; it stands on line {first} already"
            self._problems.append(Problem(*_place(event), dotted(path), what))
        elif len(self._stack) <= self._depth:
            self._places[*frame.path, key] = _place(event)
        frame.key = key
        frame.waits_for_value = True

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if event.tag and event.tag != "!":
            self._fail(_place(event), f"tag {event.tag!r}; expected a plain value")
        if event.style:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            if len(text) > MAX_DIGITS or not -(2**63) <= int(text) < 2**63:
                self._fail(_place(event), f"{text[:40]} does not fit 64 bits; put it in quotes")
            return int(text)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self._fail(_place(event), f"{text[:40]} is too large; expected a finite number")
            return number
        if _NO_NUMBER.fullmatch(text):
            self._fail(
                _place(event), f"{text} is no number; expected a finite one, or text in quotes"
            )
        return text

    def _fail(self, place: Place, message: str) -> NoReturn:
        raise JobFileError(self._source, [*self._problems, Problem(*place, "", message)])


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    assert mark is not None, "parsed events have marks"
    return Place(mark.line + 1, mark.column + 1)


def dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
