"""Configuration: who wins, and what is said about what is wrong."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from sexton_runtime.config import ConfigError, Sources, add_flags, parse_flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Bakery:
    town: Annotated[str, Field(description="where it stands")]
    ovens: Annotated[int, Field(ge=1, le=9, description="how many, 100% hot")] = 2
    open: bool = False
    recipe: str = field(default="", repr=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sexton.toml"
    path.write_text("[bakery]\ntown = 'Ulm'\novens = 3\n[other]\nanything = 1\n")
    return path


def test_flags_beat_variables_beat_the_file_beats_defaults(file: Path) -> None:
    variables = {"SEXTON_BAKERY_OVENS": "4", "SEXTON_BAKERY_TOWN": "Bonn"}
    flags = {"bakery.town": "Kiel"}

    assert Sources(environment={}, file=file).load(Bakery, "bakery") == Bakery(town="Ulm", ovens=3)
    assert Sources(environment=variables, file=file).load(Bakery, "bakery") == Bakery(
        town="Bonn", ovens=4
    )
    assert Sources(flags=flags, environment=variables).load(Bakery, "bakery") == Bakery(
        town="Kiel", ovens=4
    )


def test_the_file_is_also_found_by_its_variable_and_an_empty_variable_is_not_set(
    file: Path,
) -> None:
    variables = {"SEXTON_CONFIG": str(file), "SEXTON_BAKERY_OVENS": ""}

    assert Sources(environment=variables).load(Bakery, "bakery").ovens == 3


def test_the_result_is_frozen(file: Path) -> None:
    bakery = Sources(environment={}, file=file).load(Bakery, "bakery")

    with pytest.raises(AttributeError):
        bakery.ovens = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "bakery.town: is missing; set --town or SEXTON_BAKERY_TOWN"),
        (
            {"SEXTON_BAKERY_TOWN": "Ulm", "SEXTON_BAKERY_OVENS": "10"},
            (
                "bakery.ovens: '10' from variable SEXTON_BAKERY_OVENS can't be used; "
                "Input should be less than or equal to 9"
            ),
        ),
        (
            {"SEXTON_BAKERY_TOWN": "Ulm", "SEXTON_BAKERY_OPEN": "perhaps"},
            (
                "bakery.open: 'perhaps' from variable SEXTON_BAKERY_OPEN can't be used; "
                "Input should be a valid boolean, unable to interpret input"
            ),
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_source_and_what_would_be_right(variables, message) -> None:
    with pytest.raises(ConfigError) as raised:
        Sources(environment=variables).load(Bakery, "bakery")

    assert str(raised.value) == message


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_name(file: Path) -> None:
    file.write_text("[bakery]\ntown = 'Ulm'\noven = 3\n")

    with pytest.raises(ConfigError, match=r"bakery.oven: .* unknown; did you mean 'ovens'"):
        Sources(environment={}, file=file).load(Bakery, "bakery")


@pytest.mark.parametrize("text", ["[bakery", "\xff"])
def test_a_file_that_is_no_toml_is_refused_by_name(file: Path, text: str) -> None:
    file.write_text(text, encoding="latin-1")

    with pytest.raises(ConfigError, match=r"is not TOML"):
        Sources(environment={}, file=file)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no.toml: can't be read: No such file"):
        Sources(environment={}, file=tmp_path / "no.toml")


def test_flags_are_made_of_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Bakery, "bakery", own=True)
    add_flags(parser, Bakery, "branch")
    sources = parse_flags(parser, ["--town", "Ulm", "--open", "--branch-town", "Kiel"])

    assert sources.load(Bakery, "bakery") == Bakery(town="Ulm", open=True)
    assert sources.load(Bakery, "branch") == Bakery(town="Kiel")
    parser.print_help()
    assert "how many, 100% hot (default: 2)" in capsys.readouterr().out


def test_what_is_not_to_be_shown_has_no_flag_and_is_in_no_message(file: Path) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Bakery, "bakery", own=True)
    assert "--recipe" not in parser.format_help()

    file.write_text("[bakery]\ntown = 'Ulm'\nrecipe = 4711\n")
    with pytest.raises(ConfigError, match=r"bakery.recipe: the secret from file") as raised:
        Sources(environment={}, file=file).load(Bakery, "bakery")
    assert "4711" not in str(raised.value)
