"""The worker's side of the shim: commands are started through it and die with this process.

Runs in the control part's event loop and never blocks: all descriptors are non-blocking, and what
the files of an attempt cost is paid by its guard.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from sexton_core.instants import Instant
from sexton_worker.contract import KIB
from sexton_worker.output import Tail
from sexton_worker.shim import LENGTH, PAGE, PAGE_BYTES

MAX_RESULT_PIPE_BYTES: Final = 512 * KIB
"""Of what one process may say about its result; beyond this it counts as having said nothing."""

_READ_BYTES: Final = 64 * KIB
_RESTART_S: Final = 0.1
_SHIM: Final = Path(__file__).parents[1] / "shim.py"

_log = structlog.get_logger(__name__)


class GuardedCommand(NamedTuple):
    """A program to be started."""

    argv: Sequence[str]
    """The first is a path."""
    env: Mapping[str, str]
    cwd: str
    scratch: str = ""
    """A folder to be made for it and removed after it; empty: none."""
    stdin: str = ""
    on_line: Callable[[bytes], object] | None = None
    """Hears each line that the command writes to descriptor 3; None: there is none."""
    follow: Callable[[bytes], object] | None = None
    """Takes its output as it is written, and nothing at the end."""
    secrets: tuple[bytes, ...] = ()
    """Struck out of its output."""


class CommandEnd(NamedTuple):
    """How a command ended. Nothing that came of it is alive."""

    status: int
    """Exit status; negative: the signal that killed it."""
    problem: str
    """Why it could not be started, or is not known to have ended; empty: it was and has."""
    output_tail: str


class Guarded:
    """A command that is being executed."""

    def __init__(
        self,
        command: GuardedCommand,
        control: socket.socket,
        output: int,
        result: int | None,
        on_end: Callable[[CommandEnd], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = control
        self._on_end = on_end
        self._on_line = command.on_line
        self._tail = Tail(follow=command.follow, secrets=command.secrets)
        self._said = b""
        self._result = b""
        self._left = MAX_RESULT_PIPE_BYTES
        self._open = {control.fileno(), output} | ({result} if result is not None else set())
        body = json.dumps(
            {
                "argv": list(command.argv),
                "env": dict(command.env),
                "cwd": command.cwd,
                "scratch": command.scratch,
                "stdin": command.stdin,
            }
        ).encode()
        self._unsent = memoryview(LENGTH.pack(len(body)) + body)
        self._loop.add_reader(control.fileno(), self._read_control, control.fileno())
        self._loop.add_reader(output, self._read_output, output)
        if result is not None:
            self._loop.add_reader(result, self._read_result, result)
        self._send()

    def stop(self) -> None:
        """Asks its process group to end: SIGTERM."""
        self._request(b"T")

    def kill(self) -> None:
        """Kills it and everything that has come of it."""
        self._request(b"K")

    def _request(self, letter: bytes) -> None:
        if not self._unsent:
            with contextlib.suppress(OSError):
                self._socket.send(letter)
        elif letter == b"K":
            self._close(self._socket.fileno(), self._socket.close)  # has not been started yet

    def _send(self) -> None:
        fd = self._socket.fileno()
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = memoryview(b"")  # the reader finds the end
        if self._unsent:
            self._loop.add_writer(fd, self._send)
        else:
            self._loop.remove_writer(fd)

    def _read_control(self, fd: int) -> None:
        data = _read(fd)
        if data is None:
            return
        self._said += data
        if not data:
            self._loop.remove_writer(fd)
            self._close(fd, self._socket.close)

    def _read_output(self, fd: int) -> None:
        data = _read(fd)
        if data:
            self._tail.write(data)
        elif data is not None:
            self._close(fd, lambda: os.close(fd))

    def _read_result(self, fd: int) -> None:
        data = _read(fd)
        if data:
            self._left -= len(data)
            if self._left < 0:
                return
            *lines, self._result = (self._result + data).split(b"\n")
            for line in lines:
                assert self._on_line is not None
                self._on_line(line)
        elif data is not None:
            self._close(fd, lambda: os.close(fd))

    def _close(self, fd: int, close: Callable[[], object]) -> None:
        self._loop.remove_reader(fd)
        self._loop.remove_writer(fd)
        self._open.discard(fd)
        close()
        if not self._open:
            self._on_end(self._end())

    def _end(self) -> CommandEnd:
        word, _, rest = self._said.decode(errors="replace").strip().partition(" ")
        if word == "exited":
            return CommandEnd(int(rest), "", self._tail.text())
        problem = rest if word == "failed" else "its guard has been killed, and it with it"
        return CommandEnd(-1, problem, self._tail.text())


class ShimClient:
    """Starts the shim, starts commands through it, and tells it of the session."""

    def __init__(self, mark: str) -> None:
        """`mark`: what stands in the environment of processes that the worker starts itself."""
        self._mark = mark
        self._scratch = Path()
        self._page_fd = os.memfd_create("sexton-worker", os.MFD_CLOEXEC)
        os.ftruncate(self._page_fd, PAGE_BYTES)
        self._page = mmap.mmap(self._page_fd, PAGE_BYTES)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._requests: deque[tuple[int, ...]] = deque()
        self._stopping = False

    def start(self, scratch: Path) -> None:
        """Starts the shim; it removes the folder when this process has died."""
        self._scratch = scratch
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        arguments = (theirs.fileno(), self._page_fd, os.getpid(), self._mark, scratch)
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", str(_SHIM), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env={},
            pass_fds=(theirs.fileno(), self._page_fd),
            start_new_session=True,  # a Ctrl-C is for the worker, which drains
        )
        theirs.close()
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._on_control)

    def stop(self) -> None:
        """Lets go of the shim; it ends with this process. Idempotent."""
        self._stopping = True
        self._forget_control()
        if self._process is not None:
            self._process.returncode = 0  # it outlives this process, on purpose
            self._process = None

    def extend(self, end_at: Instant, dead_at: Instant) -> None:
        """Writes until when attempts, and this process, may live; 0: this process has no limit."""
        PAGE.pack_into(self._page, 0, end_at, dead_at)

    def run(self, command: GuardedCommand, on_end: Callable[[CommandEnd], object]) -> Guarded:
        """Starts a command; `on_end` is called once. Raises `OSError`: no descriptors are left."""
        with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
            ours, theirs = socket.socketpair()
            kept.callback(ours.close)
            given.callback(theirs.close)
            ours.setblocking(False)
            fds = [theirs.fileno()]
            read: list[int] = []
            for _ in range(1 if command.on_line is None else 2):
                reader, writer = os.pipe()
                kept.callback(os.close, reader)
                given.callback(os.close, writer)
                os.set_blocking(reader, False)
                read.append(reader)
                fds.append(writer)
            self._requests.append(tuple(os.dup(fd) for fd in fds))
            kept.pop_all()
        guarded = Guarded(command, ours, read[0], read[1] if len(read) > 1 else None, on_end)
        self._send_requests()
        return guarded

    def _send_requests(self) -> None:
        loop = asyncio.get_running_loop()
        if self._control is None:
            return
        while self._requests:
            fds = self._requests[0]
            try:
                socket.send_fds(self._control, [b"run"], fds)
            except BlockingIOError:
                loop.add_writer(self._control.fileno(), self._send_requests)
                return
            except OSError:
                return  # the shim has died: the reader starts another one
            self._requests.popleft()
            for fd in fds:
                os.close(fd)
        loop.remove_writer(self._control.fileno())

    def _on_control(self) -> None:
        """Finds that the shim has died, which it never does by itself: starts another one."""
        if self._stopping or self._process is None:
            return
        self._forget_control()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0)
        _log.error("The shim has been killed; another one is started.", action="restart_shim")
        asyncio.get_running_loop().call_later(_RESTART_S, self._restart)

    def _restart(self) -> None:
        if not self._stopping:
            self.start(self._scratch)
            self._send_requests()

    def _forget_control(self) -> None:
        if self._control is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._control.fileno())
            loop.remove_writer(self._control.fileno())
            self._control.close()
            self._control = None


def _read(fd: int) -> bytes | None:
    """Reads what is there; empty: the end; None: nothing yet."""
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
