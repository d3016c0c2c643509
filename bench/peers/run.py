"""Measures other schedulers and queues beside Sexton, on this machine and in one run.

    .venv/bin/python bench/peers/run.py --runs 10000 --repeat 3

Each peer executes the same kind of job: nothing, with a payload of a hundred bytes. Its packages
go into a virtual environment of its own, its server (Debian's redis-server, postgresql) is started
and stopped here. Peers take turns with Sexton, and the medians of all rounds are shown.

`runs_per_s` is from the first job handed over, by one process, to the last one executed; with
Sexton, which fires by schedule, from the instant at which all are due to the last one settled.
`drained_per_s` is what a worker executes of jobs that all wait before it is started.
`cpu_us_per_run` is of workers and server, without the process that hands over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import servers

HERE = Path(__file__).parent
QUIET_S = 60.0
SCHEDULED = 1_000
"""Jobs at each second, where schedulers are compared."""


@dataclass(frozen=True)
class Peer:
    name: str
    module: str
    server: str
    worker: tuple[str, ...]
    prepare: tuple[str, ...] = ()


PEERS = (
    Peer("celery", "peer_celery", "redis", (
        "celery", "-A", "peer_celery", "worker", "--concurrency", "2", "--loglevel", "error",
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    )),
    Peer("dramatiq", "peer_dramatiq", "redis", (
        "dramatiq", "peer_dramatiq", "--processes", "2", "--threads", "8",
    )),
    Peer("huey", "peer_huey", "redis", (
        "huey_consumer", "peer_huey.huey", "--workers", "1", "--quiet",
    )),
    Peer("procrastinate", "peer_procrastinate", "postgresql", (
        "procrastinate", "--app", "peer_procrastinate.app", "worker", "--concurrency", "20",
    ), ("procrastinate", "--app", "peer_procrastinate.app", "schema", "--apply")),
)  # fmt: skip
SCHEDULER = "apscheduler"


class Environment:
    """The virtual environment in which the peers live."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        done = folder / "installed"
        wanted = (HERE / "requirements.txt").read_text(encoding="utf-8")
        if done.is_file() and done.read_text(encoding="utf-8") == wanted:
            return
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [self.program("python"), "-m", "pip", "install", "--quiet", "-r"]
        subprocess.run([*install, str(HERE / "requirements.txt")], check=True)
        done.write_text(wanted, encoding="utf-8")

    def program(self, name: str) -> str:
        # Found as a script: what it is called is the package's.
        found = self._bin / name
        return str(found if found.exists() else self._bin / f"{name}.py")

    def versions(self) -> dict[str, str]:
        code = (
            "import json, importlib.metadata as m; "
            "print(json.dumps({n: m.version(n) for n in "
            "('celery', 'dramatiq', 'huey', 'procrastinate', 'apscheduler')}))"
        )
        versions: dict[str, str] = json.loads(self.output(["python", "-c", code], {}))
        return versions

    def output(self, command: list[str], variables: dict[str, str]) -> str:
        return subprocess.run(
            [self.program(command[0]), *command[1:]],
            env=_environment(variables), cwd=HERE, check=True, text=True, stdout=subprocess.PIPE,
        ).stdout  # fmt: skip


def measure_peer(peer: Peer, environment: Environment, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="peer-", dir=args.dir) as folder:
        place = Path(folder)
        serving = (
            servers.postgresql(place)
            if peer.server == "postgresql"
            else servers.redis(place, fsync=args.fsync)
        )
        with serving as (url, server):
            marks = place / "marks"
            marks.touch()
            variables = {"PEER_URL": url, "PEER_MARKS": str(marks)}
            if peer.prepare:
                environment.output(list(peer.prepare), variables)
            hand_over = ["python", "enqueue.py", peer.module]
            with _worker(peer, environment, variables, place) as worker:
                environment.output([*hand_over, "1"], variables)
                _wait_for(marks, 1, worker)
                before = _cpu_s(worker.pid) + _cpu_s(server)
                began = float(environment.output([*hand_over, str(args.runs)], variables))
                ended = _wait_for(marks, 1 + args.runs, worker)
                used_s = _cpu_s(worker.pid) + _cpu_s(server) - before
            environment.output([*hand_over, str(args.runs)], variables)
            with _worker(peer, environment, variables, place) as worker:
                first = _wait_for(marks, 2 + args.runs, worker)
                drained_s = _wait_for(marks, 1 + 2 * args.runs, worker) - first
    return {
        "runs_per_s": round(args.runs / (ended - began)),
        "drained_per_s": round(args.runs / drained_s),
        "cpu_us_per_run": round(used_s / args.runs * 1e6),
    }


def measure_sexton(args: argparse.Namespace) -> dict[str, Any]:
    jobs = min(args.runs, 5_000)
    measured = _bench(args, "throughput", jobs, max(1, round(args.runs / jobs)))
    return {
        "runs_per_s": measured["runs_per_s"],
        "drained_per_s": measured["runs_per_s"],
        "cpu_us_per_run": measured["cpu_us_per_run"]["all"],
    }


def measure_schedulers(environment: Environment, args: argparse.Namespace) -> dict[str, Any]:
    """Both as schedulers: so many jobs at each whole second, from due to started."""
    shape = [str(args.scheduled), str(args.seconds)]
    peer = json.loads(environment.output(["python", "peer_apscheduler.py", *shape], {}))
    own = _bench(args, "lateness", args.scheduled, args.seconds)
    names = ("runs_per_s", "p50_ms", "p99_ms")
    return {SCHEDULER: peer, "sexton": {name: own[name] for name in names}}


def _bench(args: argparse.Namespace, what: str, jobs: int, seconds: int) -> dict[str, Any]:
    sexton = Path(sys.executable).parent / "sexton"
    options = ["--jobs", str(jobs), "--seconds", str(seconds), "--json"]
    if args.dir is not None:
        options += ["--dir", str(args.dir)]
    command = [str(sexton), "bench", what, *options]
    measured: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    return measured


@contextlib.contextmanager
def _worker(
    peer: Peer, environment: Environment, variables: dict[str, str], place: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with (place / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [environment.program(peer.worker[0]), *peer.worker[1:]],
            env=_environment(variables), cwd=HERE, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            # Its own session: no process but those that it has started.
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10.0)


def _wait_for(marks: Path, number: int, worker: subprocess.Popen[bytes]) -> float:
    """Waits for so many executions; gives the time at which the last one was seen."""
    seen, heard = 0, time.monotonic()
    while True:
        size = marks.stat().st_size
        if size >= number:
            return time.time()
        if size > seen:
            seen, heard = size, time.monotonic()
        if worker.poll() is not None or time.monotonic() - heard > QUIET_S:
            log = (marks.parent / "worker.log").read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"{size} of {number} jobs were executed; the worker says:\n{log}")
        time.sleep(0.005)


def _cpu_s(root: int) -> float:
    """Gives the processor time of a process and of all that came of it, the ended ones included."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            used[pid] = sum(map(int, fields[11:15]))
    ticks, found = 0, [root]
    while found:
        pid = found.pop()
        ticks += used.get(pid, 0)
        found += children.get(pid, ())
    return ticks / os.sysconf("SC_CLK_TCK")


def _environment(variables: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **variables, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}


def _median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000, help="jobs of each measurement")
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which medians are shown")
    parser.add_argument(
        "--peers", default=",".join([*(peer.name for peer in PEERS), SCHEDULER]),
        help="by commas: which of them",
    )  # fmt: skip
    parser.add_argument(
        "--fsync", choices=("always", "everysec"), default="always",
        help="when Redis has a write on the disk: before it answers, or within a second",
    )  # fmt: skip
    parser.add_argument("--scheduled", type=int, default=SCHEDULED, help="jobs at each second")
    parser.add_argument("--seconds", type=int, default=10, help="so long, as schedulers")
    parser.add_argument("--dir", type=Path, help="where data go, to choose a disk")
    parser.add_argument("--venv", type=Path, default=Path(".peers"), help="where packages go")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    names = args.peers.split(",")
    unknown = set(names) - {peer.name for peer in PEERS} - {SCHEDULER}
    if unknown:
        print(f"no such peer: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    try:
        servers.require({peer.server for peer in PEERS if peer.name in names})
    except servers.MissingError as error:
        print(error, file=sys.stderr)
        return 3
    environment = Environment(args.venv.resolve())
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        peer.name: lambda peer=peer: measure_peer(peer, environment, args)
        for peer in PEERS
        if peer.name in names
    }
    if measures:
        measures["sexton"] = lambda: measure_sexton(args)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in measures}
    scheduled: dict[str, list[dict[str, Any]]] = {}
    for _ in range(args.repeat):
        for name, measure in measures.items():
            found[name].append(measure())
        if SCHEDULER in names:
            for name, row in measure_schedulers(environment, args).items():
                scheduled.setdefault(name, []).append(row)
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}",
        "versions": environment.versions(),
        "runs": args.runs,
        "repeated": args.repeat,
        "fsync": args.fsync,
        "throughput": {name: _median(rows) for name, rows in found.items()},
    }
    own = result["throughput"].get("sexton")
    for row in result["throughput"].values():
        row["sexton_to_it"] = round(own["runs_per_s"] / row["runs_per_s"], 2)
        row["sexton_to_its_drain"] = round(own["runs_per_s"] / row["drained_per_s"], 2)
    if scheduled:
        result["scheduled_jobs"] = args.scheduled
        result["lateness"] = {name: _median(rows) for name, rows in scheduled.items()}
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
