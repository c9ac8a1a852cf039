"""JSON values for anything, the same in every process: never a memory address."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any


def plain(value: Any) -> Any:
    """A value that JSON knows, or that `plain` takes apart further: for `json`'s `default=`."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, bytes):
        return {"bytes": blake2b(value, digest_size=12).hexdigest()}
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, Collection):  # never an iterator: looking at an input must not use it up
        return list(value)
    text = str(value)
    return f"<{type(value).__qualname__}>" if " at 0x" in text else text


def showable(error: Exception) -> Exception:
    """The error itself, or one that says of which kind it was if its own message cannot be made."""
    try:
        str(error)
    except Exception:  # noqa: BLE001 - user code: an exception class with a faulty __str__
        return RuntimeError(f"{type(error).__name__}, whose message cannot be shown")
    return error


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=plain)


def canonical(value: Any) -> str:
    """One text for equal values: what keys are made of."""
    try:
        return _canonical(value)
    except TypeError:  # keys that JSON cannot sort, or has no form for
        return _canonical(_with_text_keys(value))


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_text_keys(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else _with_text_keys(plain(value))


def encoder(**options: Any) -> Callable[[Any], str]:
    """`json.JSONEncoder(**options).encode`, compact and for values without cycles.

    `JSONEncoder.encode` builds a new C encoder on every call, which takes as long as encoding a small value.
    """
    maker = json.JSONEncoder(separators=(",", ":"), check_circular=False, **options)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without it
        return maker.encode
    texts = json.encoder.encode_basestring_ascii if maker.ensure_ascii else json.encoder.encode_basestring
    rules = (maker.sort_keys, maker.skipkeys, maker.allow_nan)
    encode = make(None, maker.default, texts, None, maker.key_separator, maker.item_separator, *rules)
    return lambda value: "".join(encode(value, 0))


_canonical = encoder(ensure_ascii=False, sort_keys=True, default=plain)
