"""What an OpenAI-compatible upstream's refusals and failures mean, as redraft's errors."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redraft.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    LMError,
    TransientLMError,
    UnsupportedError,
)
from redraft.lm.openai_wire import OPTIONAL
from redraft.lm.thoughts import REASONING_FIELDS
from redraft.refusals import PASSED_ON, THIS_SCHEMA, keywords

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|max(imum)? model len"
    r"|(exceed|longer|larger|greater|too (long|large))\w*.{0,60}context.(length|size|window|limit)"
    r"|context.(length|size|window|limit).{0,40}exceed|prompt (is )?too long|input token count.{0,40}exceed"
    r"|reduce the length of the (messages|input|prompt)",
    re.IGNORECASE | re.DOTALL,
)
_REFUSAL = re.compile(
    r"unsupported|n[o']t support|unknown[ _](parameter|argument|field|name)|unrecogni[sz]ed"
    r"|extra_forbidden|not permitted|not allowed|unexpected (keyword|argument|field)|deprecated|incompatible with"
    r"|is unavailable now|enabled only for",
    re.IGNORECASE,
)
_SCHEMA = re.compile(
    r"schema conversion failed|invalid (json )?schema|invalid_json_schema|features not supported|unsupported field"
    r"|schema.{0,80}unsupported|unsupported (json )?(schema|keyword)|schema.{0,60}(too (complex|large|many)|exceeds)"
    r"|(compil|pars|build|convert|initiali)\w*.{0,20}(grammar|schema)|grammar.{0,30}(error|invalid|fail|too)",
    re.IGNORECASE | re.DOTALL,
)
"""Complaints of what a schema holds, in the words of OpenAI, Groq, vLLM, llama-server, Ollama and Google."""
_LEVEL = re.compile(
    r"supported values|must be (one of|[\"'`])|allowed values|invalid (value|think)|input should be|unknown variant"
    r"|think value|is not (a )?valid",
    re.IGNORECASE,
)
"""Complaints of a value, where the parameter itself is taken."""
_EFFORT = re.compile("effort|think", re.IGNORECASE)
_FORM = re.compile("schema|response.format", re.IGNORECASE)
_EVERYDAY = frozenset(["not", "if", "then", "else", "contains", "default", "title", "example", "examples"])
_SHORT = 2  # a name this short is an everyday word: it counts in quotes only


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a request went, for messages."""

    name: str
    model: str
    base_url: str
    key_variable: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an upstream said in place of a completion."""

    status: int | None
    message: str
    code: str = ""
    param: str = ""
    retry_after: float | None = None

    @classmethod
    def read(cls, status: int | None, body: object, headers: Mapping[str, str] | None = None) -> Refusal:
        """Out of an error body of any of the usual shapes; a numeric `code` stands in for a missing status."""
        told = body.get("error", body) if isinstance(body, Mapping) else body
        if not isinstance(told, Mapping):
            return cls(status, str(told or "no explanation")[:500], retry_after=retry_after(headers or {}))
        code = " ".join(str(told[key]) for key in ("code", "type") if told.get(key))
        first = code.split(" ")[0]
        return cls(
            status=int(first) if status is None and re.fullmatch("[1-5][0-9][0-9]", first) else status,
            message=str(told.get("message") or json.dumps(dict(told), default=str))[:500],
            code=code,
            param=str(told.get("param") or ""),
            retry_after=retry_after(headers or {}),
        )

    def refused(self, sent: Collection[str]) -> str | None:
        """The name, among those sent, that the upstream does not take; None if it complains of something else."""
        if self.status not in (400, 422) or not _REFUSAL.search(f"{self.code} {self.message}"):
            return None
        if self.param:
            root = re.split(r"[.\[]", self.param)[0]
            return root if root in sent else None
        words = [(word, key) for key in sent if key not in _NO_OPTIONS for word in _ALIASES.get(key, (key,))]
        found = [(at.start(), key) for word, key in words if (at := re.search(_word(word), self.message))]
        return min(found)[1] if found else None

    def refused_in(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """What the upstream does not take in the messages: "system" (the role), "reasoning" (carried back), or that
        there is none ("a tool call without reasoning_content").
        """
        bare = any(m.get("role") == "assistant" and "reasoning_content" not in m for m in messages)
        if bare and self.status == 400 and _WANTED.search(self.message):
            return NO_THOUGHT
        if self.status not in (400, 422, 500) or not _REFUSAL.search(f"{self.code} {self.message}"):
            return None
        roles = {m.get("role") for m in messages}
        if "system" in roles and _SYSTEM.search(self.message):
            return "system"
        carried = any(not m.keys().isdisjoint(REASONING_FIELDS) for m in messages)
        return "reasoning" if carried and _CARRIED.search(f"{self.param} {self.message}") else None


NO_THOUGHT = "a tool call without reasoning_content"
_WANTED = re.compile(
    r"missing.{0,20}reasoning_content|reasoning_content.{0,60}(missing|must be passed back)", re.IGNORECASE
)
_SYSTEM = re.compile(r"system['\"`]? role|role\b.{0,40}['\"`]system['\"`]|['\"`]system['\"`] role", re.IGNORECASE)
_CARRIED = re.compile(r"(messages|property|loc|assistant).{0,60}reasoning(_content|_details)?\b", re.IGNORECASE)
_ALIASES = {optional.names[0]: optional.names for optional in OPTIONAL.values()}
_NO_OPTIONS = ("model", "messages", "stream")  # everyday words in any message
FIELDS = {name: field for field, optional in OPTIONAL.items() for name in optional.names}
"""Request field by what the wire calls it."""


def _word(name: str) -> str:
    return rf"[`'\"]{name}[`'\"]|: {name}\b" if len(name) < _SHORT else rf"(?<!\w){re.escape(name)}(?!\w)"


def as_error(refusal: Refusal, sent: Collection[str], at: Endpoint, body: Mapping[str, Any] | None = None) -> LMError:
    """The one error that this refusal means. `body`, which was sent, tells which part of a parameter is refused."""
    status, said = refusal.status, refusal.message
    where = f"{at.name} at {at.base_url} answered {status or 'an error'}"
    if status == 429 and "insufficient_quota" not in refusal.code:
        return TransientLMError(f"{where}, too many requests: {said}", status=429, retry_after=refusal.retry_after)
    if status in (401, 403):
        return AuthError(f"{where}: {said}; check the key in {at.key_variable}", status=status)
    if status is not None and 300 <= status < 400:
        return BadRequestError(
            f"{where}, a redirect, which is not followed: give the final URL as --base-url", status=status
        )
    if status == 404:
        hint = f"no model {at.model!r} there, or no chat completions under that URL (most end in /v1)"
        return BadRequestError(f"{where}: {said}; {hint}", status=404)
    if _OVERFLOW.search(f"{refusal.code} {said}"):
        return ContextOverflowError(f"{where}: {said}; shorten the prompt or lower max_tokens", status=status)
    parameter, parts = refused_part(refusal, body or {})
    if parts:
        named = ", ".join(map(repr, parts))
        return UnsupportedError(f"{where}: {said}; leave {named} out", parameter=parameter, parts=parts, status=status)
    if status is None or status in (408, 409) or status >= 500:
        return TransientLMError(
            f"{where}: {said}", status=status, sent=status is None or status >= 500, retry_after=refusal.retry_after
        )
    name = refusal.refused(sent) or ""
    parameter = FIELDS.get(name) or (name if name in PASSED_ON else "")
    if parameter:
        return UnsupportedError(f"{where}: {said}; leave {parameter!r} out", parameter=parameter, status=status)
    return BadRequestError(f"{where}: {said}", status=status)


def refused_part(refusal: Refusal, body: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The parameter of which only a part is refused, and that part; no part if it is not so.

    A part is a schema's keywords ("this schema" if the upstream names none of them), or an effort's level. Some servers
    call it a fault of their own.
    """
    if refusal.status not in (None, 400, 422, 500, 501):
        return "", ()
    told = f"{refusal.param} {refusal.code} {refusal.message}"
    effort = body.get("reasoning_effort")
    about = body if refusal.param not in body else (refusal.param,)
    if isinstance(effort, str) and "reasoning_effort" in about and _EFFORT.search(told) and _LEVEL.search(told):
        return "effort", (effort,)
    form = body.get("response_format")
    schema = form.get("json_schema", {}).get("schema") if isinstance(form, Mapping) else None
    if schema is None:
        return "", ()
    used = sorted(keywords(schema))
    named = tuple(word for word in used if _names(refusal.message, word))
    if _SCHEMA.search(told):
        return "schema", named or (THIS_SCHEMA,)
    return "schema", named if _FORM.search(told) and _REFUSAL.search(told) else ()


def _names(message: str, keyword: str) -> bool:
    """True if the message names a schema's keyword, as it is or in snake case, outside of places and names."""
    text = re.sub(r"context=\([^)]*\)|response[_ ]format|\S*/\S*", " ", message)
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_?", re.escape(keyword))
    found = rf"[`'\"]{word}[`'\"]" if keyword in _EVERYDAY else rf"(?<![\w$]){word}(?!\w)"
    return re.search(found, text, re.IGNORECASE) is not None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the upstream asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
