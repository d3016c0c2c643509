"""`sexton queues` and `sexton workers`: what waits, and who works it off."""

from __future__ import annotations

from typing import Annotated

import typer

from sexton_cli.commands._mesh_options import Api, Output, Watch, target_of
from sexton_cli.output import ListFormat, print_line

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.")]


def register(app: typer.Typer) -> None:
    """Registers both groups."""
    queues = typer.Typer(
        help="Look at queues; pause and resume them.", no_args_is_help=True, rich_markup_mode=None
    )
    queues.command("list")(list_queues)
    queues.command("pause")(pause)
    queues.command("resume")(resume)
    app.add_typer(queues, name="queues")
    workers = typer.Typer(
        help="Look at workers, and drain them.", no_args_is_help=True, rich_markup_mode=None
    )
    workers.command("list")(list_workers)
    workers.command("drain")(drain)
    app.add_typer(workers, name="workers")


def list_queues(api: Api = None, watch: Watch = False, output: Output = ListFormat.TABLE) -> None:
    """List the queues with a run in line or a worker, and those that are paused."""
    from sexton_cli.online import operating, session, watching  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        watching.show(lambda: operating.show_queues(client.mesh.queues(), output), watch=watch)


def pause(
    queue: QueueName,
    reason: Annotated[str, typer.Option(help="For people; it is shown with the queue.")] = "",
    api: Api = None,
) -> None:
    """Assign no further run of a queue, until it is resumed. Live runs go on."""
    from sexton_cli.online import operating, session  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        paused = client.mesh.pause_queue(queue, reason=reason)
        operating.show_queue(paused)
        operating.show_whether_unused(client, paused)


def resume(queue: QueueName, api: Api = None) -> None:
    """Assign runs of a queue again."""
    from sexton_cli.online import operating, session  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        operating.show_queue(client.mesh.resume_queue(queue))


def list_workers(api: Api = None, watch: Watch = False, output: Output = ListFormat.TABLE) -> None:
    """List the workers: what each serves, and how much it holds."""
    from sexton_cli.online import operating, session, watching  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        watching.show(lambda: operating.show_workers(client.mesh.workers(), output), watch=watch)


def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Its name, or its session.")],
    api: Api = None,
) -> None:
    """Have a worker give back what it has not begun, take nothing further, and end when done."""
    from sexton_cli.online import operating, session  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        found = operating.session_of(client.mesh.workers(), worker)
        client.mesh.drain(found)
        print_line(f"{found.name}: drains; runs that it holds: {found.running}")
