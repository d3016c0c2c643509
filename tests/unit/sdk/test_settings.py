"""How a client finds its mesh: what is given, the environment, a mesh of this machine."""

import json
import math
from pathlib import Path

import pytest

from sexton import errors, local_mesh
from sexton._settings import settings
from sexton.local_mesh import LocalMesh

LOCAL = "a-secret-of-this-machine"


@pytest.fixture(name="announced")
def _announced(tmp_path):
    secret = tmp_path / "data" / "secrets" / "client"
    secret.parent.mkdir(parents=True)
    secret.write_text(LOCAL + "\n")
    mesh = LocalMesh(api=("127.0.0.1:7400", "127.0.0.1:7404"), client_secret_file=secret)
    local_mesh.announce(mesh, tmp_path / "state" / "sexton")
    return mesh


def test_without_anything_the_default_port_is_asked_without_a_secret():
    found = settings()
    assert (found.addresses, found.namespace) == (("127.0.0.1:7400",), "default")
    assert (found.found_by, found.secret_for("127.0.0.1:7400")) == ("the default", "")


def test_a_mesh_of_this_machine_is_found_with_its_secret(announced):
    found = settings()
    assert found.addresses == announced.api
    assert found.secret_for("127.0.0.1:7404") == LOCAL


def test_the_secret_of_this_machine_is_shown_to_no_other(announced):
    found = settings(["127.0.0.1:7400", "localhost:7404", "example.com:7400", "127.0.0.1:9"])
    shown = [bool(found.secret_for(address)) for address in found.addresses]
    assert shown == [True, True, False, False]


def test_tls_is_what_the_environment_says_but_for_a_mesh_of_this_machine(announced, monkeypatch):
    monkeypatch.setenv("SEXTON_TLS_CA", "ca.pem")
    monkeypatch.setenv("SEXTON_TLS_SERVER_NAME", "sexton")
    assert settings().tls is None
    assert settings(["127.0.0.1:7404", "localhost:7400"]).tls is None
    found = settings(["127.0.0.1:7404", "example.com:7400"]).tls
    assert (found.ca, found.cert, found.server_name) == ("ca.pem", None, "sexton")
    monkeypatch.delenv("SEXTON_TLS_CA")
    with pytest.raises(errors.InvalidArgument, match="SEXTON_TLS_CA"):
        settings("example.com:7400")


def test_the_environment_wins_over_the_machine_and_what_is_given_over_both(
    announced, tmp_path, monkeypatch
):
    file = tmp_path / "client"
    file.write_text("a-secret-in-a-file\n")
    monkeypatch.setenv("SEXTON_API", "10.0.0.1:1, 10.0.0.2:2,")
    monkeypatch.setenv("SEXTON_CLIENT_SECRET_FILE", str(file))
    monkeypatch.setenv("SEXTON_NAMESPACE", "team")
    found = settings()
    assert found.addresses == ("10.0.0.1:1", "10.0.0.2:2")
    assert (found.secret_for("10.0.0.2:2"), found.namespace) == ("a-secret-in-a-file", "team")
    monkeypatch.setenv("SEXTON_CLIENT_SECRET", "a-secret-in-the-environment")
    assert settings().secret_for("10.0.0.1:1") == "a-secret-in-the-environment"
    given = settings("[::1]:9", secret="a-secret-that-is-given", namespace="mine")
    assert (given.addresses, given.namespace) == (("[::1]:9",), "mine")
    assert given.secret_for("[::1]:9") == "a-secret-that-is-given"


def test_a_file_that_is_replaced_is_read_again_and_a_bad_one_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("sexton._watched_files.LOOK_EVERY_S", 0.0)
    file = tmp_path / "client"
    file.write_text("the-first-secret\n")
    found = settings("10.0.0.1:1", secret_file=file)
    file.write_text("the-second-secret\nthe-first-secret\n")
    assert found.secret_for("10.0.0.1:1") == "the-second-secret"
    file.write_text("not a secret\n")
    assert found.secret_for("10.0.0.1:1") == "the-second-secret"
    file.unlink()
    assert found.secret_for("10.0.0.1:1") == "the-second-secret"


def test_the_data_folder_that_is_named_comes_first(announced, tmp_path, monkeypatch):
    local_mesh.announce(
        LocalMesh(api=("127.0.0.1:7500",), client_secret_file=announced.client_secret_file),
        tmp_path / "data",
    )
    monkeypatch.setenv("SEXTON_DATA", str(tmp_path / "data"))
    assert settings().addresses == ("127.0.0.1:7500",)


def test_a_secret_is_in_no_repr():
    assert "hidden-secret" not in repr(settings(secret="hidden-secret"))


@pytest.mark.parametrize(
    "address",
    ["", ",", "localhost", "localhost:", ":7400", "a:0", "a:65536", "http://a:1", "a b:1"],
)
def test_an_address_that_can_not_be_is_refused(address):
    with pytest.raises(errors.InvalidArgument, match="HOST:PORT"):
        settings(address)


@pytest.mark.parametrize("secret", ["with space", "line\nbreak", "ü", "x" * 1001])
def test_a_secret_that_can_not_be_is_refused_without_being_shown(secret):
    with pytest.raises(errors.InvalidArgument) as refused:
        settings(secret=secret)
    assert secret not in str(refused.value)


def test_a_secret_file_that_can_not_be_read_is_named(tmp_path):
    with pytest.raises(errors.Unauthenticated, match="nowhere can't be read: No such file"):
        settings(secret_file=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"api": []}', '{"api": "a:1", "client_secret_file": "x"}', "\x00" * 100],
)
def test_a_file_that_is_not_ours_is_no_mesh(tmp_path, text):
    folder = tmp_path / "state" / "sexton"
    folder.mkdir(parents=True)
    (folder / "mesh.json").write_text(text)
    assert local_mesh.find() is None


def test_the_file_holds_no_secret_and_only_its_owner_reads_it(announced, tmp_path):
    file = tmp_path / "state" / "sexton" / "mesh.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert LOCAL not in file.read_text()
    assert json.loads(file.read_text())["api"] == ["127.0.0.1:7400", "127.0.0.1:7404"]


def test_a_mesh_that_stops_leaves_the_file_of_another_alone(announced, tmp_path):
    folder = tmp_path / "state" / "sexton"
    local_mesh.withdraw(LocalMesh(api=("127.0.0.1:1",), client_secret_file=Path("x")), folder)
    assert local_mesh.find() == announced
    local_mesh.withdraw(announced, folder)
    local_mesh.withdraw(announced, folder)
    assert local_mesh.find() is None


@pytest.mark.parametrize(
    "given", [{"timeout_s": x} for x in (0, -1, math.nan)] + [{"retry_for_s": math.nan}]
)
def test_a_time_that_is_none_is_refused(given):
    with pytest.raises(errors.InvalidArgument, match="seconds"):
        settings(environment={}, **given)


def test_an_empty_file_of_a_secret_is_named(tmp_path):
    file = tmp_path / "client"
    file.write_text("\n")
    with pytest.raises(errors.Unauthenticated, match="client is empty"):
        settings(secret_file=file, environment={})
