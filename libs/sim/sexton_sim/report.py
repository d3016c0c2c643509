"""What came of many seeds: the table that `sexton-sim` prints, and writes as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sexton_sim.check import Verdict
from sexton_sim.check.rules import TITLES
from sexton_sim.simulation import Outcome


@dataclass(slots=True)
class Rule:
    """How one rule fared, in seeds."""

    title: str
    holds: int = 0
    violated: int = 0
    inconclusive: int = 0
    """It holds as far as it can be told."""
    looked_at: int = 0
    """How many things it was held against, over all seeds."""


@dataclass(slots=True)
class Report:
    """Sums over seeds."""

    world: str
    seeds: int = 0
    repeated: int = 0
    """Seeds that were run again, to compare their hashes."""
    virtual_s: float = 0.0
    """Of one run of each seed, without the time in which everybody slept."""
    cpu_s: float = 0.0
    """Of one run of each seed, its checks included."""
    runs: int = 0
    calls: int = 0
    commits: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    rules: dict[str, Rule] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """Virtual seconds per second of CPU."""
        return self.virtual_s / self.cpu_s if self.cpu_s else 0.0

    def add(self, outcome: Outcome, cpu_s: float) -> None:
        """Adds one run of one seed, and what it took."""
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.cpu_s += cpu_s
        self.calls += len(outcome.history.calls)
        self.commits += len(outcome.history.commits)
        self.runs += sum(
            change.before is None and change.key.startswith(b"active/")
            for entry in outcome.history.commits
            for change in entry.commit.changes
        )
        self.faults += outcome.injected
        self._add_rules(outcome.verdict)

    def _add_rules(self, verdict: Verdict) -> None:
        for result in verdict.by_rule():
            if result.result == "not seen":
                continue
            rule = self.rules.setdefault(result.rule, Rule(result.title))
            rule.looked_at += result.checked
            setattr(rule, result.result, getattr(rule, result.result) + 1)

    def as_json(self) -> dict[str, Any]:
        """Gives it as plain data."""
        return {
            "world": self.world,
            "seeds": self.seeds,
            "repeated": self.repeated,
            "virtual_hours": round(self.virtual_s / 3_600, 3),
            "cpu_s": round(self.cpu_s, 1),
            "virtual_s_per_cpu_s": round(self.speed, 1),
            "runs": self.runs,
            "calls": self.calls,
            "commits": self.commits,
            "faults": dict(sorted(self.faults.items())),
            "rules": {
                name: {
                    "holds": rule.holds,
                    "violated": rule.violated,
                    "inconclusive": rule.inconclusive,
                    "looked_at": rule.looked_at,
                }
                for name, rule in sorted(self.rules.items(), key=_order)
            },
            "failed": self.failed,
        }

    def lines(self) -> Iterator[str]:
        """Gives it as a table."""
        yield f"world                 {self.world}"
        yield f"seeds                 {self.seeds:,} ({self.repeated:,} of them twice)"
        yield f"virtual hours         {self.virtual_s / 3_600:,.2f}"
        yield f"virtual s per CPU s   {self.speed:,.0f}"
        yield f"runs fired            {self.runs:,}"
        yield f"calls made            {self.calls:,}"
        yield f"commits               {self.commits:,}"
        yield f"faults injected       {sum(self.faults.values()):,}"
        width = max(map(len, self.faults), default=0)
        for kind, count in sorted(self.faults.items()):
            yield f"  {kind:<{width}}  {count:>7,}"
        yield "rule          holds  violated  inconclusive      looked at"
        for name, rule in sorted(self.rules.items(), key=_order):
            yield (
                f"  {name:<10}{rule.holds:>7,}{rule.violated:>10,}{rule.inconclusive:>14,}"
                f"{rule.looked_at:>15,}"
            )
        unseen = [name for name in TITLES if not self._judged(name)]
        yield f"never judged          {', '.join(unseen) or 'none'}"
        yield f"failed seeds          {', '.join(map(str, self.failed)) or 'none'}"

    def _judged(self, name: str) -> bool:
        return name in self.rules and self.rules[name].looked_at > 0


def _order(item: tuple[str, Rule]) -> tuple[bool, str, int, str]:
    """Safety, then liveness, each by number; what has no number last."""
    name = item[0]
    kind, number = name[:1], name[1:]
    if not number.isdigit():
        return True, "", 0, name
    return False, "SL".index(kind) * "L", int(number), name
