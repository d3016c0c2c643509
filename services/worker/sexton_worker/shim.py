"""The shim: a small process beside the worker that kills what the worker started.

Run as a script of its own by `executors/guard.py`; imports nothing of ours. The worker starts one
shim; for each attempt the shim forks a *guard*, which starts the command in a session of its own,
and kills everything that has come of it when

- the command has ended (what it left behind goes too),
- the worker says so,
- the worker has died, however (its end of the socket is closed, its pidfd is ready), or
- the worker's session is no longer to be trusted: a shared page holds the boot time up to which it
  is. A worker that is stopped (SIGSTOP) or cut off no longer moves it.

Guards and shim are subreapers: a process that leaves its group, session or parent becomes a child
of its guard when its parent dies, and of the shim when the guard does, so it is found and killed.
Two more rules for what the worker itself started by other means, from Python code: when the worker
has died, everything that carries its mark in its environment is killed; and when the page names a
time by which the worker itself must be dead, it is killed then.

Not possible: to kill a process of another user (setuid programs), one that has been handed to a
process outside (systemd-run, docker, at), or one in uninterruptible sleep; the last is waited for.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
from contextlib import suppress

PAGE_BYTES = 4096
PAGE = struct.Struct("=qq")
"""Boot time from which attempts must be dead, and from which the worker must be; 0: none is set."""
RESULT_FD = 3
"""Where a command finds the pipe for its result, if it has one."""
LENGTH = struct.Struct("=I")

_READ_BYTES = 4096
_LONGEST_POLL_MS = 250
"""A poll counts awake time, the page's times are real time: the machine may have been suspended."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
_STOP_REQUEST = b"T"
_KILL_REQUEST = b"K"
_RESET = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGCHLD")

_libc = ctypes.CDLL(None, use_errno=True)


class Shim:
    """The process that forks guards."""

    def __init__(
        self, control: socket.socket, page: mmap.mmap, worker: int, mark: bytes, scratch: str
    ) -> None:
        self._scratch = scratch
        self._control = control
        self._page = page
        self._worker = worker
        self._mark = mark
        self._guards: set[int] = set()
        self._strays = False
        self._worker_fd = _open_pidfd(worker)

    def run(self) -> None:
        """Serves the worker until it has died, and then sees to it that nothing is left."""
        wake = _wake_on_children()
        poller = select.poll()
        for fd in (self._control.fileno(), wake, self._worker_fd):
            if fd is not None:
                poller.register(fd, select.POLLIN)
        while os.getppid() == self._worker:
            ready = dict(poller.poll(_LONGEST_POLL_MS))
            if wake in ready:
                os.read(wake, _READ_BYTES)
            self._reap()
            self._watch_worker()
            if self._control.fileno() in ready and not self._serve():
                poller.unregister(self._control)
        self._clear_up()

    def _serve(self) -> bool:
        """Takes one request; tells whether the worker can still make any."""
        data, fds, _, _ = socket.recv_fds(self._control, 16, 3, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self._control.close()
                Guard(fds, self._page, self._worker_fd).run()
                status = 0
            finally:
                os._exit(status)
        self._guards.add(pid)
        for fd in fds:
            os.close(fd)
        return True

    def _watch_worker(self) -> None:
        _, dead_at = PAGE.unpack_from(self._page)
        if dead_at and _boot_ns() >= dead_at:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)

    def _reap(self) -> None:
        """Forgets guards that have ended, and kills what one that was killed left behind."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                self._strays |= ended[0] in self._guards and ended[1] != 0
                self._guards.discard(ended[0])
        if self._strays:
            mine = _children().get(os.getpid(), ())
            strays = [pid for pid in mine if pid not in self._guards and _kill(pid)]
            self._strays = bool(strays)

    def _clear_up(self) -> None:
        """Kills what has the worker's mark, waits for the guards, removes the worker's folder."""
        pause = _FIRST_PAUSE_S
        while True:
            marked = [pid for pid in _marked(self._mark) if _kill(pid)]
            self._reap()
            if not marked and not self._guards and not self._strays:
                shutil.rmtree(self._scratch, ignore_errors=True)
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


class Guard:
    """The process that starts one command and outlives it and all that comes of it."""

    def __init__(self, fds: list[int], page: mmap.mmap, worker_fd: int | None) -> None:
        self._socket = socket.socket(fileno=fds[0])
        self._output = fds[1]
        self._result = fds[2] if len(fds) > 2 else None
        self._page = page
        self._worker_fd = worker_fd
        self._child = 0
        self._status: int | None = None
        self._scratch = ""

    def run(self) -> None:
        """Runs the command to its end; says `exited STATUS` or `failed REASON` on the socket."""
        _become_subreaper()
        wake = _wake_on_children()
        request = self._read_request()
        if request is None:
            return
        try:
            self._start(request)
        except OSError as error:
            self._say(f"failed {error.filename or 'the command'}: {error.strerror}")
        else:
            self._close_pipes()
            self._wait(wake)
            self._kill_all()
            if self._status is None:
                self._say("failed it could not be killed: it belongs to another user")
            else:
                self._say(f"exited {os.waitstatus_to_exitcode(self._status)}")
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _read_request(self) -> dict[str, object] | None:
        with self._socket.makefile("rb") as reader:
            head = reader.read(LENGTH.size)
            if len(head) < LENGTH.size:
                return None
            body = reader.read(LENGTH.unpack(head)[0])
        return json.loads(body) if body else None

    def _start(self, request: dict[str, object]) -> None:
        """Starts the command. Raises `OSError` where it can't be."""
        if request["scratch"]:
            os.mkdir(str(request["scratch"]), 0o700)
            self._scratch = str(request["scratch"])
        reader, writer = os.pipe()
        guard = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            try:
                self._become(request, guard)
            except OSError as error:
                os.write(writer, f"{error.errno} {error.filename or ''}".encode(errors="replace"))
            finally:
                os._exit(127)
        os.close(writer)
        with os.fdopen(reader, "rb") as said:
            failure = said.read().decode(errors="replace")
        if failure:
            os.waitpid(self._child, 0)
            number, _, name = failure.partition(" ")
            raise OSError(int(number), os.strerror(int(number)), name)

    def _become(self, request: dict[str, object], guard: int) -> None:
        """Turns this process into the command."""
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(127)
        result = None if self._result is None else os.dup(self._result)
        os.dup2(_given(str(request["stdin"])), 0)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        if result is not None:
            os.dup2(result, RESULT_FD)
        for name in _RESET:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.chdir(str(request["cwd"]))
        argv = request["argv"]
        env = request["env"]
        assert isinstance(argv, list)
        assert isinstance(env, dict)
        os.execve(argv[0], argv, env)  # noqa: S606 - what it is for

    def _close_pipes(self) -> None:
        os.close(self._output)
        if self._result is not None:
            os.close(self._result)

    def _wait(self, wake: int) -> None:
        """Waits until the command has ended or is to be killed."""
        poller = select.poll()
        for fd in (self._socket.fileno(), wake, self._worker_fd):
            if fd is not None:
                poller.register(fd, select.POLLIN)
        while True:
            ready = dict(poller.poll(_LONGEST_POLL_MS))
            if wake in ready:
                os.read(wake, _READ_BYTES)
            self._reap()
            end_at, _ = PAGE.unpack_from(self._page)
            if self._status is not None or _boot_ns() >= end_at or self._worker_fd in ready:
                return
            if self._socket.fileno() in ready:
                asked = self._socket.recv(16)
                if not asked or _KILL_REQUEST in asked:
                    return
                if _STOP_REQUEST in asked:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._child, signal.SIGTERM)

    def _reap(self) -> bool:
        """Buries the dead; tells whether there are other children."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._child:
                    self._status = status
        except ChildProcessError:
            return False

    def _kill_all(self) -> None:
        """Kills all descendants, and those that they make meanwhile, until none is left."""
        pause = _FIRST_PAUSE_S
        if self._status is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
        while self._reap():
            tree = _children()
            victims, found = list(tree.get(os.getpid(), ())), 0
            while found < len(victims):
                victims += tree.get(victims[found], ())
                found += 1
            if victims and not [pid for pid in victims if _kill(pid)]:
                return  # all of them belong to somebody else
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _say(self, line: str) -> None:
        with suppress(OSError):
            self._socket.sendall(line.replace("\n", " ").encode(errors="replace") + b"\n")


def _kill(pid: int) -> bool:
    """Kills a process; tells whether it could be."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _children() -> dict[int, list[int]]:
    """Gives the children of every process."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
            # The name in the middle, in brackets, may hold anything.
            parent = int(file.read().rpartition(b")")[2].split()[1])
            found.setdefault(parent, []).append(int(entry))
    return found


def _marked(mark: bytes) -> list[int]:
    """Gives the living processes that carry the mark in the environment they were started with."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                found.append(int(entry))
    return found


def _given(text: str) -> int:
    """Makes a file to be read from its start that holds the text; without one, /dev/null."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY)
    fd = os.memfd_create("stdin")
    with open(fd, "wb", closefd=False) as file:
        file.write(text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _wake_on_children() -> int:
    """Has the end of a child wake a poll; gives what becomes readable."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _become_subreaper() -> None:
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # an old kernel: the end of the socket says it too


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def main() -> None:
    """Runs the shim: control socket, page, pid, mark and scratch folder of the worker."""
    control, page, worker, mark, scratch = sys.argv[1:]
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # it ends with the worker only
    _become_subreaper()
    Shim(
        socket.socket(fileno=int(control)),
        mmap.mmap(int(page), PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ),
        int(worker),
        mark.encode(),
        scratch,
    ).run()


if __name__ == "__main__":
    main()
