"""A service reads from the network in the thread that waits for it, and tells nobody else to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_IMPORT = """
import os, sys

class Watch:
    def find_spec(self, name, path, target=None):
        if name == "grpc":
            print("imported with", os.environ.get("GRPC_EXPERIMENTS"))

sys.meta_path.insert(0, Watch())
import sexton_{service}.__main__ as service
try:
    service.main(["--help"])
except SystemExit:
    print("afterwards", os.environ.get("GRPC_EXPERIMENTS"))
"""


def _said(service: str, **variables: str) -> tuple[str, str]:
    ran = subprocess.run(
        [sys.executable, "-c", _IMPORT.format(service=service)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ran.stdout.splitlines()
    return next(line for line in lines if line.startswith("imported with")), lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize("service", ["store", "coordinator", "queue", "worker", "console"])
def test_every_service_imports_grpc_without_its_threads_for_reading(service: str) -> None:
    assert _said(service) == (
        "imported with -event_engine_client,-event_engine_listener",
        "afterwards None",
    )


@pytest.mark.slow
def test_what_is_set_from_outside_stands() -> None:
    assert _said("queue", GRPC_EXPERIMENTS="event_engine_client") == (
        "imported with event_engine_client",
        "afterwards event_engine_client",
    )
