"""Keeps one local process running: starts it again whenever it ends, until it is told not to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sexton_cli.up import leash

PAUSE_S: Final = 0.1
"""Between an end and the next start, as with `sexton up`."""
_STOP_S: Final = 30.0


class Keeper:
    """One process by name."""

    def __init__(
        self, name: str, module: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.starts = 0
        self._module = module
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = True
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    def start(self) -> None:
        """Starts it, and goes on doing so."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Gives its process id; None: it does not run now."""
        process = self._process
        return process.pid if process is not None else None

    def send(self, number: signal.Signals) -> int | None:
        """Sends a signal; gives to whom, None: there was nobody."""
        # Under the lock: its entry is not collected meanwhile, so nobody else has the pid.
        with self._changed:
            pid = self.pid
            if pid is not None:
                os.kill(pid, number)
            return pid

    def hold(self) -> None:
        """Keeps it from being started again once it has ended."""
        with self._changed:
            self._wanted = False

    def let_go(self) -> None:
        """Has it started again."""
        with self._changed:
            self._wanted = True
            self._changed.notify_all()

    def wait_ended(self, pid: int | None, timeout_s: float) -> bool:
        """Waits until this process of it has ended; tells whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: pid is None or self.pid != pid, timeout_s)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it for good: by force where the signal does not do it. Idempotent."""
        with self._changed:
            self._ended, self._wanted = True, False
            self._changed.notify_all()
        pid = self.send(number)
        self.send(signal.SIGCONT)
        if not self.wait_ended(pid, _STOP_S):
            self.send(signal.SIGKILL)
        self._thread.join()

    def _keep(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._ended)
                if self._ended:
                    return
                self._process = process = self._spawn()
            # Leaves the entry in place, so that its pid is nobody else's until it is forgotten.
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with self._changed:
                process.wait()
                self._process = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ended, PAUSE_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        # Whatever becomes of the tests, it ends with them: with this thread, to be exact.
        command = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *self._module]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(self._environment), start_new_session=True,
            )  # fmt: skip
