"""How a store client behaves: bounds and times, frozen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreClientConfig:
    """Bounds and times of a `StoreClient`; the defaults suit every service of a mesh."""

    read_timeout_s: float = 10.0
    """A read, its repeats included, raises `DeadlineExceeded` after this."""
    lease_timeout_s: float = 5.0
    """One lease call without an answer is given up after this. Holders give less."""
    commit_timeout_s: float = 10.0
    """A commit whose caller names no time is given up after this."""
    watch_idle_s: float = 20.0
    """A watch that brings not even progress for this long is broken; the store tells its
    progress every few seconds."""
    pace_s: float = 0.002
    """Least time between two small commit messages: cost is messages per second."""
    full_bytes: int = 64 * 1024
    """A message that has gathered this much goes without pace: its cost is its content."""
    max_outstanding: int = 2
    """Commit messages without an answer: one is being made durable, one waits behind it."""
    max_waiting_callers: int = 10_000
    """Callers that wait to be sent; one more is `Overloaded`."""
    max_waiting_txns: int = 50_000
    """Transactions that wait to be sent; more are `Overloaded`."""
    max_waiting_bytes: int = 64 * 1024 * 1024
    """Keys and values that wait to be sent; more are `Overloaded`."""
    reconnect_first_s: float = 0.05
    """First pause before a broken stream is opened again; doubled up to `reconnect_max_s`."""
    reconnect_max_s: float = 1.0
    """Longest such pause."""
