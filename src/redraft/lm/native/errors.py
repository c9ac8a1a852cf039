"""What pydantic-ai and the libraries below it raise, as redraft's errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from redraft.errors import (
    AuthError,
    BadRequestError,
    ContextOverflowError,
    LMError,
    TransientLMError,
    UnsupportedError,
)
from redraft.lm.openai_errors import Endpoint, Refusal, as_error, refused_part
from redraft.lm.openai_wire import asked
from redraft.types import Request

_WORDS: Mapping[str, tuple[str, ...]] = {
    # Request field: what the providers call it in their messages. The order decides between two in one message.
    "prefill": ("assistant message prefill", "prefill", "prefilling", "end with a user message"),
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "stop": ("stop_sequences", "stopSequences", "stop sequences", "stop"),
    "seed": ("seed",),
    "logprobs": ("logprobs", "top_logprobs", "responseLogprobs", "response_logprobs"),
    "schema": (
        *("output_config.format", "output_format", "response_schema", "responseSchema", "response_json_schema"),
        *("responseJsonSchema", "text.format", "response_format", "json_schema", "JSON schema", "structured output"),
        *("structured outputs", "JSON mode", "responseMimeType", "response_mime_type", "outputConfig"),
    ),
    "tool_choice": ("tool_choice", "toolChoice", "function_calling_config", "functionCallingConfig"),
    "tools": ("tools", "tool use", "tool calling", "function calling", "toolConfig"),
    "effort": (
        *("thinking", "reasoning", "reasoning_effort", "reasoning.effort", "effort", "thinkingConfig"),
        *("thinking_config", "thinkingLevel", "thinking_level", "thinkingBudget", "thinking_budget"),
        *("budget_tokens", "reasoning_format"),
    ),
}
_REFUSED = re.compile(
    r"unsupported|n[o']t support|not (available|enabled|permitted|allowed)|unknown|unrecogni[sz]ed|extra_forbidden"
    r"|deprecated|may only be set|must be set to 1|cannot both be|cannot be (used|specified|set)|must end with"
    r"|does not (take|accept)|extra inputs",
    re.IGNORECASE,
)
_MISDEEDS = (400, 422)


def read(error: BaseException, at: Endpoint, request: Request, *, begun: bool) -> LMError:
    """The one error that this exception means. `begun`: the request was being sent."""
    from pydantic_ai import exceptions as theirs

    if isinstance(error, theirs.ModelHTTPError) and error.status_code >= 300:
        return _told(error, at, request)
    if isinstance(error, theirs.ModelConnectionError):
        return _broken(error, at)
    if isinstance(error, theirs.ModelAPIError):
        return _unclear(error, at, request)
    why = f"{str(error).splitlines()[0] if str(error) else ''} ({type(error).__name__})"
    if isinstance(error, theirs.UserError) or not begun:
        return BadRequestError(f"{at.name} cannot be asked this: {why[:500]}")
    return TransientLMError(f"{at.name} sent an unreadable reply: {why[:500]}", sent=True)


def _told(error: Any, at: Endpoint, request: Request) -> LMError:
    """An answer with a status, or an error within a stream that has one."""
    from pydantic_ai import exceptions as theirs

    refusal = _refusal(error, error.status_code)
    status, said = refusal.status, refusal.message
    where = f"{at.name} at {at.base_url} answered {status}"
    if isinstance(error, theirs.ModelContextWindowExceededError):
        return ContextOverflowError(f"{where}: {said}; shorten the prompt or lower max_tokens", status=status)
    if isinstance(error, theirs.ModelQuotaExceededError):
        return BadRequestError(f"{where}, the account's quota or credit is used up: {said}", status=status)
    if isinstance(error, theirs.ModelAuthenticationError):
        return AuthError(f"{where}: {said}; check the key in {at.key_variable}", status=status)
    if isinstance(error, theirs.ModelNotFoundError):
        meant = f"; did you mean {error.suggested_model_id!r}?" if error.suggested_model_id else ""
        return BadRequestError(f"{where}: {said}; there is no model {at.model!r}{meant}", status=status)
    if (refused := _refused(refusal, request, where)) is not None:
        return refused
    found = as_error(refusal, (), at)
    if error.in_stream:
        found.sent = True
    return found


def _broken(error: Any, at: Endpoint) -> TransientLMError:
    sent = error.phase not in ("pool", "connect")
    what = "the connection broke after the request was sent" if sent else "no connection; does a server run there?"
    cause = error.__cause__
    why = error.message or str(cause or "") or type(cause or error).__name__
    return TransientLMError(f"{at.name} at {at.base_url}: {what} ({why})", sent=sent)


def _unclear(error: Any, at: Endpoint, request: Request) -> LMError:
    """No status of its own: a redirect, an error event, a body that is no JSON."""
    from pydantic_ai import exceptions as theirs

    cause = getattr(error.__cause__, "response", None)
    status = getattr(cause, "status_code", None)
    if isinstance(status, int) and 300 <= status < 400:
        return BadRequestError(
            f"{at.name} at {at.base_url} answered {status}, a redirect, which is not followed: give the final URL as "
            "base_url",
            status=status,
        )
    if isinstance(error, theirs.ModelContextWindowExceededError):
        return ContextOverflowError(f"{at.name}: {error.message}; shorten the prompt or lower max_tokens")
    if isinstance(error, theirs.ModelRequestRejectedError):
        refusal = Refusal(status=400, message=error.message)
        return _refused(refusal, request, at.name) or BadRequestError(f"{at.name}: {error.message}")
    return TransientLMError(
        f"{at.name} at {at.base_url} sent no readable reply: {error.message[:500]}",
        sent=True,
        retry_after=error.retry_after,
    )


def _refusal(error: Any, status: int) -> Refusal:
    body = _parsed(error.body)
    if isinstance(body, Mapping) and isinstance(nested := body.get("Error"), Mapping):  # boto3's form
        body = {"message": nested.get("Message"), "code": nested.get("Code")}
    told = Refusal.read(status, body, error.headers)
    return Refusal(
        status=status,
        message=told.message,
        code=f"{told.code} {error.provider_error_code or ''} {error.provider_error_type or ''}",
        param=told.param,
        retry_after=error.retry_after if error.retry_after is not None else told.retry_after,
    )


def _parsed(body: object) -> object:
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except ValueError:
        return body


def _refused(refusal: Refusal, request: Request, where: str) -> UnsupportedError | None:
    """For a field that the provider does not take, or a part of one: a schema's keywords, a level of effort."""
    said, status = refusal.message, refusal.status
    as_chat = {
        "reasoning_effort": request.effort,
        "response_format": {"json_schema": {"schema": request.schema}} if request.schema is not None else None,
    }
    field, parts = refused_part(refusal, as_chat) if status in _MISDEEDS else ("", ())
    if parts:
        named = ", ".join(map(repr, parts))
        return UnsupportedError(f"{where}: {said}; leave {named} out", parameter=field, parts=parts, status=status)
    found = refused_field(refusal, asked(request))
    if found is None:
        return None
    return UnsupportedError(f"{where}: {said}; leave {found!r} out", parameter=found, status=status)


def refused_field(refusal: Refusal, fields: Iterable[str]) -> str | None:
    """The request's field that the provider does not take, by its own words; None if it complains of something else."""
    told = f"{refusal.message} {refusal.param}"
    if refusal.status not in _MISDEEDS or not _REFUSED.search(f"{refusal.code} {told}"):
        return None
    sent = {*fields}
    found = [
        (at.start(), field)
        for field, words in _WORDS.items()
        if field in sent
        for word in words
        if (at := re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", told, re.IGNORECASE))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None
