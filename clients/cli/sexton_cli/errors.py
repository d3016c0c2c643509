"""What ends a command before its work is done, and with which exit code."""

from typing import ClassVar


class CliError(Exception):
    """A command can't go on. The message goes to stderr; there is no traceback."""

    exit_code: ClassVar[int] = 1
    """1: something unexpected."""


class UsageError(CliError):
    """The command line can't be understood."""

    exit_code = 2


class NotFound(CliError):  # noqa: N818
    """What the command line names does not exist."""

    exit_code = 3


class Refused(CliError):  # noqa: N818
    """What was asked for is not allowed, or what was given can't be used."""

    exit_code = 4


class Unavailable(CliError):  # noqa: N818
    """A service does not answer."""

    exit_code = 5
