"""`sexton store`: runs a store in the foreground, exactly as `python -m sexton_store` does.

`sexton store status` asks a running mesh how its store is.
"""

from __future__ import annotations

import typer

from sexton_cli.commands._mesh_options import Api, Output, Watch, target_of
from sexton_cli.output import ListFormat

_STATUS = "status"


def register(app: typer.Typer) -> None:
    """Adds the command. Its flags, `--help` included, are the store's own."""
    app.command(
        "store",
        help="Run a store: sexton store --data DIR. With `status`: tell how that of a running mesh "
        "is, and who holds its leases.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(store)


def store(context: typer.Context) -> None:
    """Passes the command line on and ends with the store's exit code."""
    if context.args[:1] == [_STATUS]:
        asking = typer.Typer(add_completion=False, rich_markup_mode=None)
        asking.command()(status)
        asking(context.args[1:], prog_name="sexton store status", standalone_mode=False)
        return
    from sexton_store.__main__ import main  # noqa: PLC0415 - half a second that no other needs

    raise typer.Exit(main(context.args, program="sexton store"))


def status(api: Api = None, watch: Watch = False, output: Output = ListFormat.TABLE) -> None:
    """Tell how the store of a running mesh is, and who holds its leases."""
    from sexton_cli.online import operating, session, watching  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        watching.show(lambda: operating.show_store(client.mesh.store(), output), watch=watch)
