"""The commands, one module each.

To add one, write a module here with `register(app)` and put it into `_MODULES`. All modules are
imported for `sexton --help`, so what is heavy is imported inside the command's function.
"""

import typer

from sexton_cli.commands import apply as apply
from sexton_cli.commands import backup as backup
from sexton_cli.commands import bench as bench
from sexton_cli.commands import clock as clock
from sexton_cli.commands import console as console
from sexton_cli.commands import coordinator as coordinator
from sexton_cli.commands import dead as dead
from sexton_cli.commands import demo as demo
from sexton_cli.commands import doctor as doctor
from sexton_cli.commands import health as health
from sexton_cli.commands import history as history
from sexton_cli.commands import jobs as jobs
from sexton_cli.commands import preview as preview
from sexton_cli.commands import queue as queue
from sexton_cli.commands import queues as queues
from sexton_cli.commands import runs as runs
from sexton_cli.commands import schema as schema
from sexton_cli.commands import secrets as secrets
from sexton_cli.commands import simulate as simulate
from sexton_cli.commands import store as store
from sexton_cli.commands import top as top
from sexton_cli.commands import up as up
from sexton_cli.commands import verify as verify
from sexton_cli.commands import worker as worker

_MODULES = (
    *(up, top, apply, jobs, runs, dead, queues),
    *(preview, simulate, schema, demo),
    *(store, queue, coordinator, worker, console),
    *(health, secrets, doctor, backup, clock, bench),
    *(history, verify),
)


def register(app: typer.Typer) -> None:
    """Registers every command, in the order in which the help shows them."""
    for module in _MODULES:
        module.register(app)
