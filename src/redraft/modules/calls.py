"""Calls of tools, as models write them and as models are shown what came of them. Lenient in reading; nothing raises but
what ends a run.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from redraft.errors import InputError, ParseError, StoreError, UsageError, ends_run
from redraft.frame import current_frame
from redraft.jsonable import as_text
from redraft.modules.toolbox import Tool
from redraft.modules.wire import _parts, to_text
from redraft.sync import being_cancelled, call_user

_LONGEST = 20_000  # characters; json-repair takes quadratic time on degenerate texts


def named(tools: Collection[str], name: str) -> str:
    """The tool that a model means: by its name, or by one that differs in case, marks or a prefix if it is the only one."""
    if name in tools:
        return name
    said = _bare(name.rpartition(".")[2])
    same = [known for known in tools if _bare(known) == said]
    return same[0] if len(same) == 1 else ""


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


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
    if (parts := _parts(value)) is None:
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


def arguments_of(call: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Name and arguments of a call in wire form, and why the arguments cannot be read. None at all are an empty object."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments, why = read_arguments(function.get("arguments"))
    return str(function.get("name") or "").strip(), arguments, why


def read_arguments(raw: Any) -> tuple[Any, str]:
    """Arguments as JSON values: of a JSON text, nearly JSON (mended), or values already. Else the text, and what is wrong."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}, ""
    if not isinstance(raw, str):
        try:
            return json.loads(as_text(raw), parse_constant=_nothing), ""
        except (TypeError, ValueError, RecursionError) as error:
            return {}, f"the arguments are no JSON: {error}"
    try:
        value = json.loads(raw, strict=False, parse_constant=_nothing)
        if isinstance(value, str) and value.strip().startswith("{"):  # encoded twice
            value = json.loads(value, strict=False, parse_constant=_nothing)
        return _finite(value), ""
    except (ValueError, RecursionError) as error:
        mended = mended_object(raw)
        return (raw, f"the arguments are no JSON: {str(error)[:200]}") if mended is None else (mended, "")


def mended_object(text: str) -> dict[str, Any] | None:
    """The object of a text that is nearly JSON; None for what is none, or was cut: half an argument is none."""
    start = text.find("{")
    part = text[start:].strip().removesuffix("```").rstrip()
    if start < 0 or len(part) > _LONGEST or not part.endswith(("}", "]", '"', "'")):
        return None
    from json_repair import loads

    try:
        value = json.loads(json.dumps(loads(part)), parse_constant=_nothing)
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value else None


def _nothing(_: str) -> None:
    """NaN and infinity are no JSON: nothing is there."""


def _finite(value: Any) -> Any:
    """Numbers that were written so large that they read as infinite are none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
