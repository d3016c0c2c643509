"""The page about the faults names what is done."""

from __future__ import annotations

from pathlib import Path

from faults.scenarios import BAND_S, SCENARIOS, Scenario
from faults.stage import SESSION_S

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def row(scenario: Scenario) -> str:
    """A scenario as the page has it."""
    promised = [
        f"another acts within {scenario.takeover_s:g} s" if scenario.takeover_s else "",
        f"lost runs start again within {scenario.redelivery_s:g} s"
        if scenario.redelivery_s
        else "",
    ]
    said = "; ".join(filter(None, promised))
    return f"| `{scenario.name}` | {scenario.does} | {said} | {', '.join(sorted(scenario.ci))} |"


def test_every_scenario_stands_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [row(scenario) for scenario in SCENARIOS if row(scenario) not in text]
    assert not missing, "\n".join(missing)
    assert f"{BAND_S:g} s later" in text
    assert f"which is {SESSION_S:g} s instead of 30" in text
