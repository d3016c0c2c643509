"""Rehearses jobs and tasks in a test: on a pretend clock, in one process, in milliseconds.

>>> from datetime import timedelta
>>> import sexton
>>> from sexton_testing import Rehearsal
>>> rehearsal = Rehearsal("2027-03-27T00:00:00Z")
>>> rehearsal.apply(
...     {
...         "dump": sexton.JobSpec(
...             task=sexton.ShellTask("pg_dump shop"),
...             schedules=(sexton.Cron("30 2 * * *", timezone="Europe/Berlin"),),
...         )
...     }
... )
>>> rehearsal.advance(days=3)
>>> for run in rehearsal.runs("dump"):  # the clocks go forward in the night to the 28th
...     print(run.nominal_time, run.state)
2027-03-27 01:30:00+00:00 succeeded
2027-03-28 01:00:00+00:00 succeeded
2027-03-29 00:30:00+00:00 succeeded
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sexton_testing.rehearsal import Passed as Passed
    from sexton_testing.rehearsal import Rehearsal as Rehearsal

__all__ = ["Passed", "Rehearsal"]


def __getattr__(name: str) -> Any:
    # pytest loads the plugin in every run, also in those that rehearse nothing.
    if name in __all__:
        from sexton_testing import rehearsal  # noqa: PLC0415

        return getattr(rehearsal, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
