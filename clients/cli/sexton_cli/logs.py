"""What libraries log while a command works: to stderr, so that stdout holds the result alone."""

import sys


def to_stderr() -> None:
    """Sends structlog's lines there; its own default is stdout."""
    import structlog  # noqa: PLC0415 - heavy

    structlog.reset_defaults()  # what else was set may not fit this logger
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
