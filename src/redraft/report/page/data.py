"""A run as the JSON that its reader can save: secrets left out, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from redraft.report.data import drafts_data, event_data
from redraft.report.kept import drafts_of
from redraft.report.page.redact import Redactor
from redraft.report.page.story import readable
from redraft.store.kept import KeptRun
from redraft.types import Event


def run_data(short: KeptRun | None, events: Sequence[Event], redactor: Redactor) -> dict[str, Any]:
    """The figures, drafts and events of a run; `events` are redacted already. Raises `StoreError` as `story` does."""
    with readable("" if short is None else short.run_id):
        return {
            **({} if short is None else redactor.value(asdict(short))),
            "refinements": [drafts_data(drafts) for drafts in drafts_of(events)],
            "events": [event_data(event) for event in events],
        }
