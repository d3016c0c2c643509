"""What a replica shows of itself: members, counters and gauges."""

from collections.abc import Callable, Mapping

from simulation.queue.mesh import Mesh
from simulation.queue.worker import Worker

from sexton_core.words import RunState
from sexton_queue.app import Queue
from sexton_runtime import semconv
from sexton_runtime.semconv import Instrument
from sexton_runtime.telemetry import Points, Telemetry


class Gauges(Telemetry):
    """Telemetry that can be read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: dict[str, Callable[[], Points]] = {}

    def counter(self, instrument: Instrument, read: Callable[[], Points]) -> None:
        self.reads[instrument.name] = read

    gauge = counter

    def shown(self, instrument: Instrument) -> list[tuple[float, Mapping[str, str]]]:
        return list(self.reads[instrument.name]())


def test_the_owner_shows_its_queues_and_what_it_has_done() -> None:
    async def scenario(mesh: Mesh) -> None:
        Worker(mesh, "worker", slots=2, lasts_s=5)
        job = await mesh.job()
        handles = await mesh.fire_many(job, 3)
        await mesh.begun(2)
        queue: Queue = mesh.queues["queue-1"]
        gauges = Gauges()
        queue._measure(gauges)
        default = {"messaging.destination.name": "default"}
        assert gauges.shown(semconv.QUEUE_READY) == [(1.0, default)]
        assert gauges.shown(semconv.QUEUE_RUNNING) == [(2.0, default)]
        assert gauges.shown(semconv.QUEUE_DELAYED) == [(0.0, default)]
        assert gauges.shown(semconv.QUEUE_SESSIONS) == [(1.0, {})]
        assert gauges.shown(semconv.QUEUE_OWNING) == [(1.0, {})]
        await mesh.until(handles[-1], job, RunState.SUCCEEDED)
        counted = {
            kind["sexton.kind"]: number for number, kind in gauges.shown(semconv.QUEUE_EVENTS)
        }
        assert (counted["assigned"], counted["completed"], counted["settled"]) == (3, 3, 3)

    Mesh(replicas=1).run(scenario)


def test_every_replica_is_listed_and_one_of_them_owns() -> None:
    async def scenario(mesh: Mesh) -> None:
        owner = await mesh.owner()
        names = [lease.name for lease in await mesh.store.list_leases("members/queue/")]
        assert len(names) == 2
        (lease,) = await mesh.store.list_leases("queue/")
        assert lease.name == "queue/000"
        assert lease.holder == mesh.queues[owner].keeper.holder

    Mesh().run(scenario)
