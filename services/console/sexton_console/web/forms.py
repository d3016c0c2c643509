"""Forms as browsers and `curl -d` send them."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request


async def form_of(request: Request) -> dict[str, str]:
    """Reads a form's fields, the last of repeated ones; others than plain forms give none."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qs(body, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}
