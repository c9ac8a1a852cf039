"""Every error redraft raises, as one tree.

    RedraftError
    |- UsageError                 the caller can mend it before anything is spent
    |  |- ConfigError             a setting, file or environment variable is missing or wrong
    |  |- UnknownNameError        no model, strategy or check of that name (lists the known ones)
    |  |- SignatureError          a signature string or class cannot be read
    |  |- InputError              wrong, missing or empty inputs of a module
    |  |- SyncOnLoopError         a sync call on the loop that would have to run it
    |  `- PriceUnknownError       a money limit on a model whose price is unknown
    |- LMError                    a call to a model failed (see its fields)
    |  |- TransientLMError        worth another try: 429, 5xx, lost connection, timeout, garbage
    |  |- AuthError               401 or 403
    |  |- BadRequestError         another 4xx: the same request would fail again
    |  |  |- ContextOverflowError the prompt does not fit the model
    |  |  `- UnsupportedError     the model refuses one parameter (`parameter` names it)
    |  `- LocalEngineError        the embedded engine cannot start or stopped answering
    |- ParseError                 a reply does not hold the fields that were asked for
    |- SandboxError               a sandbox cannot hold, cannot start or stopped answering
    |- ModelFetchError            a local model could not be fetched, verified or stored
    |- ScoreError                 a check, reward function or critic raised or returned no finite score
    |- BudgetExceeded             a limit was reached (`limit`, `allowed`, `spent`)
    |- RunClosed                  a call on a run that has ended
    |- RunFailed                  no usable attempt; carries all that was tried
    |- ClusterError               the workers of a batch cannot be started or reached any more
    `- StoreError                 the run store cannot be read or written
       `- DivergedError           replayed code asked for something else than was recorded (strict)

Messages say what happened, the numbers, and what to do. Extension code raises plain Python errors;
they are classified at two boundaries only: user code (`Run.attempt`) and the wire (`Run.complete`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.types import Attempt, Completion, Usage


class RedraftError(Exception):
    """Base of every error that redraft raises on purpose.

    An error that ends a run carries what the run had: `attempts` (all that was tried), `usage` and `run_id`.
    """

    attempts: tuple[Attempt, ...] = ()
    usage: Usage | None = None
    run_id: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions unpickle by calling their class with `args`, which knows nothing of keyword arguments.
        return (_made_anew, (type(self), self.args), self.__dict__)


def _made_anew(kind: type[RedraftError], args: tuple[Any, ...]) -> RedraftError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class UsageError(RedraftError):
    """The call itself is wrong; nothing was spent."""


class ConfigError(UsageError):
    """A setting, a file or an environment variable is missing or wrong."""


class UnknownNameError(UsageError):
    """A name that the registry does not know."""


class SignatureError(UsageError):
    """A signature that cannot be read."""


class InputError(UsageError):
    """Inputs that do not fit the module's signature."""


class SyncOnLoopError(UsageError):
    """A sync call on the event loop that would have to run it: use `await x.acall(...)` there."""


class PriceUnknownError(UsageError):
    """A money limit was set, but the model's price is not known."""


class LMError(RedraftError):
    """A call to a model failed.

    `sent` says whether the request may have reached the model: an unsent or refused one costs a call and no
    tokens. `status` is the HTTP status, if there was one. `reported` is the usage, if the upstream told it all the same.
    """

    def __init__(
        self, message: str, *, status: int | None = None, sent: bool = False, reported: Usage | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.sent = sent
        self.reported = reported


class TransientLMError(LMError):
    """Another try may succeed. `retry_after` is what the upstream asked for, in seconds."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        sent: bool = False,
        reported: Usage | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, status=status, sent=sent, reported=reported)
        self.retry_after = retry_after


class AuthError(LMError):
    """The upstream refused the key."""


class BadRequestError(LMError):
    """The upstream refused the request; the same one would be refused again."""


class ContextOverflowError(BadRequestError):
    """The prompt and the room asked for the reply do not fit the model's context."""


class UnsupportedError(BadRequestError):
    """The model refuses one optional parameter, named in `parameter` (a field name of `Request`).

    `parts` are what of it is refused, where it is not all of it: schema keywords, or a value (an effort "minimal").
    """

    def __init__(self, message: str, *, parameter: str, status: int | None = None, parts: tuple[str, ...] = ()) -> None:
        super().__init__(message, status=status)
        self.parameter = parameter
        self.parts = parts


class LocalEngineError(LMError):
    """The embedded engine cannot start, or stopped answering."""


class ParseError(RedraftError):
    """A reply does not hold the fields that were asked for; `completion` is the reply."""

    def __init__(self, message: str, *, completion: Completion | None = None) -> None:
        super().__init__(message)
        self.completion = completion


class SandboxError(RedraftError):
    """A sandbox cannot hold what it promises, cannot start, or stopped answering: no fault of the code in it."""


class ModelFetchError(RedraftError):
    """A local model could not be fetched, verified or stored; nothing half-valid was left behind."""


class ScoreError(RedraftError):
    """A check, a reward function or a critic raised, or gave no finite score. Never read as a zero."""


class BudgetExceeded(RedraftError):
    """A limit was reached. `limit` is "calls", "tokens", "cost" or "seconds"."""

    def __init__(self, message: str, *, limit: str, allowed: float, spent: float, of: object = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.allowed = allowed
        self.spent = spent
        self.of = of
        """The meter whose limit it is; not kept in a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_made_anew, (type(self), self.args), {**self.__dict__, "of": None})

    def after(self, failure: str) -> BudgetExceeded:
        """The same, with what had failed before: raising the limit may not be what is wanted."""
        said = f"{self}; the last try had failed: {failure}"
        return BudgetExceeded(said, limit=self.limit, allowed=self.allowed, spent=self.spent, of=self.of)


class RunClosed(RedraftError):
    """The run has ended: it buys nothing more."""


class RunFailed(RedraftError):
    """A run ended without one usable attempt; `__cause__` is what went wrong last."""


class ClusterError(RedraftError):
    """No worker of a batch's cluster can be started or reached any more; what was paid for is in the store."""


class StoreError(RedraftError):
    """The run store cannot be read or written."""


class DivergedError(StoreError):
    """With `strict=True`: a resumed run ended without asking for replies that are on record, so its code or inputs changed."""


def ends_run(error: BaseException | None) -> BudgetExceeded | RunClosed | StoreError | None:
    """The ended budget or run, or the store that failed, which an error of user code or of a framework hides: its cause, or
    its cause's cause. A nested run that diverged ends alone.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BudgetExceeded | RunClosed | StoreError) and not isinstance(error, DivergedError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
