"""An event as a row of the run store, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redraft.errors import StoreError
from redraft.jsonable import encoder
from redraft.types import Event

Row = tuple[int, float, str, str, str, str]
"""seq, time, kind, scope, key, and the data as JSON text without line breaks."""


def event(row: Row) -> Event:
    """The event that a row holds."""
    seq, at, kind, scope, key, data = row
    return Event(seq=seq, kind=kind, time=at, scope=scope, key=key, data=json.loads(data))


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encode_readable = encoder(ensure_ascii=False, allow_nan=False, default=_plain)
_encode_escaped = encoder(ensure_ascii=True, allow_nan=False, default=_plain)


def encode(run_id: str, event: Event) -> str:
    """The event's data as JSON: text as people read it, except where UTF-8 cannot hold it (half a surrogate pair)."""
    try:
        text = _encode_readable(event.data)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return _encode_escaped(event.data)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"Event {event.seq} ({event.kind}) of run {run_id!r} was not stored: its data is not JSON ({error}). "
            "Events hold JSON values only: text, finite numbers, booleans, null, lists, and mappings with text keys."
        ) from error
