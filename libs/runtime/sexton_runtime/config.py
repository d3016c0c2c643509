"""Configuration: frozen, validated, from flags > environment > file > defaults.

A room's ``config.py`` declares a frozen dataclass whose fields carry their bounds and their
description (`typing.Annotated` with `pydantic.Field`). A section `store` with a field `listen` is
then set by the flag `--listen` (or `--store-listen` where the section is not the program's own), by
`SEXTON_STORE_LISTEN`, or by `listen` under `[store]` in the TOML file, which one file may hold for
the whole mesh. An empty flag or variable counts as not set. Unknown flags and unknown keys in a
section are errors; unknown variables are not, because other programs set some of that prefix too.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import tomllib
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from sexton.errors import shown

PREFIX = "SEXTON_"
FILE_VARIABLE = "SEXTON_CONFIG"
FILE_FLAG = "--config"

ConfigT = TypeVar("ConfigT")


class ConfigError(Exception):
    """The configuration can't be used: says where the value came from and what would be right."""


class Sources:
    """Where values come from, strongest first."""

    def __init__(
        self,
        *,
        flags: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> None:
        """Reads the file, which is `file` or the one that SEXTON_CONFIG names, if any."""
        self._flags = dict(flags or {})
        self._environment = dict(os.environ if environment is None else environment)
        named = self._environment.get(FILE_VARIABLE)
        self._file = file or (Path(named) if named else None)
        self._tables = _read_toml(self._file) if self._file else {}

    def load(self, kind: type[ConfigT], section: str) -> ConfigT:
        """Makes the section's configuration. Raises `ConfigError` naming everything wrong."""
        names = [field.name for field in _fields(kind)]
        secret = {field.name for field in _fields(kind) if not field.repr}
        table = self._table(section, names)
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name in names:
            variable = variable_name(section, name)
            if self._flags.get(f"{section}.{name}") not in (None, ""):
                values[name] = self._flags[f"{section}.{name}"]
                origins[name] = "a flag"
            elif self._environment.get(variable):
                values[name], origins[name] = self._environment[variable], f"variable {variable}"
            elif name in table:
                values[name], origins[name] = table[name], f"file {self._file}"
        try:
            return TypeAdapter(kind).validate_python(values)
        except ValidationError as error:
            lines = [_explain(section, detail, origins, secret) for detail in error.errors()]
            raise ConfigError("\n".join(lines)) from None

    def _table(self, section: str, names: Sequence[str]) -> Mapping[str, Any]:
        table = self._tables.get(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{section}: file {self._file} gives a value; give a table")
        for key in table:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
                raise ConfigError(f"{section}.{key}: file {self._file} sets it, unknown; {hint}")
        return table


def variable_name(section: str, name: str) -> str:
    """Gives the name of the environment variable of a field."""
    return f"{PREFIX}{section}_{name}".upper()


def add_flags(
    parser: argparse.ArgumentParser, kind: type[Any], section: str, *, own: bool = False
) -> None:
    """Adds a flag per field; those of the program's own section have no prefix.

    Fields that the dataclass does not show (`repr=False`) are secrets, which a command line would
    show to every user of the machine: they have no flag.
    """
    hints = get_type_hints(kind, include_extras=True)
    group = parser.add_argument_group(f"{section} (variables {PREFIX}{section.upper()}_...)")
    for field in (field for field in _fields(kind) if field.repr):
        flag = field.name if own else f"{section}_{field.name}"
        switch = isinstance(field.default, bool)
        group.add_argument(
            f"--{flag.replace('_', '-')}",
            dest=f"{section}.{field.name}",
            default=None,
            help=_help(field, hints[field.name]),
            **({"action": argparse.BooleanOptionalAction} if switch else {"metavar": "VALUE"}),
        )


def parse_flags(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Sources:
    """Parses a command line, and gives the sources with its flags on top."""
    parser.add_argument(
        FILE_FLAG, type=Path, metavar="FILE", help=f"TOML file (variable {FILE_VARIABLE})"
    )
    parsed = vars(parser.parse_args(arguments))
    return Sources(flags=parsed, file=parsed["config"])


def _fields(kind: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(field for field in dataclasses.fields(kind) if field.init)


def _help(field: dataclasses.Field[Any], hint: Any) -> str:
    text = next(_descriptions(hint), "").replace("%", "%%")
    if field.default in (dataclasses.MISSING, None, ""):
        return text
    return f"{text} (default: {field.default})"


def _descriptions(hint: Any) -> Iterator[str]:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, FieldInfo) and extra.description:
            yield extra.description


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"file {path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"file {path}: is not TOML: {error}") from error


def _explain(section: str, detail: Any, origins: Mapping[str, str], secret: Container[str]) -> str:
    name = str(detail["loc"][0]) if detail["loc"] else ""
    if detail["type"] in ("missing", "missing_argument"):
        flag = name.replace("_", "-")
        return f"{section}.{name}: is missing; set --{flag} or {variable_name(section, name)}"
    where = f"{section}.{name}" if name else section
    value = shown(detail["input"]) if name in origins else "the combination"
    if name in secret:
        value = "the secret"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {value} from {origins.get(name, 'the defaults')} can't be used; {message}"
