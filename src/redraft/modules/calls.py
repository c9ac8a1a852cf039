"""Calls of tools, and how models are shown what came of them. Nothing raises but what ends a run."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

from redraft.errors import InputError, ParseError, StoreError, UsageError, ends_run
from redraft.frame import current_frame
from redraft.jsonable import as_text
from redraft.modules.toolbox import Tool
from redraft.modules.wire import parts_of, to_text
from redraft.sync import being_cancelled, call_user


async def observe(tool: Tool, arguments: Any, most: int) -> dict[str, Any]:
    """Call a tool. What the model is shown as `text`, content parts as `parts`, and of what kind an error was as `error`.

    The boundary to user code: what a tool raises is shown to the model, but for what ends a run.
    """
    try:
        placed, by_name = tool.read(copy.deepcopy(arguments))  # a tool may change what it is given
    except ParseError as error:
        return {"text": cut(f"{tool.name} was not called: {error}", most), "error": "arguments"}
    except Exception as error:  # noqa: BLE001 - user code: a type's own validator
        return {"text": cut(f"{tool.name} was not called: {_said(error)}", most), "error": type(error).__name__}
    try:
        value = await call_user(tool.fn, *placed, **by_name)
        return _shown(value, most)
    except Exception as error:  # noqa: BLE001 - a tool's own error is the model's to deal with
        if (ended := _ending(error)) is not None:
            raise ended from (error if ended is not error else error.__cause__)
        return {"text": cut(f"{tool.name} failed with {_said(error)}", most), "error": type(error).__name__}
    except asyncio.CancelledError:
        if being_cancelled():
            raise
        return {"text": f"{tool.name} was cancelled from inside", "error": "CancelledError"}


def _ending(error: Exception) -> BaseException | None:
    """What a tool's error says of the run: it has ended, or cannot go on; None for the tool's own affair."""
    frame = current_frame()
    stops = isinstance(error, StoreError | UsageError) and not isinstance(error, InputError)
    return (frame.meter.ended_by(error) if frame else ends_run(error)) or (error if stops else None)


def _said(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - user code: an exception class with a faulty __str__
        return type(error).__name__


def _shown(value: Any, most: int) -> dict[str, Any]:
    if (parts := _sendable_parts(value)) is not None:
        return {"text": "", "parts": parts}
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode("utf-8", "replace")
    try:
        text = "" if value is None else to_text(value, "result")
    except InputError:
        try:
            text = as_text(value)
        except (TypeError, ValueError, RecursionError):
            text = repr(value)
    return {"text": cut(text, most) if text.strip() else "(no output)"}


def _sendable_parts(value: Any) -> list[Any] | None:
    """The content parts (an image, say) that a tool returned, if they can be sent."""
    if (parts := parts_of(value)) is None:
        return None
    try:
        return list(json.loads(json.dumps(parts, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return None


def cut(text: str, most: int) -> str:
    """A text of at most some `most` characters: head and tail, and how much is missing between them."""
    if len(text) <= most:
        return text
    half = max(1, most // 2)
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} of {len(text):,} characters cut ...]\n{text[-half:]}"
