"""What an API's wire does. Pure: knows nothing of connections."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from redraft.errors import BadRequestError
from redraft.lm.openai_wire import as_json
from redraft.server.asked import Answer, Asked, Options
from redraft.server.refusal import Refusal

Body = Mapping[str, Any]

_PIECE = re.compile(r"\s*\S{1,80}(?:\s+\S{1,80}){0,7}\s*|\s+")
"""Eight words or so, with their white space; a word without end is cut."""


class Stream(Protocol):
    """One stream being written."""

    def begin(self) -> Iterator[bytes]:
        """What can be said before there is an answer."""

    def progress(self, told: Body) -> bytes:
        """Word of a draft or a critique, in an event that clients pass over."""

    def answer(self, answer: Answer) -> Iterator[bytes]:
        """The accepted text, and the stream's end."""

    def failed(self, refusal: Refusal) -> Iterator[bytes]:
        """The end of a stream that has no answer."""


class Wire(Protocol):
    """One API."""

    name: str
    upstream: str
    """The kind of upstream that takes the same bodies: "openai" or "anthropic"."""

    def read(self, body: Body, options: Options) -> Asked:
        """A request to a preset. Raises `BadRequestError` that names what cannot be read or honoured."""

    def whole(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        """The reply in one piece."""

    def stream(self, asked: Asked, run_id: str) -> Stream:
        """The reply as events."""

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """A refusal in this API's own form."""


def sse(data: Body | str, event: str = "") -> bytes:
    """One server-sent event."""
    body = data.encode() if isinstance(data, str) else as_json(data)
    return (b"event: %s\n" % event.encode() if event else b"") + b"data: " + body + b"\n\n"


PING = b": ping\n\n"
"""A comment, which every client passes over."""


def pieces(text: str) -> list[str]:
    """A text in the pieces that it is streamed in; together they are the text."""
    found = _PIECE.findall(text)
    return found if sum(map(len, found)) == len(text) else [text]


def as_object(raw: bytes) -> dict[str, Any]:
    """A request's body. Raises `Refusal` (400) for what is no JSON object."""
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise Refusal(400, f"the body has to be a JSON object, not {type(body).__name__}", code="invalid_json")
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def model_of(body: Body) -> str:
    """The model that a body names. Raises `Refusal` (400) without one."""
    model = body.get("model")
    if not isinstance(model, str) or not model.strip():
        raise Refusal(400, "the body's 'model' has to be a name", code="invalid_request", param="model")
    return model.strip()


def cannot(name: str, why: str) -> BadRequestError:
    """The error for a field that cannot be read, or not be honoured."""
    return BadRequestError(f"the request's {name!r} cannot be used: {why}", status=400)


def typed(body: Body, name: str, *kinds: type, default: Any = None) -> Any:
    """A field of one of these types, or the default where it is missing or null. Raises `BadRequestError`."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise cannot(name, f"it is {type(value).__name__}, not {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def objects_in(value: Any, name: str) -> list[dict[str, Any]]:
    """A list of objects. Raises `BadRequestError`."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise cannot(name, "give a list of objects")
    return value


def text_in(value: Any, name: str) -> str:
    """A text. Raises `BadRequestError`."""
    if not isinstance(value, str):
        raise cannot(name, f"give a text, not {type(value).__name__}")
    return value
