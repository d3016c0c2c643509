"""What the checker says: which rule, what is wrong, and the few events that prove it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sexton_sim.check.describe import told
from sexton_sim.check.rules import TITLES

_MOST_SHOWN = 10
_MOST_PER_RULE = 25
_NAMED = re.compile(r"\(((?:[SL]\d+(?:, )?)+)\)$")


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    rule: str
    """One of `TITLES`: S1 to S26, L1 to L9."""
    message: str
    events: tuple[str, ...] = ()
    """The few lines of the history that prove it."""

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.message}", *(f"    {it}" for it in self.events)])


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What became of one rule."""

    rule: str
    title: str
    result: str
    """`holds`, `violated`, `inconclusive` (it holds as far as it can be told), or `not seen`."""
    checked: int
    """How often it had something to look at."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that was measured, of which there are percentiles."""

    name: str
    count: int
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.count:,} times, p50 {self.p50_s:.3f} s, p95 {self.p95_s:.3f} s, "
            f"p99 {self.p99_s:.3f} s, at most {self.max_s:.3f} s"
        )


@dataclass(slots=True)
class Verdict:
    """All that was found. `checked` counts what each rule looked at: 0 proves nothing."""

    violations: list[Violation] = field(default_factory=list)
    inconclusive: list[str] = field(default_factory=list)
    """What this history can't tell, and why; the rules stand in brackets at the end."""
    checked: Counter[str] = field(default_factory=Counter)
    measures: list[Measure] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Tells whether nothing is wrong."""
        return not self.violations

    def violate(self, rule: str, message: str, events: Sequence[object] = ()) -> None:
        """Adds a violation; the first of a rule are enough."""
        if sum(it.rule == rule for it in self.violations) < _MOST_PER_RULE:
            shown = tuple(told(event) for event in events if event is not None)
            self.violations.append(Violation(rule, message, shown))

    def unknown(self, why: str) -> None:
        """Adds what can't be told, once."""
        if why not in self.inconclusive:
            self.inconclusive.append(why)

    def measure(self, name: str, seconds: Sequence[float]) -> None:
        """Adds a measurement by its percentiles (nearest rank)."""
        if not seconds:
            return
        ordered = sorted(seconds)

        def at(share: float) -> float:
            return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]

        self.measures.append(Measure(name, len(ordered), at(0.5), at(0.95), at(0.99), ordered[-1]))

    def rules(self) -> list[str]:
        """Lists the rules that are broken."""
        return sorted({violation.rule for violation in self.violations})

    def by_rule(self) -> list[RuleResult]:
        """Gives what became of each rule, in the order of `TITLES`; further ones last."""
        broken = set(self.rules())
        open_ = {rule for why in self.inconclusive for rule in _rules_of(why)}
        others = sorted(broken - set(TITLES))
        results = []
        for rule in (*TITLES, *others):
            checked = self.checked[rule]
            result = "holds" if checked else "not seen"
            if rule in broken:
                result = "violated"
            elif rule in open_:
                result = "inconclusive"
            results.append(
                RuleResult(rule, TITLES.get(rule, "what should not be"), result, checked)
            )
        return results

    def shown(self) -> list[Violation]:
        """Gives the violations worth reading: of each rule the first ones."""
        return self.violations[:_MOST_SHOWN]

    def measured(self) -> list[str]:
        """Gives what was measured, a line each."""
        return [str(measure) for measure in self.measures]

    def conclusion(self) -> str:
        """Says in one line what came out."""
        if not self.ok:
            more = len(self.violations) - len(self.shown())
            rest = f", of which {more} are not shown" if more else ""
            return f"violated: {', '.join(self.rules())} ({len(self.violations)} findings{rest})"
        results = Counter(it.result for it in self.by_rule())
        return (
            f"holds: {results['holds']} rules; inconclusive {results['inconclusive']}, "
            f"not seen {results['not seen']}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Gives it for programs."""
        return {
            "ok": self.ok,
            "rules": [asdict(result) for result in self.by_rule()],
            "violations": [asdict(violation) for violation in self.violations],
            "inconclusive": self.inconclusive,
            "measures": [asdict(measure) for measure in self.measures],
        }

    def __str__(self) -> str:
        checked = ", ".join(f"{rule} {count:,}" for rule, count in sorted(self.checked.items()))
        shown = [str(violation) for violation in self.shown()]
        more = len(self.violations) - len(shown)
        return "\n".join(
            [
                "ok" if self.ok else f"{len(self.violations)} violations",
                *shown,
                *([f"... and {more} more"] if more else []),
                *(f"inconclusive: {why}" for why in self.inconclusive),
                *self.measured(),
                f"checked: {checked}",
            ]
        )


def _rules_of(why: str) -> list[str]:
    found = _NAMED.search(why)
    return found[1].split(", ") if found else []
