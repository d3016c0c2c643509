"""Where a server may listen."""

import pytest

from sexton_runtime.binding import advertised, check_listen, is_loopback, parse_address
from sexton_runtime.config import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:7600", ("::1", 7600)), ("a.b:80", ("a.b", 80))],
)
def test_addresses_are_split(text, expected) -> None:
    assert parse_address(text, "listen") == expected


@pytest.mark.parametrize("text", ["", "7600", ":7600", "host", "host:", "host:-1", "host:65536"])
def test_what_is_no_address_is_refused_by_field_and_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"store.listen: .* is no address; give host:port"):
        parse_address(text, "store.listen")


def test_loopback_is_known_by_address_and_by_name() -> None:
    assert [is_loopback(host) for host in ("127.0.0.9", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "store")] == [False] * 4


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "store:1"])
def test_nobody_listens_beyond_the_machine_without_secrets(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"there are no secrets .* SEXTON_SECRETS_DIR"):
        check_listen(listen, "store.listen", secured=False, insecure=False)

    check_listen(listen, "store.listen", secured=True, insecure=False)
    check_listen(listen, "store.listen", secured=False, insecure=True)


def test_others_are_told_an_address_that_they_can_reach(monkeypatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "box")

    assert advertised("127.0.0.1:7400", "") == "127.0.0.1:7400"
    assert advertised("store:7600", "") == "store:7600"
    assert advertised("0.0.0.0:7400", "") == "box:7400"
    assert advertised("[::]:7400", "") == "box:7400"
    assert advertised("0.0.0.0:7400", "10.0.0.7:7400") == "10.0.0.7:7400"
