"""The load under which faults are injected: jobs of every kind, and people who meddle.

About fifteen runs a second, of which some are under way at any moment; enough that every fault hits
something, few enough that two cores carry the mesh and its faults.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from faults.mesh import PATIENCE_S, FaultMesh, T, wait_for

from sexton import (
    CatchUp,
    CatchUpPolicy,
    Client,
    Delivery,
    Every,
    FromWorker,
    JobSpec,
    Overlap,
    PythonTask,
    ResumeMode,
    Retention,
    Retry,
    RunState,
    ShellTask,
)
from sexton.errors import NotFound, SextonError

STEADY: Final = tuple(f"steady-{number}" for number in range(5))
"""Jobs of which every second must have its run, whatever happens."""
LONG: Final = tuple(f"long-{number}" for number in range(3))
"""Jobs of which a run is under way at any moment."""
_LONG_S: Final = 4.0
_LONGEST: Final = "longest"
_LONGEST_S: Final = 9.0
"""Longer than a session lasts: whoever loses a worker loses a run of it."""
PLAIN: Final = frozenset({*STEADY, *LONG, _LONGEST, "failing-once", "shell"})
"""Jobs whose lost runs need not wait for the end of a session; `exclusive` ones do, for example."""
LIVE: Final = (
    RunState.WAITING,
    RunState.RETRYING,
    RunState.RUNNING,
    RunState.CANCELLING,
    RunState.TERMINATING,
)
DRAINED_WITHIN_S: Final = 120.0
_KEPT: Final = 50
_TOGGLED: Final = "toggled"
_SCRATCH: Final = "scratch"
_ASKED: Final = "asked"
_PAUSE_S: Final = 0.4
"""Mean time between two calls of a person."""

_WITNESS: Final = Path(__file__).with_name("witness.sh")


class Load:
    """The jobs of one mesh, and those who call its API."""

    def __init__(
        self, mesh: FaultMesh, *, calls: Path | None = None, seed: int = 0, people: int = 2
    ) -> None:
        """Takes the file in which all calls are written down."""
        self._mesh = mesh
        self._calls = calls
        self._random = random.Random(seed)
        self._seed = seed
        self._people = people
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def client(self, **settings: float) -> Client:
        """Connects to the API; all calls are written down."""
        return self._mesh.client(history=self._calls, **settings)

    def begin(self) -> None:
        """Creates the jobs, and returns when each steady one has run."""
        with self.client(timeout_s=10.0, retry_for_s=30.0) as client:
            for name, spec in jobs(self._mesh.tasks_folder):
                client.jobs.create(name, spec)
        files = [self._mesh.shared / f"{name}.jsonl" for name in (*STEADY, *LONG)]
        wait_for(lambda: all(file.exists() for file in files), "each steady job has run")
        self._meddle()

    def rest(self) -> None:
        """Has nobody call any more, pauses every job and waits until nothing is under way."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        with self.client(timeout_s=10.0, retry_for_s=30.0) as client:
            for job in insist(lambda: list(client.jobs.list())):
                with suppress(NotFound):  # deleted meanwhile
                    insist(partial(client.jobs.pause, job))
            wait_for(
                lambda: not insist(lambda: live(client)), "every run has ended", DRAINED_WITHIN_S
            )
            # The last read: of everything, and answered.
            last = insist(lambda: list(client.jobs.list()))
            assert {job.name for job in last if job.paused} >= {*STEADY, *LONG}

    def go_on(self) -> None:
        """Has every job go on, and people call."""
        with self.client(timeout_s=10.0, retry_for_s=30.0) as client:
            for job in insist(lambda: list(client.jobs.list())):
                with suppress(NotFound):
                    insist(partial(client.jobs.resume, job, mode=ResumeMode.NEXT))
        self._meddle()

    def end(self) -> None:
        """Has nobody call any more. Idempotent."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _meddle(self) -> None:
        self._over.clear()
        self._threads = [
            threading.Thread(target=self._live, args=(number,), daemon=True)
            for number in range(self._people)
        ]
        for thread in self._threads:
            thread.start()

    def _live(self, number: int) -> None:
        person = _Person(self.client(), random.Random(f"{self._seed}/{uuid.uuid4()}"))
        with person.client:
            while not self._over.wait(person.rng.expovariate(1 / _PAUSE_S)):
                # What is refused or not answered is an outcome like others.
                with suppress(SextonError):
                    person.act()


class _Person:
    """Somebody who does one thing after the other."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self.client = client
        self.rng = rng
        self._deeds: tuple[tuple[float, Callable[[], object]], ...] = (
            (5, self._trigger),
            (1, self._end_run),
            (1, lambda: client.jobs.pause(_TOGGLED)),
            (2, lambda: client.jobs.resume(_TOGGLED, mode=rng.choice(tuple(ResumeMode)))),
            (1, lambda: client.jobs.create(_SCRATCH, JobSpec(task=ShellTask("exit 0")))),
            (1, lambda: client.jobs.delete(_SCRATCH)),
            (1, lambda: client.jobs.get(rng.choice(STEADY))),
            (1, lambda: live(client)),
        )

    def act(self) -> None:
        """Does one thing."""
        weights = [weight for weight, _ in self._deeds]
        ((_, deed),) = self.rng.choices(self._deeds, weights)
        deed()

    def _trigger(self) -> None:
        """Asks for a run; half the time twice, as somebody does who has not seen the answer."""
        request_id = uuid.uuid4().hex
        for _ in range(self.rng.choice((1, 2))):
            with suppress(SextonError):
                self.client.jobs.trigger(_ASKED, request_id=request_id)

    def _end_run(self) -> None:
        run = next(iter(self.client.runs.list(self.rng.choice((_ASKED, *LONG)), states=LIVE)), None)
        if run is not None:
            end = self.rng.choice((self.client.runs.cancel, self.client.runs.terminate))
            end(run)


def insist(call: Callable[[], T]) -> T:
    """Repeats a call that a busy mesh does not answer in time; gives up as `wait_for` does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except NotFound:
            raise  # the mesh has answered
        except SextonError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def live(client: Client) -> list[str]:
    """Gives the runs that have not ended, by name."""
    return [run.full_name for run in client.runs.list(states=LIVE)]


def jobs(folder: str) -> Iterator[tuple[str, JobSpec]]:
    """Gives the jobs of the load, by name."""
    everything = CatchUp(policy=CatchUpPolicy.ALL, window=timedelta(hours=1), max=1_000)
    all_of_them = JobSpec(
        task=PythonTask("faults-async"),
        overlap=Overlap.ALLOW_ALL,
        catch_up=everything,
        retry=Retry(max_attempts=5, initial_backoff=timedelta(seconds=0.3), jitter=0),
        retention=Retention(max_runs=_KEPT),  # soon reached, so that the store need not grow
    )
    one_at_a_time = replace(all_of_them, overlap=Overlap.SKIP, catch_up=CatchUp())

    def python(kind: str, seconds: float, fails: int = 0) -> PythonTask:
        return PythonTask(f"faults-{kind}", {"folder": folder, "seconds": seconds, "fails": fails})

    def every(spec: JobSpec, period_s: float, offset_s: float = 0.0, **rest: Any) -> JobSpec:
        offset = timedelta(seconds=offset_s)
        schedule = Every(timedelta(seconds=period_s), offset=offset)
        return replace(spec, schedules=(schedule,), **rest)

    for name in STEADY:
        yield name, every(all_of_them, 1, task=python("thread", 0.1))
    for number, name in enumerate(LONG):
        yield name, every(all_of_them, 3, number, task=python("async", _LONG_S))
    yield _LONGEST, every(all_of_them, 2, task=python("async", _LONGEST_S))
    yield "failing-once", every(all_of_them, 1, task=python("async", 0.1, fails=1))
    yield "failing", every(all_of_them, 3, task=python("async", 0.1, fails=9))
    yield "exclusive", every(one_at_a_time, 1, task=python("thread", 0.5), exclusive=True)
    yield "exclusive-long", every(one_at_a_time, 4, task=python("process", 3.0), exclusive=True)
    yield (
        "at-most-once",
        every(
            all_of_them, 1, task=python("async", 0.8),
            delivery=Delivery.AT_MOST_ONCE, retry=Retry(max_attempts=1),
        ),
    )  # fmt: skip
    for name, overlap in (
        ("skipping", Overlap.SKIP),
        ("buffering", Overlap.BUFFER_ONE),
        ("cancelling", Overlap.CANCEL_OTHER),
    ):
        yield name, every(one_at_a_time, 1, task=python("async", 1.4), overlap=overlap)
    yield (
        "queueing",
        every(
            one_at_a_time, 1, task=python("thread", 0.6),
            overlap=Overlap.BUFFER_ALL, max_buffered=5,
        ),
    )  # fmt: skip
    yield (
        "terminating",
        every(one_at_a_time, 2, task=python("process", 2.4), overlap=Overlap.TERMINATE_OTHER),
    )
    worker = FromWorker("FAULTS_WORKER")
    env: Mapping[str, str | FromWorker] = {
        "FAULTS_FOLDER": folder,
        "FAULTS_SECONDS": "0.5",
        "FAULTS_WORKER": worker,
    }
    shell = ShellTask(_WITNESS.read_text(encoding="utf-8"), env=env)
    yield "shell", every(all_of_them, 1, task=shell)
    yield "shell-skipping", every(one_at_a_time, 2, task=shell)
    yield _TOGGLED, every(one_at_a_time, 1, task=python("async", 0.2), overlap=Overlap.BUFFER_ONE)
    yield _ASKED, replace(all_of_them, task=python("async", 0.5))
