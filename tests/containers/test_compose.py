"""The mesh of docker-compose.yml: what a user sees of it, and what keeps it in its bounds."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from http.client import HTTPConnection

import pytest
from containers.compose import docker, logs
from containers.conftest import CONSOLE_PORT, WHOLE, Mesh, fires_again, succeeded, wait_for

from sexton import Client, JobSpec, Retry, RunState, ShellTask
from sexton.errors import Unauthenticated

pytestmark = pytest.mark.containers

JOBS = """\
jobs:
  - name: applied
    schedule: {every: 1s}
    task: {shell: "echo $SEXTON_RUN_ID"}
"""
SECRETS = ("client", "mesh", "reader", "worker")


def test_docker_finds_every_container_healthy(mesh: Mesh) -> None:
    def healthy() -> list[str]:
        return [each.name for each in mesh.compose.containers().values() if each.healthy]

    wait_for(lambda: healthy() == sorted(WHOLE), "all are healthy")


def test_jobs_that_are_applied_from_outside_run(mesh: Mesh) -> None:
    printed = mesh.compose("run", "--rm", "-T", "cli", "apply", "-f", "-", stdin=JOBS)
    assert "default/applied: created" in printed

    fires_again(mesh, "applied")
    listed = mesh.compose("run", "--rm", "-T", "cli", "runs", "list", "applied")
    assert "succeeded" in listed
    with mesh.client() as client:
        client.jobs.delete("applied")


def test_the_documented_command_registers_the_sample_jobs_and_shows_their_runs(mesh: Mesh) -> None:
    with mesh.client() as client:
        mesh.compose("run", "--detach", "demo")
        wait_for(
            lambda: {"hello", "flaky", "report"} <= {job.name for job in client.jobs.list()},
            "the sample jobs are there",
        )
        wait_for(lambda: succeeded(mesh, "flaky"), "the job that fails at first succeeds")
        label = f"label=com.docker.compose.project={mesh.compose.project}"
        (shown,) = docker("ps", "--quiet", "--filter", label, "--filter", "name=demo").split()
        wait_for(lambda: "succeeded" in logs(shown), "its runs are shown")
        docker("rm", "--force", shown)
        for name in ("hello", "flaky", "report"):
            client.jobs.delete(name)


def test_the_console_shows_the_mesh_to_whoever_has_the_secret(mesh: Mesh) -> None:
    def status(path: str, **headers: str) -> int:
        connection = HTTPConnection("127.0.0.1", CONSOLE_PORT, timeout=10)
        with closing(connection):
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status

    wait_for(lambda: status("/health") == 200, "the console reads the mesh")
    assert status("/") == 401
    assert status("/", authorization=f"Bearer {mesh.secret}") == 200
    assert status("/health", host="elsewhere.example") == 421


def test_it_can_be_scaled_up_and_down_at_work(mesh: Mesh) -> None:
    mesh.up("--scale", "worker=4", "--scale", "coordinator=5", "--no-recreate")
    more = ("coordinator-4", "coordinator-5", "worker-3", "worker-4")
    mesh.wait_until_whole([*WHOLE, *more])
    ports = {each.port for each in mesh.compose.of("coordinator")}
    assert len(ports) == 5
    fires_again(mesh, "tick")

    mesh.up("--scale", "worker=2", "--scale", "coordinator=3", "--no-recreate")
    mesh.wait_until_whole()
    fires_again(mesh, "tick")


def test_a_store_that_is_made_anew_is_found_at_its_new_address(mesh: Mesh) -> None:
    mesh.up("--no-deps", "--force-recreate", "store")
    mesh.wait_until_whole()
    fires_again(mesh, "tick")


def test_a_stack_that_was_stopped_has_kept_its_jobs_and_its_secrets(mesh: Mesh) -> None:
    with mesh.client() as client:
        before = client.jobs.get("tick")
    mesh.compose("down")
    assert mesh.compose.containers() == {}

    mesh.up()
    mesh.wait_until_whole()
    with mesh.client() as client:
        assert client.jobs.get("tick").uid == before.uid
    fires_again(mesh, "tick")


def test_a_worker_that_is_stopped_lets_its_run_end(mesh: Mesh) -> None:
    long = JobSpec(task=ShellTask("sleep 6; echo done"), retry=Retry(max_attempts=3))
    with mesh.client() as client:
        client.jobs.create("long", long)
        run = client.jobs.trigger("long").run
        wait_for(lambda: client.runs.get(run).state is RunState.RUNNING, "the run has begun")
        for each in mesh.compose.of("worker"):
            # `docker stop` with the time that the file gives each.
            docker("stop", each.id)
        ended = client.runs.get(run)
        assert (ended.state, len(ended.attempts)) == (RunState.SUCCEEDED, 1)
        workers = mesh.compose.containers().values()
        exits = [each.exit_code for each in workers if each.service == "worker"]
        assert exits == [0, 0]
        client.jobs.delete("long")
    mesh.up()
    mesh.wait_until_whole()


def test_one_that_is_stopped_while_it_starts_ends_all_the_same(mesh: Mesh) -> None:
    (standby, *_) = mesh.compose.of("queue")
    docker("restart", standby.id)
    docker("stop", standby.id)
    # 143: by the signal, before it listened. 137 would be by force, when its time was over.
    assert mesh.compose.containers()[standby.name].exit_code in (0, 143)
    mesh.up()
    mesh.wait_until_whole()


@pytest.mark.parametrize("name", WHOLE)
def test_every_process_that_dies_is_started_again(mesh: Mesh, name: str) -> None:
    before = mesh.compose.containers()[name]
    os.kill(before.pid, signal.SIGKILL)
    wait_for(lambda: mesh.compose.containers()[name].restarts > before.restarts, f"{name} is back")
    mesh.wait_until_whole()
    fires_again(mesh, "tick")


def test_secrets_are_their_owners_alone_and_made_once(mesh: Mesh) -> None:
    modes = "stat -c '%n %a %u' /secrets /secrets/*"
    assert mesh.run_in("store", "sh", "-c", modes).splitlines() == [
        "/secrets 700 10001",
        *(f"/secrets/{name} 600 10001" for name in SECRETS),
    ]
    printed = mesh.compose("run", "--rm", "-T", "secrets")
    assert printed.count(": kept") == len(SECRETS) + 2
    assert mesh.read_secret() == mesh.secret


def test_a_secret_that_is_removed_is_made_anew_and_the_old_one_refused(mesh: Mesh) -> None:
    mesh.compose("run", "--rm", "-T", "--entrypoint", "rm", "secrets", "/secrets/client")
    mesh.up("--force-recreate")
    old, mesh.secret = mesh.secret, mesh.read_secret()
    assert mesh.secret != old
    mesh.wait_until_whole()
    addresses = [f"127.0.0.1:{each.port}" for each in mesh.compose.of("coordinator")]
    with Client(addresses, secret=old) as client, pytest.raises(Unauthenticated):
        client.jobs.get("tick")


def test_a_worker_has_its_own_secret_and_no_other(mesh: Mesh) -> None:
    found = mesh.run_in("worker-1", "sh", "-c", "ls -A /secrets /worker-secret; env")
    assert "worker" in found.split()
    assert not {"mesh", "client", "reader"} & set(found.split())


def test_secrets_stand_in_no_image_environment_command_or_log(mesh: Mesh, image: str) -> None:
    secrets = [mesh.run_in("store", "cat", f"/secrets/{name}").strip() for name in SECRETS]
    assert {len(secret) for secret in secrets} == {64}
    shown = docker("history", "--no-trunc", image) + docker("inspect", image)
    for each in mesh.compose.containers().values():
        shown += docker("inspect", each.id) + logs(each.id)
        if each.running:
            shown += docker("exec", each.id, "env") + docker("top", each.id)
    assert not [secret for secret in secrets if secret in shown]
    folders = ("/secrets", "/worker-secret", "/client-secret")
    assert docker("run", "--rm", "--entrypoint", "find", image, *folders, "-type", "f") == ""


@pytest.mark.parametrize("name", ["store", "queue-1", "coordinator-1", "worker-1"])
def test_a_container_may_do_next_to_nothing(mesh: Mesh, name: str) -> None:
    script = "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; touch /tmp/x /x"
    found = mesh.run_in(name, "sh", "-c", script, check=False).split()
    assert found == [
        *("10001", "CapEff:", "0000000000000000", "CapBnd:", "0000000000000000"),
        *("NoNewPrivs:", "1"),
    ]
    assert mesh.run_in(name, "find", "/x", "/tmp/x", check=False) == "/tmp/x\n"
    form = "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}"
    read_only, memory, pids = mesh.inspect(name, form).split()
    assert read_only == "true"
    assert int(memory) > 0
    assert int(pids) > 0


def test_nothing_but_the_api_is_published_and_only_on_this_machine(mesh: Mesh) -> None:
    published = {
        name: json.loads(mesh.inspect(name, "{{json .NetworkSettings.Ports}}")) for name in WHOLE
    }
    open_ports = {
        (name.partition("-")[0], port, host["HostIp"])
        for name, ports in published.items()
        for port, hosts in ports.items()
        for host in hosts or ()
    }
    assert open_ports == {
        ("coordinator", "7400/tcp", "127.0.0.1"),
        ("console", "8080/tcp", "127.0.0.1"),
    }


def test_the_image_starts_the_command_itself_and_asks_it_for_its_health(image: str) -> None:
    config = json.loads(docker("inspect", "-f", "{{json .Config}}", image))
    assert config["Entrypoint"] == ["sexton"]
    assert config["Healthcheck"]["Test"] == ["CMD", "sexton", "health"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.title"] == "sexton"
    assert docker("run", "--rm", image, "schema").startswith("{")
