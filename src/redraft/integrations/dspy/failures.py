"""DSPy's errors as redraft's and back: each side meets the classes that it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dspy import lm15
from dspy.utils import exceptions as theirs

from redraft.errors import (
    AuthError,
    BadRequestError,
    BudgetExceeded,
    ContextOverflowError,
    LMError,
    ParseError,
    RedraftError,
    TransientLMError,
    UnsupportedError,
    UsageError,
)

_PARAMETERS = {
    "response_format": "schema",
    "json_schema": "schema",
    "structured_outputs": "schema",
    "reasoning": "effort",
    "reasoning_effort": "effort",
}


def as_lm_error(error: Exception, name: str) -> LMError | None:
    """What a DSPy LM raised as redraft's error; None for what nobody can classify."""
    if isinstance(error, ConnectionError | TimeoutError):
        return TransientLMError(f"{name}: {type(error).__name__}: {error}", sent=True)
    if isinstance(error, TypeError | ValueError):
        return BadRequestError(f"{name} cannot be asked this: {error}")
    if not isinstance(error, theirs.LMError):
        return None
    said, status = f"{name}: {error}", error.status
    if isinstance(error, theirs.ContextWindowExceededError):
        return ContextOverflowError(said, status=status)
    if isinstance(error, theirs.LMAuthError | theirs.LMNotConfiguredError):
        return AuthError(said, status=status)
    if isinstance(error, theirs.LMUnsupportedFeatureError):
        features = [str(f).rpartition(".")[2] for f in error.features] or ["request"]
        return UnsupportedError(said, parameter=_PARAMETERS.get(features[0], features[0]), status=status)
    if isinstance(error, theirs.LMInvalidRequestError | theirs.LMConfigurationError | theirs.LMBillingError):
        return BadRequestError(said, status=status)
    if isinstance(error, theirs.LMRateLimitError | theirs.LMLockTimeoutError):
        return TransientLMError(said, status=status, retry_after=error.retry_after)
    if theirs.is_retryable_lm_error(error) or isinstance(error, theirs.LMStreamAssemblyError):
        return TransientLMError(said, status=status, sent=True, retry_after=error.retry_after)
    return LMError(said, status=status, sent=True)


def as_engine_error(error: RedraftError) -> Exception:
    """What a model of ours raised, or the run it is called in, as an engine of DSPy raises it."""
    status = getattr(error, "status", None)
    kind: Any = lm15.LM15Error
    more: dict[str, Any] = {"status": status}
    if isinstance(error, ContextOverflowError):
        kind = lm15.ContextLengthError
    elif isinstance(error, AuthError):
        kind = lm15.AuthError
    elif isinstance(error, UnsupportedError):
        kind, more = lm15.UnsupportedFeatureError, {"feature": error.parameter, "status": status}
    elif isinstance(error, BadRequestError):
        kind = lm15.InvalidRequestError
    elif isinstance(error, TransientLMError):
        kind = lm15.RateLimitError if status == 429 else lm15.ServerError
        more["retry_after"] = error.retry_after
    elif isinstance(error, LMError):
        kind = lm15.ProviderError
    elif isinstance(error, BudgetExceeded):
        kind = lm15.BillingError
    elif isinstance(error, UsageError):
        kind = lm15.ConfigurationError
    made: Exception = kind(str(error), **more)
    return made


def own(error: BaseException) -> RedraftError | None:
    """The error of ours that DSPy wrapped, if there is one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RedraftError):
            return seen
        seen = seen.__cause__
    return None


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Around a call of a DSPy LM: its errors come out as redraft's."""
    try:
        yield
    except (theirs.LMError, ConnectionError, TimeoutError, TypeError, ValueError) as error:
        known = own(error) or as_lm_error(error, name)
        assert known is not None
        raise known from error


@contextmanager
def told_to_dspy() -> Iterator[None]:
    """Around a purchase made for DSPy's code: what its own LM raised comes out again, for those who catch it."""
    try:
        yield
    except LMError as error:
        if isinstance(error.__cause__, theirs.LMError):
            raise error.__cause__ from error.__cause__.__cause__  # its context is ours
        raise


@contextmanager
def taken_from_dspy() -> Iterator[None]:
    """Around a DSPy program: LM errors and unparsable replies come out as redraft's."""
    try:
        yield
    except theirs.LMError as error:
        known = own(error) or _context(error) or as_lm_error(error, error.model or "the model")
        assert known is not None
        raise known from error
    except theirs.AdapterParseError as error:
        raise ParseError(_complaint(error)) from error


def _context(error: BaseException) -> LMError | None:
    """`told_to_dspy` raised DSPy's error while it handled ours."""
    return error.__context__ if isinstance(error.__context__, LMError) else None


def _complaint(error: Any) -> str:
    """What is wrong with a reply, without the reply: a model that is shown it repeats it."""
    wanted = list(error.signature.output_fields)
    missing = [name for name in wanted if name not in (error.parsed_result or ())]
    if missing:
        return f"the reply has no field {' and no field '.join(map(repr, missing))}; they are: {', '.join(wanted)}"
    own_words = str(error.message).partition(f"Adapter {error.adapter_name} failed to parse")[0].strip()
    return own_words[:300] or f"the reply does not fit the fields {', '.join(wanted)}"
