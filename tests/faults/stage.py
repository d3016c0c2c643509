"""Where a scenario is played: a mesh under load, what was done to it, and what that brought about.

Steps are made by the functions below and read as a sentence: `kill(LEADER)`, `let_pass(3)`. Every
one writes what it does into the history, in the words of the simulation, for the same checker.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from faults.load import LONG, Load
from faults.mesh import (
    CLIENTS,
    Ability,
    FaultMesh,
    Member,
    Role,
    of_role,
    wait_for,
    wait_for_leader,
    wait_until_healthy,
)

from sexton import JobSpec, PythonTask
from sexton.errors import NotFound, SextonError
from sexton.history import HistoryFile, boot_ns

Step: TypeAlias = "Callable[[Stage], None]"

LEADER: Final = "the leader"
STANDBY: Final = "a standby of the leader"
OWNER: Final = "the queue's owner"
STORE: Final = "store"
BUSY_WORKER: Final = "a worker in the middle of a run"
COORDINATORS: Final = "the coordinators"
EVERYBODY: Final = "everybody"
LEASE_S: Final = 2.0
SESSION_S: Final = 8.0
_FRESH_NS: Final = 1_500_000_000
_LARGE_CHARACTERS: Final = 60_000
_FILLER: Final = "filler-"


@dataclass(slots=True)
class Stage:
    """One mesh while scenarios are played on it."""

    mesh: FaultMesh
    load: Load
    notes: HistoryFile
    random: random.Random
    measured: dict[str, float] = field(default_factory=dict)
    """What took how long, in this scenario; seconds."""
    struck_ns: int = 0
    """When the last thing was done."""
    _victims: dict[str, Member] = field(default_factory=dict)
    _paused: dict[str, bool] = field(default_factory=dict)
    _cuts: set[tuple[str, str]] = field(default_factory=set)
    _held: set[str] = field(default_factory=set)
    _skewed: dict[str, float] = field(default_factory=dict)
    _sizes: dict[Role, int] = field(default_factory=dict)
    _full: bool = False
    _fillers: list[str] = field(default_factory=list)

    def who(self, title: str) -> list[str]:
        """Gives the members that a title means now; in one scenario always the same one."""
        if title in self._victims:
            return [self._victims[title].name]
        meant: dict[str, Callable[[], list[str]]] = {
            LEADER: lambda: [wait_for_leader(self.mesh, Role.COORDINATOR)],
            STANDBY: self._standbys,
            OWNER: lambda: [wait_for_leader(self.mesh, Role.QUEUE)],
            BUSY_WORKER: self._busy_worker,
            COORDINATORS: lambda: of_role(self.mesh, Role.COORDINATOR),
            EVERYBODY: lambda: sorted(self.mesh.members()),
        }
        return meant[title]() if title in meant else [title]

    def note(self, what: str, target: str = "", *, kind: str = "fault", **facts: Any) -> None:
        """Writes what is done."""
        self.notes.write(kind, what=what, target=target, facts=facts)
        self.struck_ns = boot_ns()

    def strike(self, title: str) -> list[Member]:
        """Gives the members that a title means, and remembers them as its victims."""
        members = self.mesh.members()
        found = [members[name] for name in self.who(title) if name in members]
        if len(found) == 1:
            self._victims[title] = found[0]
        return found

    def victim(self, title: str) -> Member:
        """Gives whom a title meant when something was done to it."""
        return self._victims[title]

    def heal(self) -> None:
        """Takes back all that was done, and waits until everybody serves."""
        heal_network(self)
        if self._full:
            free_disk(self)
        for name in sorted(self._paused):
            go_on(name)(self)
        for name in sorted(self._held):
            self.mesh.let_up(name)
        for name in sorted(self._skewed):
            skew(name, 0.0)(self)
        for role, number in self._sizes.items():
            self.mesh.scale(role, number)
        self._held.clear()
        self._sizes.clear()
        self._victims.clear()
        wait_until_healthy(self.mesh)
        self.note("healed")

    def _standbys(self) -> list[str]:
        leader = wait_for_leader(self.mesh, Role.COORDINATOR)
        return [name for name in of_role(self.mesh, Role.COORDINATOR) if name != leader][:1]

    def _busy_worker(self) -> list[str]:
        """Gives the worker that has begun a long run last, not long ago."""

        def begun() -> list[str] | None:
            under_way: dict[int, tuple[int, str]] = {}
            for line in noted(self.mesh, LONG):
                token = line["facts"]["token"]
                if line["what"] == "started":
                    under_way[token] = (line["at_ns"], line["target"])
                else:
                    under_way.pop(token, None)
            at_ns, name = max(under_way.values(), default=(0, ""))
            fresh = boot_ns() - at_ns < _FRESH_NS
            return [name] if fresh and name in self.mesh.members() else None

        return wait_for(begun, "a worker is in the middle of a long run")


def noted(mesh: FaultMesh, jobs: Sequence[str]) -> list[Mapping[str, Any]]:
    """Gives what the runs of jobs have written about themselves."""
    found = []
    for job in jobs:
        path = mesh.shared / f"{job}.jsonl"
        if path.exists():
            whole = path.read_bytes().rpartition(b"\n")[0]
            found += [json.loads(line) for line in whole.splitlines()]
    return found


# Processes


def kill(title: str) -> Step:
    """Kills."""

    def step(stage: Stage) -> None:
        for member in stage.strike(title):
            stage.note("crash", member.name)
            stage.mesh.kill(member.name)

    return step


def hold_down(title: str) -> Step:
    """Kills, and nothing starts it again until the healing, or `let_up`."""

    def step(stage: Stage) -> None:
        for member in stage.strike(title):
            stage.note("crash", member.name, held=True)
            stage.mesh.hold_down(member.name)
            stage._held.add(member.name)

    return step


def let_up(title: str) -> Step:
    """Has it started again."""

    def step(stage: Stage) -> None:
        for name in stage.who(title):
            stage.mesh.let_up(name)
            stage._held.discard(name)

    return step


def pause(title: str) -> Step:
    """Suspends, until `go_on` or the healing."""

    def step(stage: Stage) -> None:
        for member in stage.strike(title):
            still = stage.mesh.pause(member.name)
            stage._paused[member.name] = still
            stage.note("sleep" if still else "suspend", member.name)

    return step


def go_on(title: str) -> Step:
    """Lets what was suspended go on."""

    def step(stage: Stage) -> None:
        for name in stage.who(title):
            still = stage._paused.pop(name, False)
            stage.note("wake" if still else "resume", name)
            stage.mesh.resume(name)

    return step


def restart(title: str) -> Step:
    """Stops each in turn with SIGTERM, and waits until it serves again."""

    def step(stage: Stage) -> None:
        for name in stage.who(title):
            stage.note("stop", name)
            stage.mesh.restart(name)
            wait_for(partial(stage.mesh.serves, name), f"{name} serves again")

    return step


def scale(role: Role, number: int) -> Step:
    """Makes it so many, until the healing."""

    def step(stage: Stage) -> None:
        before = of_role(stage.mesh, role)
        stage._sizes.setdefault(role, len(before))
        for name in before[number:]:
            stage.note("stop", name)
        stage.mesh.scale(role, number)
        wait_until_healthy(stage.mesh)

    return step


def kill_at_random(seconds: float, mean_s: float) -> Step:
    """Kills anybody, again and again, for so long."""

    def step(stage: Stage) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            role = stage.random.choice(list(Role))
            kill(stage.random.choice(of_role(stage.mesh, role) or [STORE]))(stage)
            stage._victims.clear()
            time.sleep(stage.random.expovariate(1 / mean_s))

    return step


def storm(seconds: float) -> Step:
    """Kills, suspends and cuts off anybody, at random, for so long."""

    def step(stage: Stage) -> None:
        rng = stage.random
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            name = rng.choice(of_role(stage.mesh, rng.choice(list(Role))) or [STORE])
            other = rng.choice([it for it in stage.mesh.names() if it != name])
            deeds = [[kill(name)], [pause(name), let_pass(rng.uniform(0.5, 6)), go_on(name)]]
            if Ability.NETWORK in stage.mesh.able:
                links = rng.choice(([cut(name, other)], [cut(name, other), cut(other, name)]))
                deeds += [[*links, let_pass(rng.uniform(0.5, 6)), heal_network]]
            for deed in rng.choice(deeds):
                deed(stage)
                stage._victims.clear()
            time.sleep(rng.expovariate(1.0))

    return step


# Network, disk, clock


def cut(source: str, target: str) -> Step:
    """Loses all that the one sends to the other, until the healing."""

    def step(stage: Stage) -> None:
        sources = [member.name for member in stage.strike(source)] or [source]
        targets = [member.name for member in stage.strike(target)] or [target]
        for one in sources:
            for other in targets:
                if one != other:
                    stage._cuts.add((one, other))
                    stage.note("cut", other, source=one)
                    stage.mesh.cut(one, other)

    return step


def isolate(title: str) -> Step:
    """Loses all that somebody sends to or is sent by anybody, until the healing."""

    def step(stage: Stage) -> None:
        for name, *_ in stage.strike(title):
            for other in [*(n for n in stage.mesh.names() if n != name), CLIENTS]:
                cut(name, other)(stage)
                cut(other, name)(stage)

    return step


def rough(title: str, *, delay_ms: int = 0, stalls: float = 0.0, resets: float = 0.0) -> Step:
    """Makes the network of somebody bad, until the healing."""

    def step(stage: Stage) -> None:
        for name in stage.who(title):
            stage.note("rough", name, delay_ms=delay_ms, stalls=stalls, resets=resets)
            stage.mesh.rough(name, delay_ms=delay_ms, stalls=stalls, resets=resets)

    return step


def heal_network(stage: Stage) -> None:
    """Lets everything through again."""
    stage.mesh.heal_network()
    for source, target in sorted(stage._cuts):
        stage.note("mend", target, source=source)
    stage._cuts.clear()


def fill_disk(stage: Stage) -> None:
    """Leaves no room on the store's disk, until `free_disk` or the healing."""
    stage._full = True
    stage.strike(STORE)
    stage.note("full_disk", STORE)
    stage.mesh.fill_disk()


def grow_until_refused(stage: Stage) -> None:
    """Creates large jobs until the store refuses what grows, which it must while it is full."""

    def refused() -> bool:
        large = PythonTask("faults-async", {"padding": "x" * _LARGE_CHARACTERS})
        name = f"{_FILLER}{len(stage._fillers)}"
        stage._fillers.append(name)
        with stage.load.client(timeout_s=10.0) as client:
            try:
                client.jobs.create(name, JobSpec(task=large))
            except SextonError:
                members = client.members().members
                return any(it.details.get("full") == "yes" for it in members)
        return False

    wait_for(refused, "the store refuses what grows")


def free_disk(stage: Stage) -> None:
    """Gives the room back; what is deleted before must be possible on a full disk."""
    with stage.load.client(timeout_s=10.0, retry_for_s=10.0) as client:
        for name in stage._fillers:
            with suppress(NotFound):
                client.jobs.delete(name)
    stage._fillers.clear()
    stage.mesh.free_disk()
    stage.note("emptied", STORE)
    stage._full = False


def skew(title: str, offset_s: float) -> Step:
    """Shifts somebody's wall clock, until the healing."""

    def step(stage: Stage) -> None:
        for name in stage.who(title):
            by_s = offset_s - stage._skewed.pop(name, 0.0)
            if offset_s:
                stage._skewed[name] = offset_s
            stage.note("jump", name, kind="clock", by_ns=int(by_s * 1e9))
            stage.mesh.skew_clock(name, offset_s)

    return step


# What is waited for


def let_pass(seconds: float) -> Step:
    """Lets the load go on for a time."""

    def step(_: Stage) -> None:
        time.sleep(seconds)

    return step


def until_replaced(title: str) -> Step:
    """Waits until another one leads than who did, and notes how long nobody else did."""

    def step(stage: Stage) -> None:
        victim = stage.victim(title)
        wait_for_leader(stage.mesh, victim.role, other_than=victim)
        stage.measured["takeover_s"] = (boot_ns() - stage.struck_ns) / 1e9

    return step


def until_back(title: str) -> Step:
    """Waits until it serves, in another life, and notes how long it did not."""

    def step(stage: Stage) -> None:
        victim = stage.victim(title)

        def back() -> bool:
            now = stage.mesh.members().get(victim.name)
            return now is not None and now != victim and stage.mesh.serves(victim.name)

        wait_for(back, f"{victim.name} serves again")
        stage.measured["takeover_s"] = (boot_ns() - stage.struck_ns) / 1e9

    return step


def still_the_same(title: str) -> Step:
    """Demands that whoever it was has lived through it."""

    def step(stage: Stage) -> None:
        victim = stage.victim(title)
        assert stage.mesh.members().get(victim.name) == victim, f"{victim.name} has not survived"

    return step
