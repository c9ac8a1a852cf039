"""`redraft runs`: what was kept of runs, to look at, compare, hand on and delete."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from redraft.cli.codes import Exit
from redraft.cli.output import coloured, emit, emit_json, say
from redraft.errors import UsageError

if TYPE_CHECKING:
    from redraft.store.sqlite import SqliteStore

_FORMATS = ("json", "jsonl", "sft", "dpo")


def _store(command: Callable[..., Any]) -> Callable[..., Any]:
    where = "The file that the runs are in.  [default: REDRAFT_STORE, redraft.toml, else .redraft/runs.db]"
    return click.option("--store", metavar="FILE", help=where)(command)


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group(invoke_without_command=True)
@click.pass_context
def runs(context: click.Context) -> int:
    """List, show, compare, export and delete runs.

    RUN is a run's id, or as much of its beginning as no other run has. `redraft run --store FILE` keeps runs, and so
    does every run where REDRAFT_STORE is set or redraft.toml names a `store`.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return Exit.DONE


@runs.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, at most.")
@_json
@_store
def list_(limit: int, as_json: bool, store: str | None) -> int:
    """The newest runs, a line each.

    Marked are those that an error ended ("x error"), those that never ended or are at work ("not ended"), and those whose
    events are damaged ("x unreadable"). A + is behind figures that may be higher: calls were cut off, or did not say what
    they used.
    """
    from redraft.cli.runs_table import run_json, shorts, table

    with opened(store) as kept:
        shown, ids = kept.runs(limit), kept.run_ids()
    if as_json:
        emit_json({"store": str(kept.path), "runs": [run_json(run) for run in shown]})
        return Exit.DONE
    for line in table(shown, shorts(ids)):
        emit(line)
    if not shown:
        say(f"redraft: no run is kept in {kept.path}")
    elif len(ids) > len(shown):
        say(f"redraft: {len(ids) - len(shown)} older ones are left out; -n {len(ids)} shows them")
    return Exit.DONE


@runs.command()
@click.argument("run", required=False)
@_json
@_store
def show(run: str | None, as_json: bool, store: str | None) -> int:
    """Every draft of RUN, or of the newest one: what changed, how it was judged, what was decided and why."""
    from redraft.cli.runs_table import heading, run_json
    from redraft.report.data import drafts_data, event_data
    from redraft.report.kept import auto_of, drafts_of, told
    from redraft.report.text import trajectory
    from redraft.result import one_line

    with opened(store) as kept:
        run_id = whole_id(kept, run)
        short, events = kept.run(run_id), kept.read(run_id)
    assert short is not None
    found = drafts_of(events)
    if as_json:
        data = {"refinements": [drafts_data(drafts) for drafts in found], "events": [event_data(e) for e in events]}
        emit_json({**run_json(short), **data})
        return Exit.DONE
    emit(heading(short))
    if auto := auto_of(events):
        emit(one_line(f"auto: {auto}"))
    for drafts in told(found):
        emit(f"\nin {one_line(drafts.scope)}\n" if drafts.scope else "")
        emit(trajectory(drafts.attempts, drafts.best, colour=coloured()))
    return Exit.DONE


@runs.command()
@click.argument("run")
@click.argument("a", type=click.IntRange(min=1))
@click.argument("b", type=click.IntRange(min=1))
@_store
def diff(run: str, a: int, b: int, store: str | None) -> int:
    """What changed from draft A to draft B of a run, word by word."""
    from redraft.report.diff import marked, word_diff
    from redraft.report.kept import drafts_of, outermost
    from redraft.result import printable

    with opened(store) as kept:
        run_id = whole_id(kept, run)
        found = list(outermost(drafts_of(kept.read(run_id))))
    drafts = next((d for d in found if not d.scope), found[0] if len(found) == 1 else None)
    if drafts is None:
        nested = f"{len(found)} refinements with drafts of their own: look at them with `redraft runs show {run}`"
        raise UsageError(f"run {run_id} has {nested if found else 'no drafts'}")
    texts = {attempt.index + 1: printable(attempt.text) for attempt in drafts.attempts}
    for number in (a, b):
        if number not in texts:
            raise UsageError(f"run {run_id} has no draft {number}; it has {', '.join(map(str, texts))}")
    emit(marked(word_diff(texts[a], texts[b]), colour=coloured()))
    return Exit.DONE


@runs.command()
@click.argument("run", nargs=-1)
@click.option("--format", "form", type=click.Choice(_FORMATS), default="jsonl", show_default=True, help="See above.")
@click.option("-o", "--out", metavar="FILE", help="Write there instead of to stdout.")
@_store
def export(run: tuple[str, ...], form: str, out: str | None, store: str | None) -> int:
    """Write runs out: those named, or all.

    \b
    json, jsonl  everything of a run: its figures, drafts and events
    sft          prompt and completion of accepted drafts that pass their checks
    dpo          prompt, chosen and rejected: the best draft with each one of the same
                 run that scores below it

    sft and dpo are JSON lines in the conversational form that TRL and `datasets` load.
    """  # noqa: D301 - click reads the backspace
    from redraft.cli.runs_export import lines

    with opened(store) as kept, _writing(out) as write:
        ids = _wholes(kept, run) if run else kept.run_ids()[::-1]
        for line in lines(kept, ids, form, named=bool(run)):
            write(line)
    return Exit.DONE


@runs.command()
@click.argument("run", nargs=-1, required=True)
@_yes
@_store
def delete(run: tuple[str, ...], yes: bool, store: str | None) -> int:
    """Delete runs for good."""
    from redraft.result import count

    with opened(store) as kept:
        ids = _wholes(kept, run)
        what = count(len(ids), "run")
        if not yes and not _agreed(f"Delete {what}{_still_open(kept, ids)} for good?"):
            say("redraft: nothing was deleted")
            return Exit.FAILED
        kept.delete(*ids)
    say(f"redraft: deleted {what}; `redraft runs gc` gives the space back")
    return Exit.DONE


@runs.command()
@click.option("--refused", is_flag=True, help="Delete, too, the files with what the store could not take.")
@click.option("--vacuum", is_flag=True, help="Rewrite the file: no run can write meanwhile.")
@_store
def gc(refused: bool, vacuum: bool, store: str | None) -> int:
    """Give the space of deleted runs back to the disk, in small steps: runs that are at work go on.

    A file that an older redraft made gets shorter with --vacuum only; do that while no run is at work, which might find the
    file locked.
    """
    with opened(store) as kept:
        done = kept.gc(refused=refused, vacuum=vacuum)
    emit(
        f"dropped {done.messages} messages and {done.events} events of deleted runs; "
        f"the file is {done.bytes / 1e6:.1f} MB shorter"
    )
    if done.free > 1_000_000:
        emit(f"{done.free / 1e6:.1f} MB in it are free for later runs; --vacuum gives them back, too")
    for file in done.refused:
        does = "deleted" if refused else "events that the store could not take; --refused deletes it"
        emit(f"{file}: {does}")
    return Exit.DONE


def store_path(given: str | None) -> Path:
    """The file that is meant: the option, `REDRAFT_STORE`, the project's file, the usual place."""
    from redraft.config import DEFAULT_STORE, store_said

    return Path(given or store_said() or DEFAULT_STORE).expanduser()


@contextlib.contextmanager
def opened(given: str | None) -> Iterator[SqliteStore]:
    """The store. A file that is not there is not made: nobody looks for runs in order to make one."""
    from redraft.store.sqlite import SqliteStore

    path = store_path(given)
    if not path.exists():
        raise UsageError(
            f"no runs are kept in {path}: there is no such file; name another one with --store, or keep runs there with "
            f"`redraft run --store {path}`"
        )
    with SqliteStore(path) as store:
        yield store


def whole_id(store: SqliteStore, short: str | None) -> str:
    """The run id that begins so; without one the newest."""
    if short is not None:
        return _wholes(store, (short,))[0]
    if not (ids := store.run_ids()):
        raise UsageError(f"no run is kept in {store.path}")
    return ids[0]


def _wholes(store: SqliteStore, shorts: Sequence[str]) -> list[str]:
    """The run ids that begin so, each once."""
    ids = store.run_ids()
    known = set(ids)
    found: dict[str, None] = {}
    for short in shorts:
        alike = [short] if short in known else [run_id for run_id in ids if short and run_id.startswith(short)]
        if not alike:
            raise UsageError(f"there is no run {short!r} in {store.path}; `redraft runs list` shows which there are")
        if len(alike) > 1:
            some = ", ".join(alike[:5]) + (", ..." if len(alike) > 5 else "")
            raise UsageError(f"{short!r} is the beginning of {len(alike)} runs: {some}; give more of it")
        found[alike[0]] = None
    return list(found)


def _still_open(store: SqliteStore, ids: Sequence[str]) -> str:
    found = [run for run_id in ids if (run := store.run(run_id)) is not None and run.ended is None]
    return f" ({len(found)} not ended: perhaps at work still)" if found else ""


def _agreed(question: str) -> bool:
    if not stdin_is_a_terminal():
        raise UsageError("there is no terminal to ask on; --yes deletes without asking")
    return click.confirm(question, err=True)


def stdin_is_a_terminal() -> bool:
    """True if somebody is there to be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextlib.contextmanager
def _writing(out: str | None) -> Iterator[Callable[[str], None]]:
    """Where the lines go. A file is there once it is whole; a pipe or a device is written as it is."""
    if out in (None, "-"):
        yield emit
        return
    path = Path(out).expanduser()
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--out {out!r} is {'a folder' if path.is_dir() else 'in no folder that is there'}")
    ours = path.is_file() or not path.exists()
    path = path.resolve() if ours else path  # what a link leads to is replaced, not the link
    part = path.with_name(f"{path.name}.{os.getpid()}.part") if ours else path
    try:
        with part.open(
            "w", encoding="utf-8", errors="backslashreplace"
        ) as file:  # half a surrogate pair, as JSON has it
            yield lambda line: print(line, file=file)
        part.replace(path)
    finally:
        if ours:
            part.unlink(missing_ok=True)
