"""What a client is told when it gets no answer: a status, a message, and what its own API would call it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from redraft.errors import (
    BadRequestError,
    BudgetExceeded,
    ConfigError,
    ContextOverflowError,
    LMError,
    ParseError,
    PriceUnknownError,
    RedraftError,
    RunFailed,
    StoreError,
    UnsupportedError,
    UsageError,
)

log = logging.getLogger("redraft.server")

CLIENT_LEFT = 499
"""What a request is counted as whose client left before the answer was there; nobody is sent it."""


class Refusal(Exception):
    """Ends a request. `retry_after` is seconds, as the upstream asked for or as the server's own queue guesses."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code or _CODES.get(status, "")
        self.param = param
        self.retry_after = retry_after
        self._headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """The error's type, in OpenAI's words."""
        return _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    @property
    def headers(self) -> dict[str, str]:
        """What goes with the answer."""
        told = dict(self._headers)
        if self.retry_after is not None:
            told["retry-after"] = str(max(0, -int(-self.retry_after // 1)))
        if self.code in _NOT_AGAIN:
            told["x-should-retry"] = "false"
        return told


def refusal_of(error: BaseException) -> Refusal:
    """What an error means for the client: the upstream's own status where there was one."""
    if isinstance(error, Refusal):
        return error
    found = _inner(error)
    if isinstance(found, LMError):
        return _of_upstream(found)
    if isinstance(found, BudgetExceeded):
        if found.limit == "seconds":
            return Refusal(504, str(found), code="deadline_exceeded")
        return Refusal(429, str(found), code="budget_exceeded")
    if isinstance(found, ParseError):
        return Refusal(502, f"the model gave no usable answer: {found}", code="no_answer")
    if isinstance(found, ConfigError | PriceUnknownError):
        return Refusal(500, str(found), code="misconfigured")
    if isinstance(found, StoreError):
        log.error("%s", found)  # it names a file of this machine, which is nothing for clients
        told = "the run cannot be kept, so it was not gone on with; the server's log says more"
        return Refusal(503, told, code="store_unavailable", retry_after=1)
    if isinstance(found, UsageError):
        return Refusal(400, str(found), code="invalid_request")
    if isinstance(found, RedraftError):
        return Refusal(500, str(found), code="refinement_failed")
    return Refusal(500, f"unexpected {type(error).__name__} in the server; its log says more", code="internal_error")


def _inner(error: BaseException) -> BaseException:
    """What a failed run ended with: the upstream's refusal, where a limit only ended the tries."""
    while isinstance(error, RunFailed) and error.__cause__ is not None:
        error = error.__cause__
    tried = error.__cause__ if isinstance(error, BudgetExceeded) else None
    return tried if isinstance(tried, LMError) else error


def _of_upstream(error: LMError) -> Refusal:
    param = error.parameter if isinstance(error, UnsupportedError) else None
    code = "upstream_error"
    if isinstance(error, ContextOverflowError):
        code = "context_length_exceeded"
    elif isinstance(error, UnsupportedError):
        code = "unsupported_parameter"
    elif isinstance(error, BadRequestError):
        code = "invalid_request"
    status = error.status or (400 if isinstance(error, BadRequestError) else 502)
    status = status if 400 <= status <= 599 else 502
    return Refusal(status, str(error), code=code, param=param, retry_after=getattr(error, "retry_after", None))


_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    429: "rate_limit_exceeded",
}
_NOT_AGAIN = frozenset(
    {"budget_exceeded", "deadline_exceeded", "misconfigured", "refinement_failed", "no_answer", "forbidden_tool"}
)
"""The official clients try again at 429 and 5xx: these would only cost the same once more."""
