"""Histories: what clients asked and were told, and what tasks did, for `sexton verify`.

A history is a file of JSON lines that many may write at once, each line with one write. A client
writes its calls where `SEXTON_HISTORY` names a file, or where it is given one; a task's own code
writes what it does with `noted`. docs/verify.md describes every line.

Times are CLOCK_BOOTTIME, which goes on while the machine sleeps and never jumps.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from sexton.context import Context
from sexton.errors import InvalidArgument

VARIABLE: Final = "SEXTON_HISTORY"
_ASKED: Final = (
    "name",
    "request_id",
    "mode",
    "overlap",
    "parent",
    "validate_only",
    "queue",
    "paused",
    "session",
)
"""Of a request, besides a digest of the whole."""


class HistoryFile:
    """Appends lines to a history. Safe in threads, and beside other processes.

    Each line is written with one system call, so that a process that is killed leaves whole lines
    behind it. With `sync` each is on the disk before the call returns.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = False) -> None:
        """Opens the file, or makes it, readable by this user only.

        Raises:
            OSError: it can't be opened.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._sync = sync
        self._lock = threading.Lock()
        self._boot = {"boot_id": boot_id()} if boot_id() else {}
        self.process = f"{socket.gethostname()}/{os.getpid()}"

    def write(self, kind: str, **entry: Any) -> None:
        """Appends a line of a kind: `op`, `exec`, `fault` or `clock`."""
        line = {"kind": kind, "at_ns": boot_ns(), **entry, **self._boot}
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            os.write(self._fd, data)
            if self._sync:
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Closes the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class CallHistory:
    """Writes a client's calls: invoked, then at most one of ok, fail and unknown."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file
        self._prefix = os.urandom(6).hex()
        self._calls = 0
        self._lock = threading.Lock()

    def invoke(self, call: str, request: Any) -> str:
        """A call begins; gives its number."""
        with self._lock:
            self._calls += 1
            number = f"{self._prefix}-{self._calls}"
        self._op(number, "invoke", process=self._file.process, call=call, args=asked(request))
        return number

    def ok(self, number: str, answer: Any) -> None:
        """It was answered."""
        self._op(number, "ok", result=answered(answer))

    def fail(self, number: str, error: Exception) -> None:
        """It failed, and nothing happened."""
        self._op(number, "fail", result={"error": f"{type(error).__name__}: {error}"})

    def unknown(self, number: str, error: BaseException) -> None:
        """Nobody knows whether it happened, or will."""
        self._op(number, "unknown", result={"error": f"{type(error).__name__}: {error}"})

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._file.close()

    def _op(self, number: str, phase: str, **entry: Any) -> None:
        self._file.write("op", phase=phase, id=number, **entry)


def calls_of(
    path: str | os.PathLike[str] | None, environment: Mapping[str, str] | None = None
) -> CallHistory | None:
    """Opens the history of a client: the file that it is given, or that `SEXTON_HISTORY` names.

    Raises:
        InvalidArgument: the file can't be opened.
    """
    given = os.environ if environment is None else environment
    named = path if path is not None else given.get(VARIABLE)
    if not named:
        return None
    try:
        return CallHistory(HistoryFile(named))
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        raise InvalidArgument("history", os.fspath(named), expected) from None


@contextlib.contextmanager
def noted(context: Context, path: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Notes that an attempt began, and how it ended; each note is on the disk before it goes on.

    Without `path` the notes go where `SEXTON_HISTORY` names a file in the worker's environment;
    without either nothing is noted.

    >>> @task("backup")
    ... def backup(context: Context) -> None:
    ...     with noted(context, "/var/tmp/backup.jsonl"):
    ...         save_everything()
    """
    named = path if path is not None else os.environ.get(VARIABLE)
    if not named:
        yield
        return
    file = HistoryFile(named, sync=True)
    facts = {
        "namespace": context.namespace,
        "job": context.job,
        "run": context.run_id,
        "number": context.attempt,
        "token": context.token,
    }
    try:
        file.write("exec", what="started", target=file.process, facts=facts)
        how = "failed"
        try:
            yield
            how = "succeeded"
        finally:
            file.write("exec", what="ended", target=file.process, facts={**facts, "how": how})
    finally:
        file.close()


def asked(request: Any) -> dict[str, Any]:
    """Gives what of a request a history keeps: names, and a digest of the whole."""
    body = request.SerializeToString(deterministic=True)
    facts: dict[str, Any] = {"body": blake2b(body, digest_size=8).hexdigest()}
    for field in _ASKED:
        if getattr(request, field, None):
            facts[field] = getattr(request, field)
    if "job" in request.DESCRIPTOR.fields_by_name and hasattr(request.job, "name"):
        facts["name"] = request.job.name
    return facts


def answered(answer: Any) -> dict[str, Any]:
    """Gives what of an answer a history keeps: names, ids, states."""
    fields = answer.DESCRIPTOR.fields_by_name
    if {"run", "decision", "reason"} <= {*fields}:
        return {"run": answer.run.name, "decision": answer.decision, "reason": answer.reason}
    if "requeued" in fields:
        return {"requeued": [[one.run, one.new_run, one.reason] for one in answer.requeued]}
    if "backfill" in fields:
        it = answer.backfill
        return {"backfill": it.name, "uid": it.job_uid, "state": it.state}
    if "queue" in fields:
        return {"queue": answer.queue.name, "paused": answer.queue.paused}
    if "runs" in fields:
        return {"runs": [[run.name, run.job_uid, run.state] for run in answer.runs]}
    listed = fields["jobs"].message_type if "jobs" in fields else None
    if listed is not None and "change" in listed.fields_by_name:
        return {"jobs": [[one.job.name, one.job.uid, one.change] for one in answer.jobs]}
    if listed is not None:
        return {"jobs": [[job.name, job.uid, job.version] for job in answer.jobs]}
    if "job" in fields:
        job = answer.job
        return {"name": job.name, "uid": job.uid, "version": job.version, "paused": job.paused}
    if "run" in fields:
        return {"run": answer.run.name, "uid": answer.run.job_uid, "state": answer.run.state}
    return {}


def boot_ns() -> int:
    """Gives the time since the machine's boot, its sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Identifies the machine's boot; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
