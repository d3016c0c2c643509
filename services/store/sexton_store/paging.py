"""Page tokens of a scan: opaque, and bound to the query that they continue."""

from __future__ import annotations

import hashlib
import hmac

from sexton.errors import InvalidArgument

_DIGEST_BYTES = 8
"""Against mistakes, not against attackers: a forged token gives nothing that `start` does not."""


def make_token(start: bytes, end: bytes, last_key: bytes, *, reverse: bool) -> bytes:
    """Gives the token of the page that goes on behind `last_key`."""
    return _digest(start, end, last_key, reverse=reverse) + last_key


def continue_range(start: bytes, end: bytes, token: bytes, *, reverse: bool) -> tuple[bytes, bytes]:
    """Gives the range that is left after the pages so far.

    Raises `InvalidArgument` where the token is not one of this query.
    """
    digest, last_key = token[:_DIGEST_BYTES], token[_DIGEST_BYTES:]
    if not hmac.compare_digest(digest, _digest(start, end, last_key, reverse=reverse)):
        raise InvalidArgument(
            "page_token", token, "the next_page_token of a page with the same start, end, reverse"
        )
    return (start, last_key) if reverse else (last_key + b"\0", end)


def _digest(start: bytes, end: bytes, last_key: bytes, *, reverse: bool) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=b"sexton page")
    for part in (start, end, last_key):
        digest.update(len(part).to_bytes(4, "big") + part)
    digest.update(bytes([reverse]))
    return digest.digest()
