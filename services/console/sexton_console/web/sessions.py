"""Who may look, and who may act: sessions in a signed cookie, and tokens against forged forms.

A session is `role.expiry.nonce.signature`, signed with a key that is made of the mesh's client
secret: it survives a restart of the console and ends when that secret is accepted no longer.
Nothing of it is stored. A ticket is a login for one use within minutes, for a link that a terminal
prints. Which were used is known to the process alone, so it takes none from before its own start.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sexton_runtime.secrets import AnySecret, Secret

COOKIE: Final = "sexton_session"
SESSION_S: Final = 7 * 86_400
"""How long a login lasts."""
TICKET_S: Final = 900
"""How long a printed link lets in."""
_MAX_USED: Final = 10_000
"""Tickets that are remembered as used; older ones have run out long before."""
_NONCE_BYTES: Final = 12


class Access(StrEnum):
    """What a session lets do."""

    OPERATOR = "operator"
    """Everything that the API lets its clients do."""
    READER = "reader"
    """Looking only."""


@dataclass(frozen=True, slots=True)
class Session:
    """A browser, or a program, that is known."""

    access: Access
    nonce: str
    """What the tokens of its forms are made of; empty: a program, which has no forms."""

    @property
    def may_act(self) -> bool:
        """Tells whether it may change anything."""
        return self.access is Access.OPERATOR


class Sessions:
    """Makes and reads sessions."""

    def __init__(
        self,
        client_secret: AnySecret,
        reader_secret: AnySecret,
        *,
        read_only: bool,
        started_s: float = 0.0,
    ) -> None:
        """With no secret at all everybody who reaches the console is let in.

        `started_s`: wall time since when used tickets are remembered; none from before is taken.
        """
        self._client_secret = Secret.of(client_secret)
        self._reader_secret = Secret.of(reader_secret)
        self._signing = self._client_secret or self._reader_secret
        self._key_of_nobody: Final = secrets.token_bytes(32)
        self.open: Final = not self._signing
        self._read_only = read_only or (bool(reader_secret) and not client_secret)
        self._started_s = int(started_s)
        self._used: OrderedDict[str, None] = OrderedDict()

    def access_of(self, secret: str) -> Access | None:
        """Gives what a secret lets do; None: it is none of ours."""
        # All are compared, so that the time taken tells nothing about any.
        client = _among(secret, self._client_secret.look())
        reader = _among(secret, self._reader_secret.look())
        if client:
            return self._bounded(Access.OPERATOR)
        return Access.READER if reader else None

    def begin(self, access: Access, now_s: float) -> str:
        """Gives the cookie of a new session."""
        body = f"{access.value}.{int(now_s) + SESSION_S}.{secrets.token_hex(_NONCE_BYTES)}"
        return f"{body}.{self._sign('session', body)}"

    def read(self, cookie: str, now_s: float) -> Session | None:
        """Gives the session of a cookie; None where it is none, or over."""
        body, _, signature = cookie.rpartition(".")
        parts = body.split(".")
        if len(parts) != 3 or not self._signed(signature, "session", body):
            return None
        access, expiry, nonce = parts
        if not expiry.isdecimal() or int(expiry) < now_s:
            return None
        return Session(self._bounded(Access(access)), nonce)

    def of_secret(self, secret: str) -> Session | None:
        """Gives the session of a program that sends the secret itself."""
        access = self.access_of(secret)
        return None if access is None else Session(access, "")

    def everybody(self) -> Session:
        """Gives the session of whoever comes, where no secret is set."""
        return Session(self._bounded(Access.OPERATOR), "everybody")

    def use_ticket(self, ticket: str, now_s: float) -> Access | None:
        """Gives what a ticket lets do, once; None where it is none, used or over."""
        body, _, signature = ticket.rpartition(".")
        expiry, _, nonce = body.partition(".")
        if self.open or not self._signed(signature, "ticket", body):
            return None
        if not expiry.isdecimal() or int(expiry) < now_s or nonce in self._used:
            return None
        if int(expiry) - TICKET_S < self._started_s:
            return None  # another process before this one may have taken it
        self._used[nonce] = None
        if len(self._used) > _MAX_USED:
            self._used.popitem(last=False)
        return self._bounded(Access.OPERATOR)

    def form_token(self, session: Session) -> str:
        """Gives what a form of this session must carry."""
        return self._sign("form", session.nonce)

    def form_is_ours(self, session: Session, token: str) -> bool:
        """Tells whether a form comes from a page that this session was shown."""
        return bool(session.nonce) and self._signed(token, "form", session.nonce)

    def _sign(self, purpose: str, body: str) -> str:
        return _sign(self._keys()[0], purpose, body)

    def _signed(self, signature: str, purpose: str, body: str) -> bool:
        return sum(_same(signature, _sign(key, purpose, body)) for key in self._keys()) > 0

    def _keys(self) -> list[bytes]:
        """Gives the key with which is signed, and those of older secrets that are accepted on."""
        return [session_key(line) for line in self._signing.lines] or [self._key_of_nobody]

    def _bounded(self, access: Access) -> Access:
        return Access.READER if self._read_only else access


def session_key(client_secret: str) -> bytes:
    """Gives the key of sessions and tickets."""
    return hmac.digest(client_secret.encode(), b"sexton console sessions", "sha256")


def make_ticket(client_secret: str, now_s: float) -> str:
    """Makes a ticket; whoever holds the client secret can."""
    body = f"{int(now_s) + TICKET_S}.{secrets.token_hex(_NONCE_BYTES)}"
    return f"{body}.{_sign(session_key(client_secret), 'ticket', body)}"


def _sign(key: bytes, purpose: str, body: str) -> str:
    return hmac.new(key, f"{purpose}:{body}".encode(), hashlib.sha256).hexdigest()


def _among(secret: str, lines: Iterable[str]) -> bool:
    return sum(_same(secret, line) for line in lines) > 0


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
