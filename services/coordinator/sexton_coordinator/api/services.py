"""Which services of the API a coordinator offers."""

from __future__ import annotations

from functools import partial

from google.protobuf import descriptor_pool

from sexton.v1.backfill_pb2_grpc import add_BackfillServiceServicer_to_server
from sexton.v1.dead_letter_pb2_grpc import add_DeadLetterServiceServicer_to_server
from sexton.v1.scheduler_pb2_grpc import (
    add_JobServiceServicer_to_server,
    add_MeshServiceServicer_to_server,
    add_RunServiceServicer_to_server,
)
from sexton_coordinator.api.rpc import (
    JOB_SERVICE,
    MESH_SERVICE,
    RUN_SERVICE,
    JobServicer,
    MeshServicer,
    RunServicer,
)
from sexton_coordinator.api.rpc_backfills import BACKFILL_SERVICE, BackfillServicer
from sexton_coordinator.api.rpc_dead_letters import DEAD_LETTER_SERVICE, DeadLetterServicer
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.api.starting import Leader, Starter
from sexton_coordinator.mesh import Mesh
from sexton_runtime.rpc.server import Service
from sexton_runtime.secrets import Role

_CALLERS = frozenset({Role.CLIENT, Role.MESH})
_READING = ("Get", "List", "Watch", "Explain", "Preview", "Forecast")
"""How calls begin that change nothing: they are open to the reader's secret too."""


class Api:
    """The API's services, and a part of the coordinator's lifecycle: stop it before the server."""

    def __init__(self, mesh: Mesh, leader: Leader) -> None:
        """`leader` answers what only a leader can, where this replica leads."""
        finder = RunFinder(mesh)
        starter = Starter(mesh, finder, leader)
        jobs = JobServicer(mesh, finder, starter)
        self._runs = RunServicer(mesh, finder, starter)
        servicers = (
            (JOB_SERVICE, partial(add_JobServiceServicer_to_server, jobs)),
            (RUN_SERVICE, partial(add_RunServiceServicer_to_server, self._runs)),
            (MESH_SERVICE, partial(add_MeshServiceServicer_to_server, MeshServicer(mesh))),
            (
                BACKFILL_SERVICE,
                partial(add_BackfillServiceServicer_to_server, BackfillServicer(mesh)),
            ),
            (
                DEAD_LETTER_SERVICE,
                partial(add_DeadLetterServiceServicer_to_server, DeadLetterServicer(mesh)),
            ),
        )
        self.services = tuple(
            Service(name, _CALLERS, add, reads_of(name)) for name, add in servicers
        )

    async def start(self) -> None:
        """Nothing: the services answer as soon as the server listens."""

    async def stop(self) -> None:
        """Ends open streams, so that the server need not wait for them."""
        await self._runs.stop()


def reads_of(service: str) -> frozenset[str]:
    """Gives the methods of a service that change nothing."""
    methods = descriptor_pool.Default().FindServiceByName(service).methods
    return frozenset(each.name for each in methods if each.name.startswith(_READING))
