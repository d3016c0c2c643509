"""Which processes a mesh has, on which ports."""

from __future__ import annotations

import socket
from pathlib import Path

from sexton_cli.up.plan import MAX_REPLICAS, UpConfig, api_addresses, free_base, plan, taken


def config(**changes) -> UpConfig:
    return UpConfig(data=Path("/data"), **changes)


def test_the_default_mesh_has_these_processes_on_these_ports():
    programs = plan(config())
    assert [(p.name, p.role, p.port) for p in programs] == [
        ("store", "store", 7401),
        ("queue-1", "queue", 7402),
        ("queue-2", "queue", 7403),
        ("coordinator-1", "coordinator", 7400),
        ("coordinator-2", "coordinator", 7404),
        ("worker-1", "worker", None),
    ]
    assert api_addresses(programs) == ("127.0.0.1:7400", "127.0.0.1:7404")


def test_each_needs_those_that_end_after_it():
    stages = {program.role: program.stage for program in plan(config())}
    assert sorted(stages, key=stages.__getitem__) == ["worker", "coordinator", "queue", "store"]


def test_the_largest_mesh_leaves_the_ports_of_telemetry_and_console_alone():
    programs = plan(config(coordinators=MAX_REPLICAS, queues=MAX_REPLICAS, workers=3))
    ports = [program.port for program in programs if program.port is not None]
    assert len(set(ports)) == len(ports) == 17
    assert (min(ports), max(ports)) == (7400, 7416)


def test_nothing_but_paths_and_addresses_is_on_a_command_line():
    worker = plan(config(app="reports", workers=1))[-1]
    assert worker.arguments == (
        "--queue", "127.0.0.1:7402,127.0.0.1:7403", "--queues", "default", "--allow", "shell,http",
        "--name", "worker-1", "--drain-timeout-s", "30", "--app", "reports",
        "--secrets-dir", "/data/secrets", "--log-format", "json",
    )  # fmt: skip


def test_taken_ports_are_found_and_a_free_base_is_named():
    with socket.socket() as one:
        for base in range(20_100, 30_000, 100):
            if not taken([base]):
                break
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as whoever listens does
        one.bind(("127.0.0.1", base))
        one.listen()
        assert taken([base, base + 1]) == [base]
        named = free_base(base - 100, [0, 1])
    assert named is not None
    assert named > base


def test_a_console_is_started_last_ends_last_and_gets_everybodys_telemetry():
    programs = plan(config(console=True))
    console = next(program for program in programs if program.role == "console")
    assert (console.other_ports, console.port, console.optional) == ((7480, 7417), None, True)
    assert console.stage == max(program.stage for program in programs)
    assert "127.0.0.1:7400,127.0.0.1:7404" in console.arguments
    for program in programs:
        sends = "--telemetry-endpoint" in program.arguments
        assert sends == (program is not console), program.name
    quiet = plan(config())
    assert not any("--telemetry-endpoint" in program.arguments for program in quiet)
