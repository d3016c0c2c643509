"""What can be done to a mesh: one interface for local processes and for containers.

A mesh has members, each with a name: `store`, `queue-1`, `coordinator-2`, `worker-1`, ... The
network has one more name, `clients`: whoever uses `FaultMesh.client`. Nothing here judges; a fault
is done, and what must be true afterwards is asked of the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, unique
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from sexton import Client

CLIENTS: Final = "clients"
"""Those who call the API, as a name of the network."""
SETTINGS: Final = {
    "SEXTON_QUEUE_SESSION_MS": "8000",
    "SEXTON_STORE_WATCH_WINDOW_EVENTS": "5000",
}
"""The environment of every mesh. With the default session of 30 s nothing could be waited for; a
small window of changes is full before anybody looks for what grows, and watchers meet its end."""
PATIENCE_S: Final = 120.0
"""Nothing that is waited for takes longer on any machine; what does is a failure."""

T = TypeVar("T")


@unique
class Role(Enum):
    """What a member is."""

    STORE = "store"
    QUEUE = "queue"
    COORDINATOR = "coordinator"
    WORKER = "worker"


@unique
class Ability(Enum):
    """What not every kind of mesh can do, or not on every machine; scenarios say what they need."""

    NETWORK = "network"  # cut what one member sends to another
    ROUGH = "rough"  # delay, stalls and resets of connections
    DISK = "disk"  # the store's disk is small, and can be filled
    CLOCK = "clock"  # one member's wall clock can be shifted
    SCALE = "scale"  # workers and coordinators can be added and taken away


class Member(NamedTuple):
    """One of the mesh's processes or containers, as it now is."""

    name: str
    role: Role
    life: str
    """Another one after each start: a pid, or a container's id with its start."""


class Usage(NamedTuple):
    """What a member holds of the machine: what must stay flat."""

    resident_bytes: int
    descriptors: int
    threads: int


class FaultMesh(Protocol):
    """A mesh to which things are done.

    A member that dies is started again by its supervisor (or restart policy), unless it is held
    down. Every method returns when the thing is done, not when the mesh has got over it, and
    `AssertionError` says what did not come about within `PATIENCE_S`.
    """

    kind: str
    """`processes` or `containers`."""
    able: frozenset[Ability]
    shared: Path
    """A folder that tasks can write into under the path `tasks_folder`: their files are here."""
    tasks_folder: str
    """Where a task finds `shared`."""

    # Life

    def start(self) -> None:
        """Returns once it serves: two queues, three coordinators and two workers or more.

        The workers serve the queue `default`, allow shell commands, have imported `faults.tasks`
        as their app, and each has its name as FAULTS_WORKER in its environment. The store
        keeps its history.
        """
        ...

    def stop(self) -> None:
        """Ends it, and removes all that it made but its histories and logs. Idempotent."""
        ...

    def client(
        self, *, timeout_s: float = 5.0, retry_for_s: float = 0.0, history: Path | None = None
    ) -> Client:
        """Connects to the API, with the client secret; the caller closes it.

        Its calls are written into the history, where one is given.
        """
        ...

    # Who is there

    def names(self) -> Sequence[str]:
        """Gives the names of all members that are meant to run, those held down included."""
        ...

    def members(self) -> Mapping[str, Member]:
        """Gives those that run now (a suspended one does), by name."""
        ...

    def leader(self, role: Role) -> str | None:
        """Gives who leads now, by its health service `leader`; None: nobody says so.

        A member that does not answer within a second does not lead.
        """
        ...

    def serves(self, name: str) -> bool:
        """Tells whether a member is ready: by its health service, a worker by what members say."""
        ...

    # Processes

    def kill(self, name: str) -> None:
        """Sends SIGKILL to all that the member is; what it left running is its own affair."""
        ...

    def hold_down(self, name: str) -> None:
        """Kills it, and keeps it from being started again until `let_up`."""
        ...

    def let_up(self, name: str) -> None:
        """Lets a member that was held down be started."""
        ...

    def pause(self, name: str) -> bool:
        """Suspends it; tells whether all that it has started stands still with it.

        Of a process only itself does (SIGSTOP), as under a debugger: its shims go on. Of a
        container everything does, as when a machine sleeps.
        """
        ...

    def resume(self, name: str) -> None:
        """Lets a suspended member go on."""
        ...

    def restart(self, name: str) -> None:
        """Sends SIGTERM, waits until it has ended by itself, and sees that it is started again."""
        ...

    def scale(self, role: Role, number: int) -> None:
        """Makes it so many: new ones are started; of too many the last ones get SIGTERM."""
        ...

    # Network, disk, clock

    def cut(self, source: str, target: str) -> None:
        """From now on nothing that `source` sends reaches `target`, also on open connections.

        Nobody is told: packets vanish. Cut the other way round too, and they don't hear each
        other.
        """
        ...

    def rough(self, name: str, *, delay_ms: int, stalls: float, resets: float) -> None:
        """Makes the network of a member bad, both ways.

        What it sends and gets is late by up to `delay_ms`; with the probability `stalls` a piece
        waits as long as TCP takes to send it again (0.2 to 1.5 s); with `resets` its connection
        is reset instead.
        """
        ...

    def heal_network(self) -> None:
        """Takes back every `cut` and `rough`. Connections may go on, or have been given up."""
        ...

    def fill_disk(self) -> None:
        """Takes up all that is free on the store's disk, as another program would."""
        ...

    def free_disk(self) -> None:
        """Gives it back."""
        ...

    def skew_clock(self, name: str, offset_s: float) -> None:
        """Shifts a member's wall clock at once; 0 sets it right."""
        ...

    # What is left to read

    def store_history(self) -> Sequence[Path]:
        """Gives the store's history files, in their order, readable from here."""
        ...

    def store_bytes(self) -> int:
        """Gives the size of the store's data file."""
        ...

    def usage(self) -> Mapping[str, Usage]:
        """Gives what each member holds, its helpers (a worker's shims) not counted."""
        ...

    def said(self, name: str) -> str:
        """Gives the end of a member's log, for whoever reads a failure."""
        ...


def wait_for(found: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """Gives the first answer that is something."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"after {patience_s:g} s it is not so that {what}"
        time.sleep(0.05)


def of_role(mesh: FaultMesh, role: Role) -> list[str]:
    """Gives the names of a role's members that run, in order."""
    return sorted(name for name, member in mesh.members().items() if member.role is role)


def wait_for_leader(mesh: FaultMesh, role: Role, *, other_than: Member | None = None) -> str:
    """Waits until somebody leads, with another life than this one."""

    def leads() -> str | None:
        name = mesh.leader(role)
        member = mesh.members().get(name) if name is not None else None
        return name if member is not None and member != other_than else None

    return wait_for(leads, f"a {role.value} leads")


def wait_until_healthy(mesh: FaultMesh) -> None:
    """Waits until every member serves, and of each led role one leads."""
    for name in mesh.names():
        wait_for(partial(mesh.serves, name), f"{name} serves")
    for role in (Role.COORDINATOR, Role.QUEUE):
        wait_for_leader(mesh, role)
