"""Messages in the OpenAI wire form as pydantic-ai's, and its replies as choices.

What a provider wants back unchanged (signed thinking, encrypted reasoning, thought signatures on tool calls) travels in
a choice's `items`: one item, the reply in pydantic-ai's own JSON form. It goes back only to the provider that it came from.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from pydantic_ai import messages as theirs

from redraft.errors import BadRequestError
from redraft.types import Choice, Message, Usage

_FINISH = {"tool_call": "tool_calls"}
_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg", "ogg": "audio/ogg", "flac": "audio/flac", "aac": "audio/aac"}
_KEPT = ("kind", "provider_name", "provider_url", "canonical_system")
_PASSING = frozenset({"logprobs", "finish_reason", "timestamp"})
"""Details of a part that are told, never sent back."""


class Conversation:
    """Builds the list of messages for one provider and one model."""

    def __init__(self, provider: str, profile: Mapping[str, Any]) -> None:
        self._provider = provider
        self._inline = bool(profile.get("supports_inline_system_prompts"))
        self._id_length: int | None = profile.get("tool_call_id_length")
        self._tools: dict[str, str] = {}
        self._built: list[theirs.ModelMessage] = []

    def build(self, messages: Sequence[Message], prefill: str | None) -> list[theirs.ModelMessage]:
        """All messages. System messages go first where the model takes none in the middle."""
        system = [m for m in messages if m.get("role") in ("system", "developer")]
        first = [] if self._inline else system
        rest = messages if self._inline else [m for m in messages if m not in system]
        for message in (*first, *rest):
            self._add(message)
        if prefill is not None:
            self._built.append(theirs.ModelResponse(parts=[theirs.TextPart(_clean(prefill))]))
        if not any(isinstance(built, theirs.ModelRequest) for built in self._built):
            raise BadRequestError("there are no messages to send; give at least one user message")
        return self._built

    def _add(self, message: Message) -> None:
        role = message.get("role")
        if role == "assistant":
            self._built.append(self._reply(message))
            return
        if role in ("system", "developer"):
            part: theirs.ModelRequestPart = theirs.SystemPromptPart(_text(message.get("content")))
        elif role == "user":
            part = theirs.UserPromptPart(_content(message.get("content")))
        elif role == "tool":
            part = self._result(message)
        else:
            raise BadRequestError(f"a message has the role {role!r}; the roles are system, user, assistant and tool")
        last = self._built[-1] if self._built else None
        if isinstance(last, theirs.ModelRequest):
            last.parts = [*last.parts, part]
        else:
            self._built.append(theirs.ModelRequest(parts=[part]))

    def _result(self, message: Message) -> theirs.ToolReturnPart[Any]:
        call = str(message.get("tool_call_id") or "")
        content = _content(message.get("content") or "")
        return theirs.ToolReturnPart(
            tool_name=self._tools.get(call) or str(message.get("name") or "tool"),
            content=content if isinstance(content, str) else list(content),
            tool_call_id=self._id(call),
        )

    def _reply(self, message: Message) -> theirs.ModelResponse:
        text = _text(message.get("content"))
        calls = [self._call(call) for call in message.get("tool_calls") or ()]
        said: list[theirs.ModelResponsePart] = [*([theirs.TextPart(text)] if text else []), *calls]
        mine = next((i for i in message.get("items") or () if i.get("provider") == self._provider), None)
        if mine is None:
            return theirs.ModelResponse(parts=said)
        kept = theirs.ModelMessagesTypeAdapter.validate_python([mine["reply"]])[0]
        assert isinstance(kept, theirs.ModelResponse)
        told = [part for part in kept.parts if isinstance(part, theirs.ToolCallPart)]
        if _texts(kept.parts) != text or [c.tool_call_id for c in told] != [c.tool_call_id for c in calls]:
            # the message was edited: its words are the caller's, the thinking before them the provider's
            kept.parts = [*(part for part in kept.parts if isinstance(part, theirs.ThinkingPart)), *said]
        return kept

    def _call(self, call: Mapping[str, Any]) -> theirs.ToolCallPart[Any]:
        function = call.get("function") or {}
        name = str(function.get("name") or "")
        given = str(call.get("id") or "")
        self._tools[given] = name
        arguments = function.get("arguments") or "{}"
        if isinstance(arguments, str):
            arguments = _clean(arguments)
        return theirs.ToolCallPart(tool_name=name, args=arguments, tool_call_id=self._id(given))

    def _id(self, given: str) -> str:
        """The call's id, in the form that the provider takes."""
        if self._id_length is None or re.fullmatch(f"[A-Za-z0-9]{{{self._id_length}}}", given):
            return given
        return hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[: self._id_length]


def _clean(text: str) -> str:
    """Lone surrogates (half an emoji, cut by some model) become "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return _clean(content or "")
    return "".join(_clean(str(part.get("text") or "")) for part in content if part.get("type") in ("text", "refusal"))


def _content(content: Any) -> str | list[theirs.UserContent]:
    if content is None or isinstance(content, str):
        return _clean(content or "")
    return [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> theirs.UserContent:
    kind = part.get("type")
    if kind == "text":
        return _clean(str(part.get("text") or ""))
    if kind == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        return _from_url(str(url), theirs.ImageUrl)
    if kind == "input_audio":
        audio = part.get("input_audio") or {}
        sort = str(audio.get("format") or "wav")
        return theirs.BinaryContent(data=_decoded(audio.get("data")), media_type=_TYPES.get(sort, f"audio/{sort}"))
    if kind == "file":
        file = part.get("file") or {}
        if file.get("file_data"):
            return _from_url(str(file["file_data"]), theirs.DocumentUrl)
        raise BadRequestError("a file part needs file_data; ids of uploaded files belong to OpenAI's chat completions")
    raise BadRequestError(f"a content part of type {kind!r} cannot be sent; use text, image_url, input_audio or file")


def _from_url(url: str, elsewhere: Any) -> Any:
    """The bytes of a data URL, or what names another URL."""
    if not url.startswith("data:"):
        return elsewhere(url=url)
    head, _, data = url.removeprefix("data:").partition(",")
    media_type = head.partition(";")[0] or "text/plain"
    plain = _decoded(data) if head.endswith(";base64") else unquote_to_bytes(data)
    return theirs.BinaryContent(data=plain, media_type=media_type)


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(str(data or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError(f"a content part does not hold base64 data: {error}") from error


def _texts(parts: Iterable[theirs.ModelResponsePart]) -> str:
    return "".join(part.content for part in parts if isinstance(part, theirs.TextPart))


def thoughts(parts: Iterable[theirs.ModelResponsePart]) -> str:
    """The reasoning of a reply; several thoughts are paragraphs."""
    return "\n\n".join(part.content for part in parts if isinstance(part, theirs.ThinkingPart) and part.content)


def choice_of(
    reply: theirs.ModelResponse, provider: str, *, text: str | None = None, reasoning: str | None = None
) -> Choice:
    """The reply as a choice; `text` and `reasoning` are what was streamed, if it was."""
    details = reply.provider_details or {}
    finish = _FINISH.get(reply.finish_reason or "", reply.finish_reason) or details.get("finish_reason")
    return Choice(
        text=_texts(reply.parts) if text is None else text,
        reasoning=thoughts(reply.parts) if reasoning is None else reasoning,
        tool_calls=tuple(_as_call(part) for part in reply.parts if isinstance(part, theirs.ToolCallPart)),
        finish_reason=str(finish) if finish else None,
        logprobs=_logprobs(reply),
        items=_items(reply, provider),
    )


def _as_call(part: theirs.ToolCallPart[Any]) -> dict[str, Any]:
    arguments = part.args if isinstance(part.args, str) else json.dumps(part.args or {}, ensure_ascii=False)
    return {
        "id": part.tool_call_id,
        "type": "function",
        "function": {"name": part.tool_name, "arguments": arguments or "{}"},
    }


def _items(reply: theirs.ModelResponse, provider: str) -> tuple[Mapping[str, Any], ...]:
    if not any(_signed(part) for part in reply.parts):
        return ()
    dumped = theirs.ModelMessagesTypeAdapter.dump_python([reply], mode="json")[0]
    parts = []
    for part in dumped["parts"]:
        details = {k: v for k, v in (part.get("provider_details") or {}).items() if k not in _PASSING}
        kept = {k: v for k, v in part.items() if v is not None and k not in ("provider_details", "citations")}
        parts.append({**kept, "provider_details": details} if details else kept)
    return ({"provider": provider, "reply": {**{k: dumped.get(k) for k in _KEPT}, "parts": parts}},)


def _signed(part: Any) -> bool:
    details = getattr(part, "provider_details", None) or {}
    return bool(getattr(part, "signature", None)) or any(key not in _PASSING for key in details)


def _logprobs(reply: theirs.ModelResponse) -> tuple[Mapping[str, Any], ...] | None:
    """OpenAI's form as it stands, Google's brought into it."""
    told = (reply.provider_details or {}).get("logprobs")
    if isinstance(told, Mapping):
        chosen = told.get("chosen_candidates") or ()
        others = told.get("top_candidates") or ()
        return tuple(
            {
                **_token(token),
                "top_logprobs": [_token(o) for o in (others[i].get("candidates") or ())] if i < len(others) else [],
            }
            for i, token in enumerate(chosen)
        )
    found = [
        token
        for part in reply.parts
        if isinstance(part, theirs.TextPart)
        for token in _listed((part.provider_details or {}).get("logprobs"))
    ] or _listed(told)
    return tuple(found) or None


def _token(token: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": token.get("token") or "", "logprob": token.get("log_probability")}


def _listed(told: Any) -> list[Mapping[str, Any]]:
    inner = told.get("content") if isinstance(told, Mapping) else told
    return list(inner or ())


def usage_of(theirs_usage: Any) -> Usage | None:
    """The reported tokens; None if nothing was reported."""
    given, written = theirs_usage.input_tokens, theirs_usage.output_tokens
    if theirs_usage.unmeasured_requests or not (given or written):
        return None
    details = theirs_usage.details
    thought = (
        theirs_usage.output_reasoning_tokens or details.get("reasoning_tokens") or details.get("thoughts_tokens") or 0
    )
    return Usage(
        input_tokens=given,
        output_tokens=written,
        cached_tokens=min(theirs_usage.cache_read_tokens, given),
        reasoning_tokens=min(thought, written),
    )
