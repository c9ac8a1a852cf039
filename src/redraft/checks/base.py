"""Check: one verifiable requirement, declared once and used several ways (docs/design.md section 5).

A check tells the author what it wants (`tell`), judges a prediction (`verdict`: score, and an explanation of what is
wrong and where), and may offer a constraint for decoding (`constraint`), a repair by code (`fix`) and an opinion on an
unfinished text (`guard`). Only one that says so (`asks`) calls a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from redraft.errors import ScoreError, UsageError
from redraft.scoring import as_score, name_of, takes_two
from redraft.sync import call_user
from redraft.types import APART, Inputs, Prediction, Verdict, draft_text

if TYPE_CHECKING:
    from redraft.checks.constraint import Constraint

Guard = Literal["pass", "fail", "unknown"]
"""What a prefix already tells: whatever follows, it will pass, or fail; or that depends on what follows."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raises `UsageError` for a `field`, `hard` or `tell` of another type, which would be taken in silence."""
    for name, kind, want in (
        ("field", str, "the name of an output"),
        *((n, bool, "true or false") for n in ("hard", "tell")),
    ):
        value = options.get(name)
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name} = {value!r}: give {want}")


class Check:
    """Base of checks: subclass it and define `tell_text` and `judge`, or wrap a function with `check`."""

    name = "check"
    always_mends = False
    """Its `fix` makes any text pass: it need not be held while decoding."""
    asks = False
    """It calls a model: judged last, and only where what code sees has passed."""

    def __init__(self, *, field: str | None = None, hard: bool = True, tell: bool = True) -> None:
        check_options({"field": field, "hard": hard, "tell": tell})
        self.field = field
        """The output field that is judged; None: the whole draft as text."""
        self.hard = hard
        """An edit may not make a passed hard check fail; samples with fewer hard failures rank first."""
        self.told = tell
        """False leaves the requirement out of the prompt, where the task states it already. It judges, hints and constrains
        all the same.
        """

    def tell(self) -> str:
        """The requirement in words, for the author's prompt; empty if hidden."""
        return self.tell_text() if self.told else ""

    def tell_text(self) -> str:
        """The requirement in words."""
        return ""

    def constraint(self) -> Constraint | None:
        """A language of texts that pass; None if there is none to offer. It may be narrower than the check: what was
        decoded under it is judged all the same.
        """
        return None

    def fix(self, value: Any) -> Any:
        """The value repaired by code so that this check passes, or at least scores higher; None if code cannot. Only form
        is repaired: nothing is invented.
        """
        del value
        return None

    def applied(self, prediction: Prediction) -> Prediction | None:
        """The prediction with this check's `fix`, if it has one that changes anything. Among several outputs only one that
        the check names can be repaired.
        """
        written = [name for name in prediction if name not in APART] or [*prediction]
        field = self.field or written[0] if len(written) == 1 else self.field
        if field is None or field not in prediction:
            return None
        value = self.fix(prediction[field])
        if value is None or value == prediction[field]:
            return None
        if isinstance(prediction[field], str) and not isinstance(value, str):
            raise ScoreError(
                f"the fix of check {self.name!r} made {type(value).__name__} of a text; return a text or None"
            )
        return Prediction({**prediction.to_dict(), field: value})

    def guard(self, prefix: str) -> Guard:
        """Whether a text that begins like this can still pass, and can still fail."""
        del prefix
        return "unknown"

    def judge(self, value: Any) -> tuple[float, str]:
        """Score 0..1 with partial credit, and what is wrong; exactly 1.0 passes."""
        raise TypeError(f"{type(self).__name__} defines no judge(value), e.g. for {value!r:.40}; return (score, why)")

    async def verdict(self, inputs: Inputs, prediction: Prediction) -> Verdict:
        """Judge a prediction. `inputs` are the module's, for checks that compare with them."""
        del inputs
        return self._as_verdict(*self.judge(self.value_of(prediction)))

    def value_of(self, prediction: Prediction) -> Any:
        """What this check looks at."""
        if self.field is None:
            return draft_text(prediction)
        if self.field not in prediction:
            raise ScoreError(
                f"check {self.name!r} looks at field {self.field!r}, but the output fields are: {', '.join(prediction)}"
            )
        return prediction[self.field]

    def _as_verdict(self, score: float, explanation: str) -> Verdict:
        if not 0.0 <= score <= 1.0:
            raise ScoreError(f"check {self.name!r} returned {score}; a check's score lies in 0..1, 1 passes")
        passed = score >= 1.0
        return Verdict(
            check=self.name, passed=passed, score=score, explanation="" if passed else explanation, hard=self.hard
        )

    def __repr__(self) -> str:
        return f"<check {self.name}: {self.tell_text() or 'hidden'}>"


class FunctionCheck(Check):
    """A user's function as a check."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        tell: str | Literal[False] = "",
        name: str = "",
        field: str | None = None,
        hard: bool = True,
        fix: Callable[[Any], Any] | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        super().__init__(field=field, hard=hard, tell=tell is not False)  # "" is an oversight that lint warns of
        self.fn = fn
        self._fix = fix
        self._constraint = constraint
        self.name = name or name_of(fn)
        self._tell = tell or ""
        self._two = takes_two(fn)

    def tell_text(self) -> str:
        """The text given with the function."""
        return self._tell

    def fix(self, value: Any) -> Any:
        """What the function given with the check makes of it."""
        return None if self._fix is None else self._fix(value)

    def constraint(self) -> Constraint | None:
        """The constraint given with the function."""
        return self._constraint

    async def verdict(self, inputs: Inputs, prediction: Prediction) -> Verdict:
        """Call the function with the draft's text (or field), or with (inputs, prediction) if it takes two."""
        given = (dict(inputs), prediction) if self._two else (self.value_of(prediction),)
        value = await call_user(self.fn, *given)
        if isinstance(value, str):
            value = (0.0, value) if value.strip() else True  # complaints, or none
        elif value is None:
            value = True  # like an assertion that held
        score = as_score(value, f"check {self.name!r}")
        return self._as_verdict(score.value, score.feedback or f"{self.name} failed")


@overload
def check(fn: Callable[..., Any], /, **options: Any) -> FunctionCheck: ...
@overload
def check(**options: Any) -> Callable[[Callable[..., Any]], FunctionCheck]: ...
def check(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a check of a function, as a call or a decorator. Options: `tell`, `name`, `field`, `hard`, `fix`
    (value -> repaired value, or None) and `constraint`.

    The function takes the draft's text (or the field's value), or `(inputs, prediction)`. It returns a bool, a number
    in 0..1 (1 passes), `(score, "what is wrong")`, a complaint as text, or None for fine. `tell` is what the author is
    told; without it the check stays hidden from the author.
    """
    if fn is None:
        return lambda f: FunctionCheck(f, **options)
    return FunctionCheck(fn, **options)
