"""The page about operations explains what there is to see, under the names that are shown."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from sexton_coordinator.leader import counters as coordinator
from sexton_queue import counters as queue
from sexton_runtime import semconv
from sexton_runtime.semconv import Instrument
from sexton_runtime.telemetry import Telemetry
from sexton_store import contract as store
from sexton_worker import counters as worker

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
ALARMS = yaml.safe_load((ROOT / "deploy" / "alarms.yml").read_text())["groups"][0]["rules"]
COUNTED = re.compile(r"\.(events|calls|dropped)$")


@pytest.fixture(scope="module", name="shown")
def _shown() -> set[str]:
    """The names of all metrics, as Prometheus's own exporter makes them."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    telemetry = Telemetry(meter=MeterProvider([reader]).get_meter("test"))
    for instrument in vars(semconv).values():
        if isinstance(instrument, Instrument):
            counted = COUNTED.search(instrument.name)
            (telemetry.counter if counted else telemetry.gauge)(instrument, lambda: [(1.0, {})])
    return {sample.name for metric in registry.collect() for sample in metric.samples} - {
        "target_info"
    }


def test_each_metric_is_explained_under_the_name_that_is_shown(shown: set[str]) -> None:
    assert len(shown) > 20
    assert {name for name in shown if f"`{name}`" not in PAGE} == set()
    assert set(re.findall(r"`(sexton_[a-z_]+_(?:total|bytes|milliseconds))`", PAGE)) <= shown


@pytest.mark.parametrize(
    ("title", "counters"),
    [
        ("the store", store.EngineCounters),
        ("the coordinators", coordinator.Counters),
        ("the queues", queue.Counters),
        ("the workers", worker.Counters),
    ],
)
def test_each_kind_is_explained(title: str, counters: Any) -> None:
    table = PAGE.partition(f"Kinds of {title}:\n\n")[2].partition("\n\n")[0]
    kinds = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert kinds == {field.name for field in fields(counters)}


def test_each_alarm_is_explained_and_asks_for_what_there_is(shown: set[str]) -> None:
    table = PAGE.partition("| alarm | means |")[2]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [alarm["alert"] for alarm in ALARMS]
    kinds = {
        field.name
        for counters in (
            store.EngineCounters,
            coordinator.Counters,
            queue.Counters,
            worker.Counters,
        )
        for field in fields(counters)
    }
    for alarm in ALARMS:
        assert set(re.findall(r"\bsexton_\w+", alarm["expr"])) - {"sexton_kind"} <= shown
        for pattern in re.findall(r'sexton_kind=~?"([^"]+)"', alarm["expr"]):
            assert set(pattern.split("|")) <= kinds
