"""What a run's policy allows and probably does not mean."""

from sexton_core.instants import HOUR, MINUTE
from sexton_core.runs.policy import RunPolicy


def test_a_deadline_that_no_attempt_can_use_up_is_warned_of() -> None:
    (warning,) = RunPolicy(timeout_ns=HOUR, deadline_ns=30 * MINUTE).warnings()
    assert warning == (
        "deadline: the whole run ends after 30m, so no attempt can take the 1h of its timeout"
    )
    assert RunPolicy(timeout_ns=HOUR, deadline_ns=HOUR).warnings() == ()
    assert RunPolicy().warnings() == ()
