"""The front of the command line: its commands, its exit codes, and the one place where errors become a paragraph."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any, NoReturn

import click

from redraft import __version__
from redraft.cli.batch import batch
from redraft.cli.calibrate import calibrate
from redraft.cli.codes import EXPLAINED, Exit
from redraft.cli.completion import VARIABLE, completion, propose
from redraft.cli.eval import evaluation
from redraft.cli.mcp import mcp
from redraft.cli.models import models
from redraft.cli.output import complain
from redraft.cli.report import report
from redraft.cli.resume import resume
from redraft.cli.rlm import rlm
from redraft.cli.run import run
from redraft.cli.runs import runs
from redraft.cli.serve import serve
from redraft.cli.train import train
from redraft.cli.view import view
from redraft.errors import BudgetExceeded, RedraftError, UsageError


class Front(click.Group):
    """A group whose commands return their exit code, and whose errors are one paragraph on stderr."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run the command line and exit."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a text that was paid for is not lost to a narrow encoding
                stream.reconfigure(errors="backslashreplace")
        if VARIABLE in os.environ:
            propose(self)
        sys.exit(self._guarded(*args, **extra))

    def _guarded(self, *args: Any, **extra: Any) -> int:
        try:
            return int(super().main(*args, **{**extra, "standalone_mode": False}) or Exit.DONE)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "redraft"
            return _failed(f"{error.format_message().rstrip('.')}. See `{path} --help`.", Exit.USAGE)
        except click.ClickException as error:
            return _failed(error.format_message(), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            return _failed("interrupted", Exit.INTERRUPTED)
        except BrokenPipeError:
            return Exit.DONE
        except OSError as error:
            return _failed(f"{error.strerror}: {error.filename or 'stdout'}", Exit.FAILED)
        except RedraftError as error:
            return _failed(error, _code_of(error))
        except Exception as error:  # noqa: BLE001 - the boundary to the person at the terminal: never a traceback
            what = f"unexpected {type(error).__name__}: {error}"
            return _failed(f"{what}. This is a bug; REDRAFT_DEBUG=1 shows where, please report it.", Exit.FAILED)


def _code_of(error: RedraftError) -> Exit:
    if isinstance(error, UsageError):
        return Exit.USAGE
    return Exit.LIMIT if isinstance(error, BudgetExceeded) else Exit.FAILED


def _failed(error: object, code: int) -> int:
    if os.environ.get("REDRAFT_DEBUG"):
        traceback.print_exc()
    complain(error)
    return code


@click.group("redraft", cls=Front, invoke_without_command=True, epilog=EXPLAINED)
@click.version_option(__version__, prog_name="redraft", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> int:
    """Make an LLM's answer meet its bar before you see it: on any model, inside hard limits, with a receipt."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return Exit.DONE


main.add_command(run)
main.add_command(rlm)
main.add_command(runs)
main.add_command(batch)
main.add_command(evaluation)
main.add_command(calibrate)
main.add_command(resume)
main.add_command(models)
main.add_command(mcp)
main.add_command(view)
main.add_command(report)
main.add_command(serve)
main.add_command(train)
main.add_command(completion)


def entry() -> None:
    """The command `redraft`. All is printed when it ends, and an engine may be busy for seconds: nobody waits for it."""
    try:
        main(prog_name="redraft")
    except SystemExit as ended:
        if config := sys.modules.get("redraft.config"):  # not for a help page
            config.close_stores()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 1)
