"""What an HTTP task sends: its method, headers and body, with the values of the run in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from sexton_runtime.version import software_version
from sexton_worker.contract import FromWorker, HttpWork, Order
from sexton_worker.environment import EnvironmentProblem, run_variables, taken
from sexton_worker.executors.commands import Unusable
from sexton_worker.strikeout import secrets_among

_VARIABLE: Final = re.compile(r"\$(?:\{(SEXTON_[A-Z_]+)\}|(SEXTON_[A-Z_]+))")
_NO_HEADER_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_JSON_TYPE: Final = re.compile(r"application/([a-z0-9.+-]+\+)?json\b", re.IGNORECASE)


class HttpRequest(NamedTuple):
    """What is sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    secrets: tuple[bytes, ...]
    """Values of the worker's own: struck out of what is kept of the response."""


def http_request(order: Order, work: HttpWork, own: Mapping[str, str]) -> HttpRequest:
    """Makes the request of an attempt.

    Raises:
        Unusable: it can't be made as the job asks.
    """
    headers, secrets = _asked(work, own)
    kind = next((text for name, text in headers.items() if name.lower() == "content-type"), "")
    if not kind and work.body:
        kind = "application/json" if work.body.lstrip()[:1] in "{[" else "text/plain; charset=utf-8"
        headers["Content-Type"] = kind
    body = _filled(work.body, run_variables(order), escape=_JSON_TYPE.match(kind) is not None)
    return HttpRequest(
        work.method,
        work.url,
        {"Accept-Encoding": "identity"} | headers | run_headers(order),
        body.encode("utf-8", "replace"),
        secrets,
    )


def run_headers(order: Order) -> dict[str, str]:
    """Gives what every request is told, under names of headers."""
    headers = {"User-Agent": f"sexton/{software_version()}"}
    for name, value in run_variables(order).items():
        if name == "TRACEPARENT":
            headers["traceparent"] = value
        elif name == "SEXTON_IDEMPOTENCY_KEY":
            headers["Idempotency-Key"] = value
        else:
            headers[name.replace("_", "-").title()] = value
    return headers


def _asked(work: HttpWork, own: Mapping[str, str]) -> tuple[dict[str, str], tuple[bytes, ...]]:
    headers, secrets = {}, []
    for name, source in work.headers.items():
        try:
            value = taken(f"headers: {name}", source, own)
        except EnvironmentProblem as problem:
            raise Unusable(str(problem)) from None
        if _NO_HEADER_VALUE.search(value):
            raise Unusable(f"headers: the value of {name} is more than one line of text")
        if isinstance(source, FromWorker):
            secrets.append(value)
        headers[name] = value
    return headers, secrets_among(secrets)


def _filled(body: str, variables: Mapping[str, str], *, escape: bool) -> str:
    """Puts the run's values into a body: values only, whatever they hold."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            known = ", ".join(key for key in variables if key.startswith("SEXTON_"))
            raise Unusable(f"body: there is no ${name}; there are {known}")
        text = variables[name]
        return json.dumps(text)[1:-1] if escape else text

    filled = _VARIABLE.sub(value, body)
    if escape and filled:
        try:
            json.loads(filled)
        except (ValueError, RecursionError) as error:
            raise Unusable(f"body: it is to be JSON, and is not: {error}") from None
    return filled
