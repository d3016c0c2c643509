"""The secrets, what each allows, and how they are replaced while they are used."""

from pathlib import Path

import pytest
from grpc import aio

from sexton.errors import PermissionDenied, Unauthenticated
from sexton_runtime.config import ConfigError
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.secrets import (
    Access,
    Role,
    SecretsConfig,
    load_or_create_secrets,
    load_secret,
    renew_secret,
    retire_secrets,
)

MESH, WORKER = "m" * 32, "w" * 32
STORE = "sexton.internal.v1.StoreService"
QUEUE = "sexton.v1.WorkerService"
OPEN = "grpc.health.v1.Health"


@pytest.fixture
def access() -> Access:
    return Access(
        {Role.MESH: MESH, Role.WORKER: WORKER},
        {
            STORE: frozenset({Role.MESH}),
            QUEUE: frozenset({Role.MESH, Role.WORKER}),
            OPEN: frozenset(),
        },
    )


def test_files_are_created_for_their_owner_alone_and_kept(tmp_path: Path) -> None:
    config = SecretsConfig(dir=tmp_path / "secrets")

    first = load_or_create_secrets(config, (Role.MESH, Role.CLIENT), SystemRandomness())
    again = load_or_create_secrets(config, (Role.MESH, Role.CLIENT), SystemRandomness())

    assert {role: secret.lines for role, secret in first.items()} == {
        role: secret.lines for role, secret in again.items()
    }
    assert len(first[Role.MESH].shown) == 64
    assert first[Role.MESH].shown != first[Role.CLIENT].shown
    assert sorted(path.name for path in config.dir.iterdir()) == ["client", "mesh"]
    assert {path.stat().st_mode & 0o777 for path in config.dir.iterdir()} == {0o600}
    assert config.dir.stat().st_mode & 0o777 == 0o700
    assert load_secret(config, Role.MESH).lines == first[Role.MESH].lines


def test_a_caller_creates_nothing(tmp_path: Path) -> None:
    assert not load_secret(SecretsConfig(dir=tmp_path), Role.WORKER)
    assert list(tmp_path.iterdir()) == []


def test_a_given_secret_is_taken_before_the_file(tmp_path: Path) -> None:
    config = SecretsConfig(dir=tmp_path, mesh=MESH)

    found = load_or_create_secrets(config, (Role.MESH,), SystemRandomness())
    assert {role: secret.shown for role, secret in found.items()} == {Role.MESH: MESH}
    assert list(tmp_path.iterdir()) == []


def test_without_configuration_there_are_none() -> None:
    assert load_or_create_secrets(SecretsConfig(), (Role.MESH,), SystemRandomness()) == {}


@pytest.mark.parametrize("secret", ["short", "é" * 20, "two words of a secret", "line\n" * 8])
def test_a_secret_that_can_not_travel_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"secrets.mesh: a secret") as raised:
        load_secret(SecretsConfig(mesh=secret), Role.MESH)

    assert secret not in str(raised.value)


def test_two_roles_with_one_secret_are_refused() -> None:
    config = SecretsConfig(mesh=MESH, client=MESH)

    with pytest.raises(ConfigError, match=r"two roles have the same secret"):
        load_or_create_secrets(config, (Role.MESH, Role.CLIENT), SystemRandomness())


def test_the_configuration_does_not_show_secrets() -> None:
    assert MESH not in repr(SecretsConfig(mesh=MESH))


def test_each_secret_allows_its_services(access: Access) -> None:
    access.check(f"/{STORE}/Get", f"Bearer {MESH}")
    access.check(f"/{QUEUE}/Pull", f"Bearer {WORKER}")
    access.check(f"/{OPEN}/Check", None)


def test_a_role_is_kept_from_what_is_not_its_own(access: Access) -> None:
    with pytest.raises(PermissionDenied) as raised:
        access.check(f"/{STORE}/Get", f"Bearer {WORKER}")

    assert str(raised.value) == (
        "the worker secret does not allow calls to sexton.internal.v1.StoreService; "
        "it takes the mesh secret"
    )


@pytest.mark.parametrize("given", [None, "", MESH, f"Basic {MESH}", "Bearer ", f"Bearer {MESH}x"])
def test_no_secret_or_an_unknown_one_is_refused_and_not_repeated(access: Access, given) -> None:
    with pytest.raises(Unauthenticated) as raised:
        access.check(f"/{STORE}/Get", given)

    assert MESH not in str(raised.value)


def test_a_service_that_was_not_declared_is_closed(access: Access) -> None:
    with pytest.raises(PermissionDenied):
        access.check("/some.Other/Call", f"Bearer {MESH}")


def test_a_reader_reads_and_is_told_what_changing_takes() -> None:
    access = Access(
        {Role.CLIENT: MESH, Role.READER: WORKER},
        {QUEUE: frozenset({Role.CLIENT}), STORE: frozenset({Role.MESH})},
        {QUEUE: frozenset({"ListJobs"})},
    )
    access.check(f"/{QUEUE}/ListJobs", f"Bearer {WORKER}")
    access.check(f"/{QUEUE}/CreateJob", f"Bearer {MESH}")
    with pytest.raises(PermissionDenied) as raised:
        access.check(f"/{QUEUE}/CreateJob", f"Bearer {WORKER}")
    assert str(raised.value) == "the reader secret only reads; CreateJob takes the client secret"
    with pytest.raises(PermissionDenied, match="does not allow calls"):
        access.check(f"/{STORE}/Get", f"Bearer {WORKER}")


def test_with_no_secrets_everything_is_open() -> None:
    access = Access({}, {STORE: frozenset({Role.MESH})})

    assert not access.secured
    access.check(f"/{STORE}/Get", None)


def refused(access: Access, secret: str) -> bool:
    try:
        access.check(f"/{STORE}/Get", f"Bearer {secret}")
    except Unauthenticated:
        return True
    return False


def test_a_secret_is_replaced_while_it_is_used_and_the_old_one_counts_until_it_is_retired(
    tmp_path: Path,
) -> None:
    config = SecretsConfig(dir=tmp_path)
    server = load_or_create_secrets(config, (Role.MESH,), SystemRandomness())
    access = Access(server, {STORE: frozenset({Role.MESH})})
    before = load_secret(config, Role.MESH).shown

    renew_secret(tmp_path / "mesh", SystemRandomness())
    new = load_secret(config, Role.MESH).shown
    assert new != before
    assert not refused(access, new), "looked at anew for a caller who was faster"
    assert not refused(access, before)

    assert retire_secrets(tmp_path / "mesh", SystemRandomness()) == 1
    assert retire_secrets(tmp_path / "mesh", SystemRandomness()) == 0
    assert refused(access, "x" * 32)
    assert refused(access, before)
    assert not refused(access, new)
    assert (tmp_path / "mesh").stat().st_mode & 0o777 == 0o600


async def test_callers_show_the_first_line_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sexton._watched_files.LOOK_EVERY_S", 0.0)
    (tmp_path / "mesh").write_text(f"{MESH}\n{WORKER}\n")
    channel = PolicyChannel(
        aio.insecure_channel("127.0.0.1:1"),
        secret=load_secret(SecretsConfig(dir=tmp_path), Role.MESH),
    )
    assert channel.metadata() == (("authorization", f"Bearer {MESH}"),)
    (tmp_path / "mesh").write_text(f"{WORKER}\n")
    assert channel.metadata() == (("authorization", f"Bearer {WORKER}"),)


@pytest.mark.parametrize(
    "text",
    [None, "", "short", f"{MESH}\nshort", "\n".join(f"{number:032d}" for number in range(11))],
)
def test_a_file_that_can_not_be_used_changes_nothing_and_opens_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    path = tmp_path / "mesh"
    path.write_text(MESH)
    config = SecretsConfig(dir=tmp_path)
    access = Access(
        load_or_create_secrets(config, (Role.MESH,), SystemRandomness()),
        {STORE: frozenset({Role.MESH})},
    )
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert refused(access, "x" * 32)
    assert refused(access, "x" * 32)
    assert not refused(access, MESH)
    assert len([record for record in caplog.records if "New secrets can't" in record.message]) == 1
    assert MESH not in caplog.text


def test_no_more_than_ten_secrets_are_kept_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mesh"
    path.write_text(MESH)
    for _ in range(9):
        renew_secret(path, SystemRandomness())
    with pytest.raises(ConfigError, match="has 11 secrets; take out those"):
        renew_secret(path, SystemRandomness())
    assert len(path.read_text().split()) == 10
