"""The `sexton` command.

Exit codes: 0 done, 2 the command line is wrong, 3 what it names does not exist, 4 refused, 5 a
service is unavailable, 1 anything unexpected. Errors go to stderr, results to stdout.
"""

import gc
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.exceptions import Abort, Exit, TyperException

from sexton_cli import commands
from sexton_cli.errors import CliError
from sexton_cli.output import fall_silent, print_line, visible

_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
_GC_THRESHOLDS: Final = (100_000, 20, 50)
"""Of Python's collector of reference cycles. A file of ten thousand jobs becomes a million objects
that all stay: with the default thresholds to look at them took longer than to read the file."""


def build_app() -> typer.Typer:
    """Returns the application with every command registered."""
    app = typer.Typer(
        name="sexton",
        help="A distributed job scheduler: runs other programs at the right time.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    # A callback keeps subcommands even where only one is registered.
    app.callback()(_root)
    commands.register(app)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits."""
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


@cache
def _command() -> Callable[..., Any]:
    """Returns the command, made once: to make it takes longer than most commands do."""
    return typer.main.get_command(build_app())


def run(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code."""
    try:
        code = _command()(arguments, prog_name="sexton", standalone_mode=False)
        sys.stdout.flush()
    except CliError as error:
        return _fail(str(error), error.exit_code)
    except TyperException as error:
        return _fail(_usage(error), error.exit_code)
    except Exit as error:
        return error.exit_code
    except (Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        fall_silent()
        return 0
    except SystemExit as ended:
        # What Typer makes of a reader that goes away in the middle of a long output.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        fall_silent()
        return 0
    except Exception as error:
        if os.environ.get("SEXTON_DEBUG"):
            raise
        name = type(error).__name__
        return _fail(f"internal error, {name}: {error}; SEXTON_DEBUG=1 shows where", 1)
    return code if isinstance(code, int) else 0


def _show_version(asked: bool) -> None:  # noqa: FBT001 - the parser calls it
    if asked:
        from sexton_runtime.version import software_version  # noqa: PLC0415 - heavy

        print_line(f"sexton {software_version()}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A distributed job scheduler: runs other programs at the right time."""


def _usage(error: TyperException) -> str:
    """Gives what is wrong with a command line, without words of the parser, and where it is told.

    A group without a command answers with its help, and needs neither.
    """
    message = error.format_message().replace(": Value error, ", ": ").rstrip()
    context = getattr(error, "ctx", None)
    if context is None or message.startswith("Usage:"):
        return message
    return f"{message}\nhow it is used: {context.command_path} --help"


def _fail(message: str, code: int) -> int:
    # A group without a command answers with its help, which needs no name in front.
    name = "" if message.startswith("Usage:") else "sexton: "
    for line in message.splitlines():
        sys.stderr.write(f"{name}{visible(line)}\n")
    return code


if __name__ == "__main__":
    main()
