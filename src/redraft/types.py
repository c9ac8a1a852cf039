"""The values that everything else passes around: frozen, standard library only.

Nothing here calls, judges or stores anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from redraft.copies import changed
from redraft.jsonable import as_text

Message = Mapping[str, Any]
"""One chat message in the OpenAI wire form; images, tool calls and tool results pass through untouched."""

Inputs = Mapping[str, Any]
"""A module's named inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model can do, declared by its LM and narrowed when the upstream refuses something."""

    json_schema: bool = False
    grammar: bool = False
    """Takes a llguidance grammar."""
    n: bool = False
    logprobs: bool = False
    prefill: bool = False
    """Continues a trailing assistant message."""
    seed: bool = False
    temperature: bool = True
    tools: bool = False
    reasoning: bool = False
    stream: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent to a model. Unset fields are not sent."""

    messages: tuple[Message, ...]
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Cap on the reply's tokens, reasoning included, per choice."""
    stop: tuple[str, ...] = ()
    seed: int | None = None
    n: int = 1
    schema: Mapping[str, Any] | None = None
    """JSON schema that the reply must follow."""
    grammar: str | None = None
    """llguidance grammar (Lark form) that the reply must follow."""
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    logprobs: int | None = None
    """Number of alternatives a token to report; 0 reports the chosen token only."""
    prefill: str | None = None
    """Text that the reply continues; the completion's text does not repeat it."""
    effort: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further body fields, passed to the upstream as they are."""

    def but(self, **changes: Any) -> Request:
        """A copy with some fields changed."""
        return changed(self, changes)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Usage:
    """What calls cost. Sums by `+`.

    `tokens` are known (or estimated) amounts; `uncertain_tokens` is how many more the calls without reported usage
    may have used at most, so the truth lies in [tokens, tokens + uncertain_tokens]. Money likewise, in dollars.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    """Reasoning tokens included."""
    cached_tokens: int = 0
    """Part of `input_tokens` served from a prefix cache."""
    reasoning_tokens: int = 0
    """Part of `output_tokens`."""
    cost: float = 0.0
    uncertain_tokens: int = 0
    uncertain_cost: float = 0.0
    estimated: int = 0
    """Calls whose tokens were counted here (words at least, bytes at most) because the upstream reported none."""
    unpriced: int = 0
    """Calls of a model whose price is unknown: `cost` does not hold them."""
    overrun: int = 0
    """Tokens that upstreams produced beyond the cap they were given."""
    unbounded: int = 0
    """Calls that ended without usage and had no cap: how much they used at most is not known."""
    soft: int = 0
    """Calls that other code bought by itself: metered when they had ended, so that no limit held them back."""

    def __repr__(self) -> str:
        spent = ", ".join(f"{name}={value!r}" for name in self.__slots__ if (value := getattr(self, name)))
        return f"Usage({spent})"

    @property
    def tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def exact(self) -> bool:
        """True if every call reported its usage."""
        return not (self.estimated or self.uncertain_tokens or self.uncertain_cost or self.unbounded)

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=self.cost + other.cost,
            uncertain_tokens=self.uncertain_tokens + other.uncertain_tokens,
            uncertain_cost=self.uncertain_cost + other.uncertain_cost,
            estimated=self.estimated + other.estimated,
            unpriced=self.unpriced + other.unpriced,
            overrun=self.overrun + other.overrun,
            unbounded=self.unbounded + other.unbounded,
            soft=self.soft + other.soft,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the n texts of a completion."""

    text: str = ""
    reasoning: str = ""
    """Kept apart: reasoning is never judged as the answer."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """In the OpenAI wire form."""
    finish_reason: str | None = None
    """"stop", "length", "tool_calls", "content_filter" or what the upstream said."""
    logprobs: tuple[Mapping[str, Any], ...] | None = None
    """One mapping a token, in the OpenAI wire form: token, logprob, top_logprobs."""
    items: tuple[Mapping[str, Any], ...] = ()
    """JSON that the provider wants back in the next turn (signed thinking); its key `provider` says which one reads it."""

    def message(self) -> dict[str, Any]:
        """The choice as an assistant message for the next turn: reasoning is left out but for the provider's `items`."""
        said: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            said["tool_calls"] = [*self.tool_calls]
        return {**said, "items": [*self.items]} if self.items else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply of a model, of `n` choices; the plain attributes are the first choice's."""

    choices: tuple[Choice, ...]
    model: str = ""
    usage: Usage | None = None
    """As the upstream reported it (tokens only; `uncertain_tokens` if it was cut short here). None: it reported nothing."""

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text

    @property
    def reasoning(self) -> str:
        """The first choice's reasoning."""
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> tuple[Mapping[str, Any], ...]:
        """The first choice's tool calls."""
        return self.choices[0].tool_calls

    @property
    def finish_reason(self) -> str | None:
        """The first choice's finish reason."""
        return self.choices[0].finish_reason

    @property
    def logprobs(self) -> tuple[Mapping[str, Any], ...] | None:
        """The first choice's token log probabilities."""
        return self.choices[0].logprobs


class Prediction:
    """A module's output: fields as attributes and as items. No field name is reserved.

    A field whose name is also a method or (in a Result) a property is read as an item: `p["score"]`.
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        object.__setattr__(self, "_fields", {**(fields or {}), **more})

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "_fields")[name]
        except (KeyError, AttributeError):
            known = ", ".join(self._fields) if name != "_fields" else ""
            raise AttributeError(f"no field {name!r}; the fields are: {known or 'none'}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} does not change; build a new one to set {name!r}")

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prediction) and self._fields == other._fields

    __hash__ = None  # type: ignore[assignment]  # field values may be unhashable

    def __reduce__(self) -> tuple[Any, ...]:
        return (Prediction, (self._fields,))

    def __repr__(self) -> str:
        return f"Prediction({', '.join(f'{k}={v!r}' for k, v in self._fields.items())})"

    def to_dict(self) -> dict[str, Any]:
        """The fields as a new dict."""
        return dict(self._fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one check said of one prediction."""

    check: str
    passed: bool
    score: float
    """0..1, partial credit included."""
    explanation: str = ""
    """What is wrong and where; empty when passed."""
    hard: bool = True
    """An edit may not make a passed hard check fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A finite number, higher is better. "Reward" is the same thing."""

    value: float
    feedback: str = ""
    verdicts: tuple[Verdict, ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a score must be a finite number, got {self.value!r}")

    @property
    def passed(self) -> bool:
        """True if every check passed (also when there was none)."""
        return all(v.passed for v in self.verdicts)

    @property
    def hard_failures(self) -> int:
        """How many hard checks failed."""
        return sum(1 for v in self.verdicts if v.hard and not v.passed)

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key for independent samples: fewer hard failures first, then the value. Higher is better."""
        return (-self.hard_failures, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One thing that a critic wants changed."""

    problem: str
    suggestion: str = ""
    aspect: str = ""
    severity: Literal["minor", "major", "critical"] = "major"
    location: str = ""
    """Where: a quote or a place in the draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """A critic's answer: `ok` (nothing to fix) or `revise` with issues."""

    verdict: Literal["ok", "revise"]
    issues: tuple[Issue, ...] = ()
    keep: tuple[str, ...] = ()
    """What is right already and must survive the revision."""
    by: str = "critic"
    """Who says so: "checks", "critic", a persona, a function's name."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Attempt:
    """One try: what went in, what came out, how it was judged, what it cost."""

    index: int
    inputs: Inputs
    parent: int | None = None
    """Index of the attempt that this one revises."""
    prediction: Prediction | None = None
    score: Score | None = None
    critique: Critique | None = None
    usage: Usage = Usage()
    error: Exception | None = None
    """Why there is no prediction."""
    accepted: bool = False
    """It became the best so far."""
    reason: str = ""
    """Why it was accepted or rejected."""
    rung: str = "tell"
    """The rung of the ladder that proposed it."""

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score {self.score.value:.2f}"
        said = self.text if self.error is None else f"{type(self.error).__name__}: {self.error}"
        kept = f"{'accepted' if self.accepted else 'rejected'}: {self.reason}" if self.reason else "undecided"
        return f"<draft {self.index + 1}{score}, {kept}: {said[:60]!r}{'...' if len(said) > 60 else ''}>"

    @property
    def text(self) -> str:
        """The draft as text: the only field's value, or `name: value` paragraphs."""
        return "" if self.prediction is None else draft_text(self.prediction)

    def but(self, **changes: Any) -> Attempt:
        """A copy with some fields changed."""
        return changed(self, changes)


APART = ("reasoning", "trajectory")
"""Outputs that say how the answer came about: never judged as part of it."""


def draft_text(prediction: Prediction) -> str:
    """A prediction as one text: the only field's value, or `name: value` paragraphs; what is `APART` left out."""
    fields = {k: v for k, v in prediction.to_dict().items() if k not in APART} or prediction.to_dict()
    if len(fields) == 1:
        return as_text(next(iter(fields.values())))
    return "\n\n".join(f"{name}: {as_text(value)}" for name, value in fields.items())


class StopReason(StrEnum):
    """Why a run ended."""

    PASSED = "passed"
    """Every check passed."""
    THRESHOLD = "threshold"
    """The score reached the threshold."""
    CRITIC_OK = "critic_ok"
    """The critic had nothing left to fix."""
    PLATEAU = "plateau"
    """Accepted revisions no longer raise the score."""
    NO_CHANGE = "no_change"
    """A revision equals the draft it revises."""
    CYCLE = "cycle"
    """A revision equals an earlier draft."""
    REJECTED = "rejected"
    """The gate refused several revisions in a row."""
    ROUNDS = "rounds"
    """All rounds (or all N attempts) were used; also, there was nothing to judge an attempt by."""
    BUDGET = "budget"
    """A limit on calls, tokens, money or seconds ended it."""
    CANCELLED = "cancelled"
    """The caller ended it."""
    ERROR = "error"
    """A failure ended it; the best attempt so far stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the journal. `kind` and the keys of `data` are versioned (journal.py, `EVENT_VERSION`)."""

    seq: int
    kind: str
    time: float
    """Unix time, seconds."""
    scope: str = ""
    key: str = ""
    """Set for what is replayed by key: calls, decisions, steps."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only."""
