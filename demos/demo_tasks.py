"""The Python tasks of `make demo`: what `sexton up --app demo_tasks` imports."""

from __future__ import annotations

import os
from pathlib import Path

import sexton


@sexton.task("backup-report")
def backup_report(context: sexton.Context, title: str) -> dict[str, object]:
    """Counts what the backup job has written so far."""
    archives = list((Path(os.environ["DEMO_FOLDER"]) / "backups").glob("*.tar.gz"))
    total = sum(archive.stat().st_size for archive in archives)
    context.logger.info("%s: %d archives, %d bytes", title, len(archives), total)
    return {"archives": len(archives), "bytes": total}
