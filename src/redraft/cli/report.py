"""`redraft report`: one run, or one evaluation, as one file, to look at without redraft and without a network."""

from __future__ import annotations

import click

from redraft.cli.codes import Exit
from redraft.cli.output import say
from redraft.cli.runs import _writing, opened, whole_id


@click.command()
@click.argument("run", required=False)
@click.option("-o", "--out", default="report.html", show_default=True, metavar="FILE", help="Where to; - is stdout.")
@click.option("--store", metavar="FILE", help="The file that the run is in.  [default: as of `redraft runs`]")
def report(run: str | None, out: str, store: str | None) -> int:
    """Write RUN, or the newest one, as a page in one file.

    RUN is a run's (or an evaluation's) id, or as much of its beginning as no other run has. The file needs no network and no other file; what
    looks like a secret (a key, a password) is left out of it.
    """
    from redraft.report.page.data import run_data
    from redraft.report.page.evaluation import evaluation, is_evaluation
    from redraft.report.page.redact import Redactor
    from redraft.report.page.render import evaluation_report, needed, report
    from redraft.report.page.story import story

    needed()
    redactor = Redactor()
    with opened(store) as kept:
        run_id = whole_id(kept, run)
        events = redactor.events(kept.read(run_id))
        data = run_data(kept.run(run_id), events, redactor)
        if is_evaluation(events):
            page = evaluation_report(evaluation(run_id, events), data)
        else:
            page = report(story(run_id, events), data)
    with _writing(out) as write:
        write(page)
    if out != "-":
        say(f"redraft: wrote run {run_id} to {out} ({len(page.encode()) / 1000:,.0f} kB)")
    return Exit.DONE
