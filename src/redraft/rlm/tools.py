"""A user's own functions, as the sandboxed code calls them: by name, in place or by keyword. Each call is on record, so
that no effect is repeated. The boundary to user code: what a tool raises is raised in the model's code.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Mapping
from typing import Any

from redraft.errors import ParseError
from redraft.jsonable import as_text
from redraft.modules.toolbox import Tool
from redraft.rlm.answers import Asked, Failure, Outcome, Work, ending, failed, head, raised
from redraft.sync import being_cancelled, call_user


def host_function(tool: Tool) -> Work:
    """What calls the tool for the code in the sandbox."""

    async def call(asked: Asked, /, *args: Any, **kwargs: Any) -> Any:
        arguments = _by_name(tool, args, kwargs)
        asked.entry["prompt"] = head(arguments)
        asked.unsure = True  # what it did is done
        outcome = await _called(asked, tool, arguments)
        if "error" in outcome:
            raise Failure(outcome)
        asked.entry["reply"] = head(outcome["value"])
        return outcome["value"]

    return call


def _by_name(tool: Tool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the names of the tool's parameters. Raises `TypeError` for too many, or one twice."""
    names = list(tool.parameters.get("properties", ()))
    rest = next((a.name for a in getattr(tool, "_arguments", ()) if a.kind is inspect.Parameter.VAR_POSITIONAL), None)
    places = names if rest is None else names[: names.index(rest)]
    arguments: dict[str, Any] = dict(zip(places, args, strict=False))
    if (more := list(args[len(places) :])) and rest is None:
        raise TypeError(f"{tool.name} takes {len(names)} arguments ({', '.join(names) or 'none'}), got {len(args)}")
    if more and rest is not None:
        arguments[rest] = more
    if twice := arguments.keys() & kwargs.keys():
        raise TypeError(f"{tool.name} got {min(twice)!r} twice: in place and by name")
    return {**arguments, **kwargs}


async def _called(asked: Asked, tool: Tool, arguments: dict[str, Any]) -> Outcome:
    meter = asked.frame.meter
    meter.check_time()
    try:
        placed, by_name = tool.read(copy.deepcopy(arguments))
    except ParseError as error:
        return {"error": f"{tool.name} was not called: {error}", "kind": "TypeError"}
    except Exception as error:  # noqa: BLE001 - user code: a type's own validator
        return _said(tool, error)
    try:
        async with asyncio.timeout(meter.seconds_left):
            return {"value": plainly(await call_user(tool.fn, *placed, **by_name))}
    except Exception as error:
        if isinstance(error, TimeoutError) and meter.seconds_left is not None and meter.seconds_left <= 0:
            raise meter.out_of_time(f", while the tool {tool.name} was at work") from error
        if (ended := ending(asked.frame, error)) is not None:
            raise ended from (error if ended is not error else error.__cause__)
        return _said(tool, error)
    except asyncio.CancelledError:
        if being_cancelled():
            raise
        return {"error": f"{tool.name} was cancelled from inside", "kind": "RuntimeError"}


def _said(tool: Tool, error: Exception) -> Outcome:
    try:
        outcome = failed(error)
    except Exception:  # noqa: BLE001 - user code: an exception class with a faulty __str__
        outcome = {"error": "", "kind": type(error).__name__}
    builtin = type(raised(outcome)) is type(error)
    what = outcome["error"] if builtin else f"{outcome['kind']}: {outcome['error']}"
    return {**outcome, "error": f"{tool.name} failed: {what}"}


def plainly(value: Any) -> Any:
    """A tool's result as JSON holds it; what has no such form as the text that it shows itself as."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    try:
        return value if isinstance(value, str) else json.loads(as_text(value))
    except (TypeError, ValueError, RecursionError):
        return repr(value)
