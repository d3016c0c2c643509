"""The console of a mesh: where it is, and how a browser or a command is let in."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sexton import local_mesh
from sexton_cli.errors import NotFound, Refused, UsageError
from sexton_cli.output import print_line
from sexton_console.web.sessions import make_ticket


def print_link(arguments: Sequence[str]) -> None:
    """Prints a link that logs a browser in, once, within minutes.

    Raises:
        NotFound: no mesh of this machine has a console.
    """
    if arguments:
        raise UsageError(f"sexton console link takes no arguments; {arguments[0]!r} was given")
    mesh = local_mesh.find()
    if mesh is None or not mesh.console:
        raise NotFound("no mesh with a console runs on this machine; start one with `sexton up`")
    print_line(login_link(mesh))


def login_link(mesh: local_mesh.LocalMesh) -> str:
    """Gives a link that logs a browser in, once, within minutes.

    Raises:
        Refused: the client secret can't be read.
    """
    try:
        secret = mesh.client_secret_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise Refused(f"{mesh.client_secret_file}: {error}") from None
    return f"{mesh.console}/login?ticket={make_ticket(secret, time.time())}"
