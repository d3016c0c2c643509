"""The newest value of each metric of each process, in memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from sexton_console.traces.decode import attributes_of
from sexton_runtime import semconv

MAX_SERIES: Final = 20_000
MAX_KEY: Final = 4_000
"""Characters that tell one series from others; what has more is not taken."""


class Key(NamedTuple):
    """Which number."""

    service: str
    instance: str
    name: str
    attributes: tuple[tuple[str, str], ...]


class Metrics:
    """What services say about themselves."""

    def __init__(self) -> None:
        self._values: OrderedDict[Key, tuple[int, float]] = OrderedDict()

    def take(self, request: ExportMetricsServiceRequest) -> int:
        """Takes numbers; tells how many."""
        count = 0
        for group in request.resource_metrics:
            resource = attributes_of(group.resource.attributes)
            service = str(resource.get(semconv.SERVICE_NAME, ""))
            instance = str(resource.get(semconv.SERVICE_INSTANCE_ID, ""))
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    points = (
                        metric.sum.data_points
                        if metric.HasField("sum")
                        else metric.gauge.data_points
                    )
                    for point in points:
                        pairs = attributes_of(point.attributes)
                        key = Key(
                            service,
                            instance,
                            metric.name,
                            tuple(sorted((name, str(value)) for name, value in pairs.items())),
                        )
                        value = float(point.as_int) if point.HasField("as_int") else point.as_double
                        if not math.isfinite(value) or _length(key) > MAX_KEY:
                            continue
                        self._values[key] = (point.time_unix_nano, value)
                        self._values.move_to_end(key)
                        count += 1
        while len(self._values) > MAX_SERIES:
            self._values.popitem(last=False)
        return count

    def find(self, name: str) -> Iterator[tuple[Key, int, float]]:
        """Gives all values of a name, with the time at which each was read."""
        for key, (at, value) in self._values.items():
            if key.name == name:
                yield key, at, value


def _length(key: Key) -> int:
    service, instance, name, attributes = key
    return len(service) + len(instance) + len(name) + sum(len(a) + len(b) for a, b in attributes)
