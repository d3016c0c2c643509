"""The page about the store is true: its commands are run, its tables compared with the code."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from integration.store.store_process import StoreProcess

from sexton_cli.main import run
from sexton_runtime import semconv
from sexton_runtime.lifecycle import ExitCode
from sexton_store.config import StoreConfig
from sexton_store.contract import LIMITS, EngineConfig

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "store.md").read_text()
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBERS = re.compile(r"\b[0-9a-f]{32}\b|[+-]?\d+(\.\d+)?")


def steps() -> Iterator[tuple[str, str]]:
    """Yields (command, what it prints) of the console blocks, in order."""
    for block in CONSOLE.findall(PAGE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


@pytest.mark.slow
def test_each_command_of_the_page_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEXTON_SECRETS_DIR", str(tmp_path / "secrets"))
    store = StoreProcess(tmp_path)  # with the page's own flags, on any port
    ran = 0
    try:
        for command, printed in steps():
            shown = _perform(shlex.split(command), store, capfd)
            monkeypatch.setenv("SEXTON_STORE", store.address)
            if printed != "...\n":
                assert NUMBERS.sub("#", shown) == NUMBERS.sub("#", printed), command
            ran += 1
    finally:
        store.end()
    assert ran == 12


def _perform(words: list[str], store: StoreProcess, capfd: pytest.CaptureFixture[str]) -> str:
    """Does what a command of the page says, and gives what it prints."""
    if words[:2] == ["sexton", "store"]:
        assert words[2:] == ["--data", "./data", "--secrets-dir", "./secrets"]
        return f"store ready on {store.start().address}\n"
    if words[0] == "kill":
        assert store.end(signal.SIGTERM)[0] == 0
        return ""
    assert words[0] == "sexton"
    code = run(words[1:])
    captured = capfd.readouterr()
    assert code == (4 if captured.err else 0), captured
    return captured.out + captured.err


def test_each_flag_and_exit_code_is_explained() -> None:
    for field in fields(StoreConfig):
        assert f"`--{field.name.replace('_', '-')}`" in PAGE
    for code in ExitCode:
        assert f"\n| {code.value} | " in PAGE


def test_each_alarm_and_metric_is_explained() -> None:
    sources = "".join(
        path.read_text() for path in (ROOT / "services/store/sexton_store").glob("*.py")
    )
    for action in set(re.findall(r'action="(store\.\w+)"', sources)):
        assert f"`{action}`" in PAGE
    for name, instrument in vars(semconv).items():
        if name.startswith("STORE_"):
            assert f"`{instrument.name.replace('.', '_')}" in PAGE


def test_the_limits_are_those_of_the_engine() -> None:
    for limit in (
        f"{LIMITS.max_key_bytes} bytes, {LIMITS.max_value_bytes >> 20} MiB |",
        f"{LIMITS.max_ops_per_txn} compares and writes, {LIMITS.max_txn_bytes >> 20} MiB |",
        f"{LIMITS.max_txns_per_commit:,} transactions, {LIMITS.max_commit_bytes >> 20} MiB |",
        f"{LIMITS.max_page_items:,}, and {LIMITS.max_page_bytes >> 20} MiB |",
        f"{LIMITS.min_lease_ttl_ms} ms to {LIMITS.max_lease_ttl_ms // 3_600_000} hour |",
        f"{EngineConfig().max_leases:,}, {EngineConfig().max_watchers:,} |",
        f"({EngineConfig().max_waiting_requests:,} requests,",
    ):
        assert limit in PAGE
    assert LIMITS.max_keys_per_get == LIMITS.max_page_items
