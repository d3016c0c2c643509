"""The page about security says what its commands do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sexton.tls import Tls, TlsFiles
from sexton_cli.main import run

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(word: str) -> str:
    return next(found for found in CONSOLE.findall(PAGE) if word in found)


def test_secrets_are_made_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("secrets/mesh: made", "--renew"):
        for shown in block(word).split("$ ")[1:]:
            command, _, printed = shown.partition("\n")
            assert run(command.split()[1:]) == 0
            assert capsys.readouterr().out == printed


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_certificates_of_the_page_can_be_used(tmp_path: Path) -> None:
    commands = block("openssl").replace("$ ", "")
    subprocess.run(["bash", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True)
    tls = Tls(ca=tmp_path / "ca.pem", cert=tmp_path / "sexton.pem", key=tmp_path / "sexton.key")
    assert TlsFiles(tls).material.ca.startswith(b"-----BEGIN CERTIFICATE-----")
