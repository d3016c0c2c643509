"""`sexton clock`: how mesh time stands to the store's wall clock, and settling a dispute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli.commands._store_call import StoreAddress, call_store
from sexton_cli.errors import Refused
from sexton_cli.output import Format, Output, print_data, print_line

if TYPE_CHECKING:
    from sexton.internal.v1 import store_pb2
    from sexton.internal.v1.store_pb2_grpc import StoreServiceAsyncStub

_MEANINGS = {
    "STEADY": "mesh time follows the wall clock",
    "DISPUTED": "the wall clock is elsewhere; mesh time goes on steadily until it is accepted",
    "FOLLOWING": "an accepted wall clock lies behind; mesh time goes at half speed until then",
}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    clock = typer.Typer(
        help="Look at mesh time; settle a dispute with the store's wall clock.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    clock.command("status")(status)
    clock.command("accept")(accept)
    app.add_typer(clock, name="clock")


def status(store: StoreAddress = None, output: Output = Format.TABLE) -> None:
    """Show mesh time, the store's wall clock, and how they stand."""
    _show(call_store(store, _read), output)


def accept(
    dispute: Annotated[
        int, typer.Argument(min=1, help="Number of the dispute, as `status` shows it.")
    ],
    store: StoreAddress = None,
    output: Output = Format.TABLE,
) -> None:
    """Let mesh time follow the wall clock: look at it with `status` first.

    Forward it jumps at once, and what became due is caught up; back it never goes: it runs at half
    speed until the wall clock has reached it.
    """

    async def settle(stub: StoreServiceAsyncStub) -> store_pb2.GetClockResponse:
        from sexton.internal.v1 import store_pb2  # noqa: PLC0415 - heavy

        if not (await _read(stub)).dispute:
            raise Refused(f"there is no dispute {dispute}, and no other: see `sexton clock status`")
        return (await stub.AcceptClock(store_pb2.AcceptClockRequest(dispute=dispute))).clock

    _show(call_store(store, settle), output)


async def _read(stub: StoreServiceAsyncStub) -> store_pb2.GetClockResponse:
    from sexton.internal.v1 import store_pb2  # noqa: PLC0415 - heavy

    return await stub.GetClock(store_pb2.GetClockRequest())


def _show(clock: store_pb2.GetClockResponse, output: Format) -> None:
    from sexton.internal.v1 import store_pb2  # noqa: PLC0415 - heavy
    from sexton_core.instants import format_instant  # noqa: PLC0415

    state = store_pb2.ClockState.Name(clock.state).removeprefix("CLOCK_STATE_")
    if state not in _MEANINGS:
        raise Refused(f"the store's clock is in a state that this version does not know: {state}")
    ahead_ms = (clock.wall_time_ns - clock.mesh_time_ns) / 1_000_000
    data = {
        "state": state,
        "dispute": clock.dispute,
        "mesh_time_ns": clock.mesh_time_ns,
        "wall_time_ns": clock.wall_time_ns,
    }
    if print_data(data, output):
        return
    print_line(f"mesh time   {format_instant(clock.mesh_time_ns)}")
    print_line(f"wall clock  {format_instant(clock.wall_time_ns)} ({ahead_ms:+.1f} ms)")
    print_line(f"state       {state}: {_MEANINGS[state]}")
    if state == "DISPUTED":
        print_line(f"to settle   sexton clock accept {clock.dispute}")
