"""An event as a row of the run store, and back. A call's messages are kept apart, each once: see `messages.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redraft.errors import StoreError
from redraft.journal import CALL, INTENT
from redraft.jsonable import encoder
from redraft.store.advice import DamagedError
from redraft.types import Event

Row = tuple[int, float, str, str, str, str, str | None]
"""seq, time, kind, scope, key; the data as JSON without line breaks; and the `content` of a call, where that comes first in
its data: it is taken out of it. A plain tuple: a named one costs a tenth of an append.
"""
_ASKING = (INTENT, CALL)
"""What says what was asked: an intent, and a reply out of the cache, which has none."""


def made(run_id: str, event: Event) -> Row:
    """The event's row. Raises `StoreError` if it is not JSON."""
    data, content = event.data, None
    try:
        if event.kind in _ASKING and next(iter(data), "") == "content":
            content = data["content"]
            if type(content) is str and (content.isascii() or _is_text(content)):
                data = dict(data)
                del data["content"]
            else:
                content = None
        return event.seq, event.time, event.kind, event.scope, event.key, _encode(data), content
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"Event {event.seq} ({event.kind}) of run {run_id!r} was not stored: its data is not JSON ({error}). "
            "Events hold JSON values only: text, finite numbers, booleans, null, lists, and mappings with text keys."
        ) from error


def whole(row: Row) -> str:
    """All of its data as JSON text."""
    data, content = row[5], row[6]
    if content is None:
        return data
    return f'{{"content":{_quoted(content)}{"}" if data == "{}" else f",{data[1:]}"}'


def parsed(head: Sequence[Any], data: str) -> Row:
    """The row of an event's other values, and its data as JSON text. Raises `ValueError` if they are none."""
    seq, at, kind, scope, key = head
    content = json.loads(data)
    if kind in _ASKING:
        return made("", Event(seq=seq, kind=kind, time=at, scope=scope, key=key, data=content))
    return seq, at, kind, scope, key, data, None


def event(row: Row) -> Event:
    """The event that a row holds. Raises `DamagedError` if its data is no JSON object."""
    seq, at, kind, scope, key, text, content = row
    try:
        data = json.loads(text)
    except ValueError as error:
        raise DamagedError(f"event {seq} ({kind}) is no JSON: {error}") from error
    if type(data) is not dict:
        raise DamagedError(f"event {seq} ({kind}) is no JSON object")
    if content is not None:
        data = {"content": content, **data}
    return Event(seq=seq, kind=kind, time=at, scope=scope, key=key, data=data)


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encode_readable = encoder(ensure_ascii=False, allow_nan=False, default=_plain)
_encode_escaped = encoder(ensure_ascii=True, allow_nan=False, default=_plain)
_quoted = json.encoder.encode_basestring


def _encode(data: object) -> str:
    """JSON: text as people read it, except where UTF-8 cannot hold it (half a surrogate pair)."""
    text = _encode_readable(data)
    return text if text.isascii() or _is_text(text) else _encode_escaped(data)


def _is_text(text: str) -> bool:
    """True if UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
