"""docker-compose.yml says what its page says, and keeps every container in its bounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sexton_worker.config import WorkerConfig

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
FILE = yaml.safe_load(TEXT)
SERVICES = FILE["services"]
OURS = sorted(name for name, each in SERVICES.items() if "SEXTON_IMAGE" in each["image"])
PAGE = (ROOT / "docs" / "compose.md").read_text()


def test_each_variable_is_explained_with_its_default() -> None:
    found = dict(re.findall(r"\$\{(SEXTON_\w+):?-([^}]*)\}", TEXT))
    rows = re.findall(r"^\| `(SEXTON_\w+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    assert found.keys() == dict(rows).keys()
    shown = {name: default.split("`")[1] for name, default in rows if "`" in default}
    assert {name: found[name] for name in shown} == shown


@pytest.mark.parametrize("name", OURS)
def test_each_container_of_ours_is_kept_in_its_bounds(name: str) -> None:
    each = SERVICES[name]
    assert each["read_only"] is True
    assert each["init"] is True
    assert each["cap_drop"] == ["ALL"]
    assert each["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in each
    if name not in ("secrets", "cli", "demo"):  # these end by themselves
        assert each["mem_limit"]
        assert each["pids_limit"]
        assert each["restart"] == "unless-stopped"


def test_what_is_published_is_published_on_this_machine_alone() -> None:
    ports = [port for each in SERVICES.values() for port in each.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_a_worker_is_given_the_time_that_its_drain_takes() -> None:
    worker = WorkerConfig(queue=("queue:7700",))
    settings = SERVICES["worker"]["environment"]
    assert settings["SEXTON_WORKER_DRAIN_TIMEOUT_S"] == worker.drain_timeout_s
    assert settings["SEXTON_WORKER_CANCEL_GRACE_S"] == worker.cancel_grace_s
    given_s = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert given_s >= worker.drain_timeout_s + worker.cancel_grace_s + 15


def test_only_whoever_needs_it_sees_a_secret() -> None:
    mounted = {
        name: [volume.partition(":")[0] for volume in each.get("volumes", ()) if "secret" in volume]
        for name, each in SERVICES.items()
    }
    assert mounted == {
        "secrets": ["secrets", "worker-secret", "client-secret"],
        "store": ["secrets"],
        "queue": ["secrets"],
        "coordinator": ["secrets"],
        "worker": ["worker-secret"],
        "console": ["client-secret"],
        "cli": ["client-secret"],
        "demo": ["client-secret"],
        "prometheus": [],
        "jaeger": [],
    }
