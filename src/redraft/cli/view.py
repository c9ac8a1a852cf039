"""`redraft view`: the page of all runs and of each one, on this machine."""

from __future__ import annotations

import ipaddress

import click

from redraft.cli.codes import Exit
from redraft.cli.mcp import _interrupted
from redraft.cli.output import emit, say
from redraft.cli.runs import opened
from redraft.errors import UsageError

PORT = 7478


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help=f"0: any that is free.  [default: {PORT}, else a free one]")
@click.option("--host", default="127.0.0.1", show_default=True, help="An address of this machine's own.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--store", metavar="FILE", help="The file that the runs are in.  [default: as of `redraft runs`]")
def view(port: int | None, host: str, no_open: bool, store: str | None) -> int:
    """Look at runs in a browser: each draft, what changed, how it was judged, what it cost; live while a run is at work.

    It only reads, and is for this machine alone: to show a run to others, write it to a file with `redraft report`.
    """
    from redraft.cli.viewing import bound
    from redraft.report.page.render import needed

    needed()
    if not _is_own(host):
        raise UsageError(
            f"--host {host!r} would show every prompt to whoever reaches this machine, and the page has no password: give "
            "127.0.0.1, ::1 or localhost, come in by `ssh -L`, or hand on a file that `redraft report` writes"
        )
    with opened(store) as kept, bound(kept, host, port, PORT) as viewer:
        emit(viewer.address)
        say(f"redraft: the runs of {kept.path} are at {viewer.address}; Ctrl-C ends it")
        if not no_open:
            import webbrowser

            webbrowser.open(viewer.address)
        with _interrupted() as came:
            viewer.serve_forever(poll_interval=0.2)
    return 128 + came[0] if came else Exit.DONE


def _is_own(host: str) -> bool:
    """True for an address that only this machine reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
