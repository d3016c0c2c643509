"""`python -m sexton_sim`: runs seeds and says how to replay one that fails.

Each seed runs twice and must give the same event-log hash. Exit codes: 0 all held, 1 something
did not, 2 wrong flags.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sexton_sim import world
from sexton_sim.event_log import Trace
from sexton_sim.mesh import world as mesh_world
from sexton_sim.simulation import Outcome

Play = Callable[[Trace | None], Outcome]

_DEFAULT_SEEDS = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; gives the exit code."""
    options = _parse(arguments)
    if options.replay is not None:
        return _replay(options)
    failed: list[int] = []
    injected: Counter[str] = Counter()
    virtual_s, ran, began = 0.0, 0, time.monotonic()
    for seed in _seeds(options, began):
        play = _play_of(options, seed)
        outcome = play(None)
        virtual_s += outcome.virtual_s
        ran += 1
        problem = "" if outcome.verdict.ok else str(outcome.verdict)
        if not problem and not options.once:
            again = play(None)
            if again.event_log_hash != outcome.event_log_hash:
                problem = f"two hashes: {outcome.event_log_hash} and {again.event_log_hash}"
        injected += outcome.injected
        if problem:
            failed.append(seed)
            flags = f"{'--mesh ' if options.mesh else ''}--replay {seed}"
            replay = f"python -m sexton_sim {flags} --duration {options.duration:g}"
            _say(f"seed {seed} fails:\n{problem}\nreplay it: {replay} --trace")
    took_s = time.monotonic() - began
    _say(f"{ran} seeds, {virtual_s / 3600:.2f} virtual hours in {took_s:.0f} s; failed: {failed}")
    _say("injected: " + ", ".join(f"{what} {count}" for what, count in sorted(injected.items())))
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sexton_sim", description=__doc__)
    mesh = "the whole mesh (default: a store, and who uses it)"
    parser.add_argument("--mesh", action="store_true", help=mesh)
    many = "how many seeds (default 20; with --minutes as many as there is time for)"
    parser.add_argument("--seeds", type=int, help=many)
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first (default 1)")
    parser.add_argument("--minutes", type=float, help="stop beginning new seeds after so long")
    parser.add_argument("--duration", type=float, default=60.0, help="virtual seconds of faults")
    parser.add_argument("--once", action="store_true", help="do not run each seed twice")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this seed alone")
    parser.add_argument("--trace", action="store_true", help="with --replay: print every event")
    parser.add_argument("--history", type=Path, help="with --replay: write the history here")
    return parser.parse_args(arguments)


def _seeds(options: argparse.Namespace, began: float) -> Iterator[int]:
    number = options.seeds
    if number is None and options.minutes is None:
        number = _DEFAULT_SEEDS
    for seed in itertools.islice(itertools.count(options.first), number):
        if options.minutes is not None and time.monotonic() - began > options.minutes * 60:
            return
        yield seed


def _play_of(options: argparse.Namespace, seed: int) -> Play:
    if options.mesh:
        mesh_plan = mesh_world.plan_of(seed, duration_s=options.duration)
        return lambda trace: mesh_world.run(seed, mesh_plan, trace)
    plan = world.plan_of(seed, duration_s=options.duration)
    return lambda trace: world.run(seed, plan, trace)


def _replay(options: argparse.Namespace) -> int:
    outcome = _play_of(options, options.replay)(_say if options.trace else None)
    if options.history is not None:
        outcome.recorder.dump(options.history)
    _say(str(outcome.verdict))
    _say(f"event-log hash {outcome.event_log_hash}, {outcome.events:,} events")
    return 0 if outcome.verdict.ok else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
