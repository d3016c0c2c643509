"""The pages about job files and previews show what the commands print, to the letter."""

import re
import shlex
from pathlib import Path

import pytest

from sexton_cli import main as entry

DOCS = Path(__file__).parents[3] / "docs"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The release of the zone data changes, and with it nothing that these pages show.
RELEASE = re.compile(r"^time zone data: \S+$", re.MULTILINE)


def steps(page):
    """Yields (command, what it prints) of the page's console blocks, in order."""
    for block in CONSOLE.findall((DOCS / page).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def run(command, printed, folder, capsys, codes=(4,)):
    """Runs a command of the page; `cat` and `head` say what a file holds."""
    words = shlex.split(command)
    target = None
    if ">" in words:
        target = folder / words[-1]
        words = words[: words.index(">")]
    if words[0] in ("cat", "head"):
        (folder / words[-1]).write_text(printed)
        return printed
    assert words[0] == "sexton"
    code = entry.run(words[1:])
    captured = capsys.readouterr()
    differs = 1 if words[1:3] == ["jobs", "diff"] else 0
    assert (code in codes) if captured.err else (code == differs)
    if target is not None:
        target.write_text(captured.out)
        return ""
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("page", "file", "codes"),
    [
        ("jobfile.md", "jobfile.md", [4]),
        ("preview.md", "jobfile.md", [4]),
        pytest.param("cli.md", "cli.md", [2, 3, 5], marks=pytest.mark.slow),
    ],
)
def test_each_command_of_the_page_prints_what_the_page_shows(
    page, file, codes, mesh, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.5)
    example = re.search(r"```yaml\n(.*?)```", (DOCS / file).read_text(), re.DOTALL)
    (tmp_path / "jobs.yaml").write_text(example[1])
    ran = 0
    for command, printed in steps(page):
        shown = run(command, printed, tmp_path, capsys, codes)
        if printed != "...\n":
            assert RELEASE.sub("", shown) == RELEASE.sub("", printed), command
        ran += 1
    assert ran >= 4


def test_the_recurrence_in_the_page_about_schedules_can_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```yaml\n(schedule:.*?)```", (DOCS / "schedules.md").read_text(), re.DOTALL)
    indented = block[1].replace("\n", "\n  ")
    (tmp_path / "jobs.yaml").write_text(f"jobs:\n- name: a\n  task: {{shell: x}}\n  {indented}\n")
    assert entry.run(["preview", "jobs.yaml", "--from", "2027-01-01", "--count", "1"]) == 0
    assert "Fri 2027-01-29 09:00:00 +0100" in capsys.readouterr().out
