"""What the checker says: which rule, what is wrong, and the few events that prove it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_MOST_SHOWN = 10
_MOST_PER_RULE = 25


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    rule: str
    """As PROOF names it: S1 to S23, L1 to L9."""
    message: str
    events: tuple[str, ...] = ()
    """The few lines of the history that prove it."""

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.message}", *(f"    {it}" for it in self.events)])


@dataclass(slots=True)
class Verdict:
    """All that was found. `checked` counts what each rule looked at: 0 proves nothing."""

    violations: list[Violation] = field(default_factory=list)
    inconclusive: list[str] = field(default_factory=list)
    """What this history can't tell, and why."""
    checked: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Tells whether nothing is wrong."""
        return not self.violations

    def violate(self, rule: str, message: str, events: Sequence[object] = ()) -> None:
        """Adds a violation; the first of a rule are enough."""
        if sum(it.rule == rule for it in self.violations) < _MOST_PER_RULE:
            self.violations.append(Violation(rule, message, tuple(map(str, events))))

    def unknown(self, why: str) -> None:
        """Adds what can't be told, once."""
        if why not in self.inconclusive:
            self.inconclusive.append(why)

    def rules(self) -> list[str]:
        """Lists the rules that are broken."""
        return sorted({violation.rule for violation in self.violations})

    def __str__(self) -> str:
        checked = ", ".join(f"{rule} {count:,}" for rule, count in sorted(self.checked.items()))
        shown = [str(violation) for violation in self.violations[:_MOST_SHOWN]]
        more = len(self.violations) - len(shown)
        return "\n".join(
            [
                "ok" if self.ok else f"{len(self.violations)} violations",
                *shown,
                *([f"... and {more} more"] if more else []),
                *(f"inconclusive: {why}" for why in self.inconclusive),
                f"checked: {checked}",
            ]
        )
