"""Values of the worker's own do not show in what an attempt wrote, however it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_worker.output import Tail
from sexton_worker.strikeout import Strikeout, secrets_among

SECRET = b"open sesame"


@pytest.mark.parametrize("cut", range(len(SECRET) + 1))
def test_a_value_is_struck_out_wherever_the_parts_end(cut: int) -> None:
    followed: list[bytes] = []
    kept = Tail(follow=followed.append, secrets=[SECRET])
    kept.write(b"say " + SECRET[:cut])
    kept.write(SECRET[cut:] + b" twice, " + SECRET)
    assert kept.text() == "say *** twice, ***"
    assert b"".join(followed) == b"say *** twice, ***"


def test_what_only_begins_like_a_value_is_shown_in_the_end() -> None:
    strikeout = Strikeout([SECRET])
    assert strikeout.take(b"keep open ") == b"keep "
    assert strikeout.take(b"doors") == b"open doors"
    assert strikeout.take(b"open") == b""
    assert strikeout.rest() == b"open"


def test_of_two_values_the_longer_one_is_struck_out() -> None:
    assert Strikeout([b"password", b"password-2"]).whole(b"a password-2, a password") == (
        b"a ***, a ***"
    )


@given(
    words=st.lists(st.sampled_from([b"aab", b"abaa", b"aaaa", b"b", b"xa", b"c"]), max_size=12),
    secrets=st.lists(st.sampled_from([b"aabaab", b"abaaxa", b"aaaa", b"aaaab"]), min_size=1),
)
def test_no_part_of_the_whole_is_shown_that_would_not_be_at_once(
    words: list[bytes], secrets: list[bytes]
) -> None:
    strikeout = Strikeout(secrets)
    shown = b"".join([*map(strikeout.take, words), strikeout.rest()])
    assert shown == Strikeout(secrets).whole(b"".join(words))
    assert not any(secret in shown for secret in secrets)


def test_short_values_are_words_and_stay() -> None:
    assert secrets_among(["true", "hunter22"]) == (b"hunter22",)
