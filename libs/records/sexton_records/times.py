"""Between instants and durations of the core (nanoseconds) and protobuf's well-known types."""

from google.protobuf.duration_pb2 import Duration as WireDuration
from google.protobuf.timestamp_pb2 import Timestamp

from sexton_core.instants import SECOND, Duration, Instant


def timestamp(instant: Instant) -> Timestamp:
    """Returns the instant as a Timestamp."""
    return Timestamp(seconds=instant // SECOND, nanos=instant % SECOND)


def instant_of(value: Timestamp) -> Instant:
    """Returns the Timestamp's instant; no range is checked."""
    return value.seconds * SECOND + value.nanos


def wire_duration(duration: Duration) -> WireDuration:
    """Returns the duration, not negative, as protobuf's."""
    return WireDuration(seconds=duration // SECOND, nanos=duration % SECOND)


def duration_of(value: WireDuration) -> Duration:
    """Returns the duration in nanoseconds; no range is checked."""
    return value.seconds * SECOND + value.nanos
