"""`sexton-sim`: runs seeds of a simulated mesh and says how to replay one that fails.

Each seed runs twice and must give the same event-log hash. Exit codes: 0 all held, 1 something
did not, 2 wrong flags.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from sexton_sim import world
from sexton_sim.event_log import Trace
from sexton_sim.faults import FaultPlan, draw_schedule
from sexton_sim.mesh import world as mesh_world
from sexton_sim.report import Report
from sexton_sim.shrink import shrink
from sexton_sim.simulation import Outcome

Play = Callable[[Trace | None, Collection[int] | None], Outcome]

_DEFAULT_SEEDS = 20
_DEFAULT_S = {"mesh": 15.0, "store": 60.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; gives the exit code."""
    options = _parse(arguments)
    if options.replay is not None:
        return _replay(options)
    report = Report(options.world)
    began = time.monotonic()
    for seed in _seeds(options, began):
        problem = _problem_of(options, seed, report)
        if problem:
            report.failed.append(seed)
            replay = f"sexton-sim --world {options.world} --duration {options.duration:g}"
            _say(f"seed {seed} fails:\n{problem}\nreplay it: {replay} --replay {seed}")
    for line in report.lines():
        _say(line)
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    return 1 if report.failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sexton-sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "the whole mesh (default), or a store alone with what uses it"
    parser.add_argument("--world", choices=("mesh", "store"), default="mesh", help=what)
    many = "how many seeds (default 20; with --minutes as many as there is time for)"
    parser.add_argument("--seeds", type=int, metavar="N", help=many)
    parser.add_argument(
        "--from", type=int, default=1, dest="first", metavar="S", help="the first (default 1)"
    )
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="stop beginning new seeds after so long"
    )
    long = "virtual seconds of faults for each seed (default: mesh 15, store 60)"
    parser.add_argument("--duration", type=float, metavar="D", help=long)
    parser.add_argument("--once", action="store_true", help="do not run each seed twice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table here too")
    replay = parser.add_argument_group("one seed alone")
    replay.add_argument("--replay", type=int, metavar="SEED", help="run it, and list its faults")
    replay.add_argument("--trace", action="store_true", help="print every event")
    replay.add_argument("--history", type=Path, metavar="FILE", help="write the history here")
    replay.add_argument(
        "--only", metavar="1,4,9", help="inject these of its faults, by their numbers"
    )
    replay.add_argument(
        "--shrink", action="store_true", help="find few of its faults that still break a rule"
    )
    options = parser.parse_args(arguments)
    if options.duration is None:
        options.duration = _DEFAULT_S[options.world]
    _check(parser, options)
    return options


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuses what would run nothing, or would be passed over in silence."""
    for name in ("seeds", "minutes", "duration"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            parser.error(f"--{name} {value}: must be more than 0")
    for name in ("trace", "history", "only", "shrink"):
        if options.replay is None and getattr(options, name):
            parser.error(f"--{name}: says how to --replay one seed; name it")
    if options.only is not None and not re.fullmatch(r"\d+(,\d+)*", options.only):
        parser.error(f"--only {options.only}: expected numbers of faults, such as 1,4,9")
    if options.only is not None:
        known = _numbers(options, None)
        unknown = sorted(_given(options) - known)
        if unknown:
            parser.error(
                f"--only {options.only}: seed {options.replay} has {_span(known)}, none of number "
                f"{', '.join(map(str, unknown))}; without --only they are listed"
            )
    for name in ("json", "history"):
        file = getattr(options, name)
        if file is not None and not file.parent.is_dir():
            parser.error(f"--{name} {file}: there is no such folder")


def _seeds(options: argparse.Namespace, began: float) -> Iterator[int]:
    number = options.seeds
    if number is None and options.minutes is None:
        number = _DEFAULT_SEEDS
    for seed in itertools.islice(itertools.count(options.first), number):
        if options.minutes is not None and time.monotonic() - began > options.minutes * 60:
            return
        yield seed


def _problem_of(options: argparse.Namespace, seed: int, report: Report) -> str:
    """Runs a seed, and again; gives what is wrong with it, empty: nothing."""
    play = _play_of(options, seed)
    cpu_s = time.process_time()
    try:
        outcome = play(None, None)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the seed has found
        report.seeds += 1
        return "".join(traceback.format_exception(error))
    report.add(outcome, time.process_time() - cpu_s)
    if not outcome.verdict.ok:
        return str(outcome.verdict)
    if not options.once:
        report.repeated += 1
        again = play(None, None)
        if again.event_log_hash != outcome.event_log_hash:
            return f"two hashes: {outcome.event_log_hash} and {again.event_log_hash}"
    return ""


def _play_of(options: argparse.Namespace, seed: int) -> Play:
    if options.world == "mesh":
        mesh_plan = mesh_world.plan_of(seed, duration_s=options.duration)
        return lambda trace, only: mesh_world.run(seed, mesh_plan, trace, only=only)
    plan = world.plan_of(seed, duration_s=options.duration)
    return lambda trace, only: world.run(seed, plan, trace, only=only)


def _replay(options: argparse.Namespace) -> int:
    seed, play = options.replay, _play_of(options, options.replay)
    only = None if options.only is None else _given(options)
    if options.shrink:
        only = shrink(lambda kept: play(None, kept).verdict.rules(), _numbers(options, only))
        _say(f"these faults are enough: --only {','.join(map(str, sorted(only)))}")
    outcome = play(_say if options.trace else None, only)
    if options.history is not None:
        outcome.recorder.dump(options.history)
    at_s = 0.0
    for fault in draw_schedule(_faults_of(options), seed, options.duration):
        at_s += fault.after_s
        if only is None or fault.number in only:
            _say(f"fault {fault.number:>3} at {at_s:8.3f} s: {fault.kind}")
    _say(str(outcome.verdict))
    _say(f"event-log hash {outcome.event_log_hash}, {outcome.events:,} events")
    return 0 if outcome.verdict.ok else 1


def _given(options: argparse.Namespace) -> set[int]:
    return {int(part) for part in options.only.split(",")}


def _span(numbers: Collection[int]) -> str:
    return f"faults {min(numbers)} to {max(numbers)}" if numbers else "no faults"


def _numbers(options: argparse.Namespace, only: Collection[int] | None) -> set[int]:
    schedule = draw_schedule(_faults_of(options), options.replay, options.duration)
    return {fault.number for fault in schedule if only is None or fault.number in only}


def _faults_of(options: argparse.Namespace) -> FaultPlan:
    seed, duration_s = options.replay, options.duration
    if options.world == "mesh":
        return mesh_world.plan_of(seed, duration_s=duration_s).faults
    return world.plan_of(seed, duration_s=duration_s).faults


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
