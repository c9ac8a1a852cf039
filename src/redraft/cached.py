"""Replies that other runs have paid for: opt-in (`configure(cache=...)`), found by what was asked, bypassed by retries.

What is kept stands for a first answer. Attempts after the first and replies that are asked for again read and write
nothing: a sample that is to be new must be, and must not take the first one's place.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from pathlib import Path
from typing import Protocol

from redraft.config import settings
from redraft.frame import Frame
from redraft.jsonable import canonical
from redraft.protocols import LM
from redraft.record import completion_data, completion_from, content, digest
from redraft.registry import load
from redraft.types import Completion, Request


class Cache(Protocol):
    """Texts by key. Fast, safe in threads, and never raises: a cache must not hurt a run."""

    def get(self, key: str) -> str | None:
        """What was put there, or None."""

    def put(self, key: str, text: str) -> None:
        """Keep a text; what is there already stays."""

    def forget(self, begin: str) -> None:
        """Let go of all keys that begin so."""


_open: dict[str, Cache] = {}
_lock = threading.Lock()


def cache_in_force() -> Cache | None:
    """The cache that is set here; a path is opened once a process, and closed when it ends."""
    wanted = settings().cache
    if wanted is None or not isinstance(wanted, str | os.PathLike):
        found: Cache | None = wanted
        return found
    path = str(Path(wanted).expanduser().absolute())
    with _lock:
        if path not in _open:
            opened = load("redraft.store.cache:SqliteCache")(path)
            atexit.register(opened.close)
            _open[path] = opened
        return _open[path]


class Place:
    """Where the reply of one call is, or will be."""

    def __init__(self, cache: Cache, key: str, asked: int | None) -> None:
        self._cache = cache
        self._key = key
        self._asked = asked

    def read(self) -> Completion | None:
        """The reply that is kept there; None too if it cannot be read."""
        text = self._cache.get(self._key)
        try:
            kept = None if text is None else completion_from(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # of another version
            return None
        return kept if kept is not None and kept.choices else None

    def keep(self, completion: Completion, cap: int | None) -> None:
        """Keep a bought reply, unless it was cut by less room than was asked for, or by a filter."""
        ends = {choice.finish_reason for choice in completion.choices}
        if "content_filter" in ends or ("length" in ends and cap != self._asked):
            return
        self._cache.put(self._key, canonical(completion_data(completion)))


def place_of(frame: Frame, lm: LM, request: Request, said: str) -> Place | None:
    """The place of a call's reply; None without a cache, and for a call that is to be new.

    `said` is the request's `content`. The same call made n times in a run has n places, so that it still gives n
    samples.
    """
    cache = None if frame.fresh else cache_in_force()
    if cache is None:
        return None
    base = _base(lm, request, said)
    return Place(cache, frame.run.journal.key("cache", base), request.max_tokens)


def forget(lm: LM, request: Request) -> None:
    """A kept reply was of no use: the next run asks anew."""
    cache = cache_in_force()
    if cache is not None:
        cache.forget(f"cache|{_base(lm, request, content(lm.name, request))}|")


def _base(lm: LM, request: Request, said: str) -> str:
    """What makes two calls the same to the cache: `content`, the cap, and where the model is (`lm.address`, if it says)."""
    return digest({"at": getattr(lm, "address", ""), "cap": request.max_tokens, "content": said})
