"""Page tokens: opaque, and bound to the query that they continue."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Final

from sexton.errors import InvalidArgument

_DIGEST_BYTES: Final = 12
"""Against mistakes, not against attackers: where a page begins is bounded by its query."""

_MAX_TOKEN: Final = 2_048
_EXPECTED: Final = "the next_page_token of a page of the very same query, or none"


def make_token(query: Sequence[object], position: Sequence[str]) -> str:
    """Returns the token of the page that goes on behind `position`."""
    payload = json.dumps(list(position), separators=(",", ":")).encode()
    return urlsafe_b64encode(_digest(query, payload) + payload).decode()


def read_token(query: Sequence[object], token: str, lengths: Sequence[int]) -> list[str]:
    """Returns the position of a token that `make_token` gave for the same query.

    Args:
        query: everything that decides about what is listed.
        token: as it came from outside.
        lengths: how many parts a position may have.

    Raises:
        InvalidArgument: it is something else.

    """
    if not token.isascii() or len(token) > _MAX_TOKEN:
        raise InvalidArgument("page_token", token, _EXPECTED)
    try:
        data = urlsafe_b64decode(token)
    except (Base64Error, ValueError):
        raise InvalidArgument("page_token", token, _EXPECTED) from None
    digest, payload = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if not hmac.compare_digest(digest, _digest(query, payload)):
        raise InvalidArgument("page_token", token, _EXPECTED)
    try:
        position = json.loads(payload)
    except ValueError:
        position = None
    if (
        not isinstance(position, list)
        or len(position) not in lengths
        or not all(isinstance(part, str) for part in position)
    ):
        raise InvalidArgument("page_token", token, _EXPECTED)
    return position


def _digest(query: Sequence[object], payload: bytes) -> bytes:
    digest = hashlib.blake2b(
        len(payload).to_bytes(4, "big") + payload,
        digest_size=_DIGEST_BYTES,
        person=b"sexton-api-page",
    )
    digest.update(json.dumps(list(query), default=str).encode())
    return digest.digest()
