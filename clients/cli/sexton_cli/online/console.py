"""The console of a mesh: where it is, who is let in, and what commands ask it."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sexton import local_mesh
from sexton._settings import settings
from sexton_cli.errors import NotFound, Refused, Unavailable, UsageError
from sexton_cli.output import print_line
from sexton_console.web.sessions import make_ticket

VARIABLE: Final = "SEXTON_CONSOLE"
_TIMEOUT_S: Final = 10.0
_FOLLOW_S: Final = 60.0
"""A stream that is silent for so long is given up: the console says more often that it is there."""


class Console(NamedTuple):
    """A console, as commands ask it."""

    url: str
    """`http://host:port`."""
    secret: str

    def get(self, path: str) -> Any:
        """Gives what the console answers, as JSON; None where it does not answer or have it."""
        try:
            with self._open(path, _TIMEOUT_S) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Gives JSON lines as they come.

        Raises:
            Unavailable: the console does not answer, or breaks off.
        """
        try:
            with self._open(path, _FOLLOW_S) as answer:
                for line in answer:
                    if line.strip():  # else the console says that it is still there
                        yield json.loads(line)
        except (OSError, ValueError) as error:
            raise Unavailable(f"the console at {self.url} does not answer: {error}") from None

    def _open(self, path: str, timeout_s: float) -> Any:
        headers = {"authorization": f"Bearer {self.secret}"} if self.secret else {}
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310 - http or https
        return urllib.request.urlopen(request, timeout=timeout_s)  # noqa: S310 - http or https


def find_console(url: str | None, api: str | None) -> Console | None:
    """Gives the console that is named, or that of the mesh on this machine; None: there is none.

    Raises:
        UsageError: it is no address.
    """
    local = local_mesh.find()
    named = url or os.environ.get(VARIABLE, "")
    if not named and (local is None or not local.console or api):
        return None
    chosen = (named or (local.console if local is not None else "")).rstrip("/")
    if not chosen.startswith(("http://", "https://")):
        raise UsageError(f"--console: {chosen!r} can't be used; expected http://HOST:PORT")
    found = settings(api)
    return Console(chosen, found.secret_for(found.addresses[0]))


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
        secret = mesh.client_secret_file.read_text(encoding="ascii").partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        raise Refused(f"{mesh.client_secret_file}: {error}") from None
    return f"{mesh.console}/login?ticket={make_ticket(secret, time.time())}"
