"""What a run returns: the best attempt's fields, and everything that led to it. It computes nothing anew."""

from __future__ import annotations

import re
from typing import Any

from redraft.types import Attempt, Event, Prediction, Score, StopReason, Usage


class Result(Prediction):
    """A Prediction (the best attempt's) with its receipt.

    The output fields are attributes; where a field bears one of the names below, the name below wins and the field is
    read as an item: `result["score"]`.
    """

    __slots__ = ("attempts", "best", "error", "events", "run_id", "stop_reason", "usage")

    attempts: tuple[Attempt, ...]
    """Everything that was tried, in order, the failed ones too."""
    best: Attempt
    events: tuple[Event, ...]
    stop_reason: StopReason
    usage: Usage
    """All calls: losers, retries and cancelled ones included."""
    run_id: str
    error: Exception | None
    """What ended the run, when `stop_reason` is budget, cancelled or error."""

    def __init__(self, best: Attempt, **parts: Any) -> None:
        super().__init__(best.prediction.to_dict() if best.prediction else {})
        object.__setattr__(self, "best", best)
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self.best, {n: getattr(self, n) for n in self.__slots__ if n != "best"}))

    @property
    def score(self) -> float | None:
        """The best attempt's score; None if nothing judged it."""
        return None if self.best.score is None else self.best.score.value

    @property
    def verdict(self) -> Score | None:
        """The best attempt's whole score: feedback and the checks' verdicts."""
        return self.best.score

    @property
    def passed(self) -> bool:
        """True if every check passed (also when there was none); never where judging failed."""
        return self.best.error is None and (self.best.score is None or self.best.score.passed)

    @property
    def cost(self) -> float | None:
        """Dollars; None if a model's price is unknown."""
        return None if self.usage.unpriced else self.usage.cost

    @property
    def prediction(self) -> Prediction:
        """The output fields alone."""
        return Prediction(self.to_dict())

    @property
    def text(self) -> str:
        """The output as one text."""
        return self.best.text

    def receipt(self) -> str:
        """One line: what was kept, what it cost, why it stopped."""
        cached = sum(e.kind == "call" and bool(e.data.get("cached")) for e in self.events)
        kept = f" and {count(cached, 'answer')} from the cache" if cached else ""
        begun = [a for a in self.attempts if a.prediction is not None or a.usage.calls]
        made = [a.index + 1 for a in begun if a.accepted or not cut_off(a)]
        cut = f", {len(begun) - len(made)} cut off" if len(begun) > len(made) else ""
        specs = [e.data.get("spec") or {} for e in self.events if e.kind == "run"]
        auto: Any = next((spec["auto"] for spec in specs if "auto" in spec), {})
        given = f" but for {auto['given']}" if auto.get("given") else ""
        measured = f" | auto: {one_line(auto['took'])}, as calibrated{given}" if auto.get("calibrated") else ""
        return (
            f"kept draft {self.best.index + 1} of {max(made, default=1)}{cut} | {calls(self.usage)}{kept} | "
            f"{tokens(self.usage)} | {dollars(self.cost)} | stopped: {self.stop_reason}{measured}"
        )

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        score = "" if self.score is None else f"score {self.score:.2f} | "
        error = "" if self.error is None else f"\n  {type(self.error).__name__}: {self.error}"
        return f"Result({fields})\n  {score}{self.receipt()} | run {self.run_id}{error}"

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><td>{a.index + 1}</td><td>{'' if a.score is None else f'{a.score.value:.2f}'}</td>"
            f"<td>{'kept' if a is self.best else html.escape(a.reason)}</td>"
            f"<td style='text-align:left;white-space:pre-wrap'>{html.escape(a.text or str(a.error or ''))}</td></tr>"
            for a in self.attempts
        )
        return (
            f"<table><caption>{html.escape(self.receipt())}</caption>"
            f"<tr><th>draft</th><th>score</th><th>why</th><th>text</th></tr>{rows}</table>"
        )


_ENDERS = ("BudgetExceeded", "RunClosed")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _rebuilt(best: Attempt, parts: dict[str, Any]) -> Result:
    return Result(best, **parts)


def cut_off(attempt: Attempt) -> bool:
    """True for a draft that a limit, or the caller, ended before it was judged: it has not lost. By the error's name, which
    is all that a journal keeps of it.
    """
    undecided = attempt.accepted or attempt.reason in ("", "cancelled")
    return type(attempt.error).__name__ in _ENDERS and undecided


def one_line(text: object) -> str:
    """A text on one line, without anything that would steer a terminal."""
    return printable(" ".join(str(text).split()))


def printable(text: str) -> str:
    """A text whose control characters are shown instead of sent to the terminal; line ends and tabs stay."""
    return _CONTROL.sub(lambda c: f"\\x{ord(c[0]):02x}", text.replace("\r\n", "\n"))


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def calls(usage: Usage) -> str:
    """`3 calls`, or `3 calls (2 metered afterwards)` where other code bought some by itself."""
    return count(usage.calls, "call") + (f" ({usage.soft} metered afterwards)" if usage.soft else "")


def dollars(cost: float | None) -> str:
    """`$0.00` for nothing, `$0.0312`, two digits of what is smaller, or that the price is unknown."""
    if cost is None:
        return "price unknown"
    return "$0.00" if not cost else f"${cost:.4f}" if cost >= 0.001 else f"${cost:.2g}"


def tokens(usage: Usage) -> str:
    """`212 tokens`; where calls did not report theirs `about 90 tokens`, `212 to 300 tokens`, or `at least 212 tokens`."""
    if usage.unbounded:
        return f"at least {count(usage.tokens, 'token')}"
    if usage.uncertain_tokens:
        return f"{usage.tokens} to {usage.tokens + usage.uncertain_tokens} tokens"
    return f"{'about ' if usage.estimated else ''}{count(usage.tokens, 'token')}"
