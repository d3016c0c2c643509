"""The console's addresses: made in one place, so that links and routes agree."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def with_query(path: str, **given: object) -> str:
    """Gives a path with a query; what is empty or None is left out."""
    query = urlencode(
        [(name, str(value)) for name, value in given.items() if value not in ("", None)]
    )
    return f"{path}?{query}" if query else path


def job_url(namespace: str, job: str, action: str = "") -> str:
    """Gives the address of a job, or of an action on it."""
    path = f"/jobs/{_part(namespace)}/{_part(job)}"
    return f"{path}/{action}" if action else path


def run_url(namespace: str, job: str, run: str, action: str = "") -> str:
    """Gives the address of a run, or of an action on it."""
    path = f"/runs/{_part(namespace)}/{_part(job)}/{_part(run)}"
    return f"{path}/{action}" if action else path


def trace_url(trace: str) -> str:
    """Gives the address of a trace by its id in hexadecimal."""
    return f"/traces/{_part(trace)}"


def run_url_of(name: str) -> str:
    """Gives the address of a run by its resource name, or by `NAMESPACE/JOB/RUN`."""
    parts = name.split("/")
    return run_url(*(parts[1::2] if len(parts) == 6 else parts))


def local_path(text: str) -> str:
    """Gives a path of this console, for a redirection; `/` where it is none.

    Browsers take two slashes, forward or backward, for the begin of another site.
    """
    plain = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if plain and text.isprintable() else "/"


def _part(text: str) -> str:
    return quote(text, safe="")
