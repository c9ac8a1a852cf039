"""Copies of frozen values with some fields changed, fast enough for every call's path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def changed(value: T, changes: Mapping[str, Any]) -> T:
    """`dataclasses.replace` in a third of the time, for these values: they have slots, and check nothing when made."""
    kind: Any = type(value)
    copy: T = object.__new__(kind)
    for name, get, put in _slots(kind):
        put(copy, changes[name] if name in changes else get(value))
    return copy


@cache
def _slots(kind: Any) -> list[tuple[str, Callable[[Any], Any], Callable[[Any, Any], None]]]:
    return [(name, getattr(kind, name).__get__, getattr(kind, name).__set__) for name in kind.__slots__]
