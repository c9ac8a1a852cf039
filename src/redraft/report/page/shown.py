"""Texts and figures as people read them. Whatever a model or a user wrote stays text: what would steer a reader's eyes
(control characters, marks of writing direction, what has no width) is shown by name instead of being obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from redraft.result import dollars
from redraft.types import Usage

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


_QUESTION = 300  # characters up to which an input is shown as what was asked
_LONGEST = 60_000  # characters of one text that are shown


def visible(text: str) -> str:
    """The text with nothing in it that a page would obey or hide. It holds no half surrogate pair: UTF-8 can encode it."""
    if text.isascii() and text.isprintable():
        return text
    return _STEERING.sub(_named, text.replace("\r\n", "\n"))


def _named(found: re.Match[str]) -> str:
    return f"\u27e8U+{ord(found[0]):04X}\u27e9"


def cut(text: str) -> str:
    """A very long text up to where people stop reading it."""
    left = len(text) - _LONGEST
    return text if left <= 0 else f"{text[:_LONGEST]}\n[{left:,} more characters are not shown; they are in the JSON]"


def seconds(value: float | None) -> str:
    """`340 ms`, `2.4 s`, `3 min 20 s`; a dash for what is not known."""
    if value is None:
        return "\u2013"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 90:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // 60} min {whole % 60} s" if whole < 5400 else f"{whole // 3600} h {whole // 60 % 60} min"


def number(value: float | None) -> str:
    """`12,345`; a dash for what is not known."""
    return "\u2013" if value is None else f"{value:,}"


def score(value: float | None) -> str:
    """A score to two places, more where they tell it from another one; a dash for none."""
    if value is None:
        return "\u2013"
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def gain(value: float) -> str:
    """A difference between scores, with its sign."""
    sign = "+" if value >= 0 else "\u2212"
    return f"{sign}{score(abs(value))}"


def chance(p: float) -> str:
    """A p value: two places that say something, `< 0.001` below that."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def money(cost: float | None, most: float | None = None) -> str:
    """Dollars; `unknown` where a model has no price; a + where it may be more."""
    if cost is None:
        return "unknown"
    return f"{dollars(cost)}{'+' if most is not None and most > cost else ''}"


def cost_of(usage: Usage) -> str:
    """What calls cost."""
    return money(None if usage.unpriced else usage.cost, usage.cost + usage.uncertain_cost)


def tokens_of(usage: Usage) -> str:
    """How many tokens; a + where it may be more."""
    return f"{usage.tokens:,}{'+' if usage.uncertain_tokens or usage.unbounded else ''}"


def moment(at: float | str | None) -> str:
    """A local date and time, to the second, out of Unix or ISO time."""
    if at is None:
        return "\u2013"
    when = datetime.fromtimestamp(at).astimezone() if isinstance(at, float | int) else datetime.fromisoformat(at)
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def asked(inputs: Mapping[str, str]) -> str:
    """What was asked for, out of named inputs: the task, else what is short enough to be a question, not the material."""
    if "task" in inputs or not inputs:
        return inputs.get("task", "")
    short = [text for text in inputs.values() if len(text) <= _QUESTION]
    return "; ".join(short) if short else min(inputs.values(), key=len)


def finalized(value: Any) -> Any:
    """For the templates: every value that they print goes through here, before it is escaped."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return "" if value is None else value
