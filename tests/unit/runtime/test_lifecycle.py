"""Starting in order, stopping in reverse, once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from sexton_runtime.lifecycle import ExitCode, Lifecycle


class Noted:
    """A part that notes what happens to it."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.start_error: Exception | None = None
        self.stop_error: Exception | None = None

    async def start(self) -> None:
        self.notes.append(f"start {self.name}")
        if self.start_error:
            raise self.start_error

    async def stop(self) -> None:
        self.notes.append(f"stop {self.name}")
        if self.stop_error:
            raise self.stop_error


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def parts(notes: list[str]) -> list[Noted]:
    return [Noted(name, notes) for name in ("disk", "server", "health")]


async def test_parts_stop_also_where_nobody_can_be_told_of_the_start(notes, parts) -> None:
    def tell() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await Lifecycle("x", parts).run(signals=False, on_started=tell)

    assert notes[-3:] == ["stop health", "stop server", "stop disk"]


async def test_parts_stop_in_the_reverse_of_their_start(notes, parts) -> None:
    life = Lifecycle("x", parts)
    running = asyncio.create_task(life.run(signals=False))
    await life.started.wait()
    life.request_stop("enough")

    assert await running is ExitCode.OK
    assert notes == [
        "start disk",
        "start server",
        "start health",
        "stop health",
        "stop server",
        "stop disk",
    ]


async def test_stopping_twice_stops_once_and_both_wait(notes, parts) -> None:
    life = Lifecycle("x", parts)
    await life.start()

    await asyncio.gather(life.stop(), life.stop())
    await life.stop()

    assert notes.count("stop disk") == 1


async def test_a_part_that_does_not_start_ends_the_others_and_is_told(notes, parts) -> None:
    parts[1].start_error = OSError("taken")

    with pytest.raises(OSError, match=r"taken"):
        await Lifecycle("x", parts).run(signals=False)

    assert notes == ["start disk", "start server", "stop server", "stop disk"]


async def test_a_part_that_does_not_stop_keeps_no_other_from_stopping(notes, parts) -> None:
    parts[2].stop_error = RuntimeError("stuck")
    life = Lifecycle("x", parts)
    running = asyncio.create_task(life.run(signals=False))
    await life.started.wait()
    life.request_stop("enough")

    assert await running is ExitCode.FAILED
    assert notes[-1] == "stop disk"


async def test_a_part_that_hangs_is_given_up(notes, parts) -> None:
    class Hanging(Noted):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    life = Lifecycle("x", [*parts, Hanging("hanging", notes)], stop_timeout_s=0.01)
    await life.start()

    await life.stop()

    assert notes[-1] == "stop disk"


async def test_a_condition_stops_it_with_its_own_code(parts) -> None:
    failed = asyncio.Event()
    life = Lifecycle("x", parts)
    life.stop_when(failed.wait, "the disk failed", ExitCode.RESTART)
    running = asyncio.create_task(life.run(signals=False))
    await life.started.wait()
    failed.set()

    assert await running == 75


async def test_the_first_reason_to_stop_counts(parts) -> None:
    life = Lifecycle("x", parts)
    running = asyncio.create_task(life.run(signals=False))
    await life.started.wait()
    life.request_stop("broken", ExitCode.RESTART)
    life.request_stop("asked")

    assert await running is ExitCode.RESTART


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_stops_in_order_and_a_second_one_at_once(number: signal.Signals) -> None:
    program = textwrap.dedent(
        """
        import asyncio, sys
        from sexton_runtime.lifecycle import Lifecycle
        from sexton_runtime.logging import LogConfig, configure_logging

        configure_logging(LogConfig(), service="x")

        class Part:
            async def start(self):
                pass
            async def stop(self):
                print("stopping", flush=True)
                await asyncio.sleep(60 if sys.argv[1] == "hang" else 0)

        life = Lifecycle("x", [Part()])
        sys.exit(asyncio.run(life.run(on_started=lambda: print("ready", flush=True))))
        """
    )
    for mode, signals, expected in (("end", 1, 0), ("hang", 2, 128 + number)):
        with subprocess.Popen(
            [sys.executable, "-c", program, mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.stdout.readline() == "stopping\n"
            if signals == 2:
                process.send_signal(number)
            assert process.wait(10) == expected


async def test_a_stop_while_a_part_waits_for_another_service_ends_the_start(notes, parts) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    parts[1].start = wait
    life = Lifecycle("x", parts)
    running = asyncio.create_task(life.run(signals=False))
    await asyncio.sleep(0)
    life.request_stop("asked")

    assert await running is ExitCode.OK
    assert notes == ["start disk", "stop server", "stop disk"]
    assert not life.started.is_set()
