"""Values as the journal writes them: what a call is keyed by, and completions, scores and critiques as JSON and back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from redraft import __version__, errors
from redraft.errors import InputError, LMError, UnsupportedError
from redraft.jsonable import as_text, canonical, plain
from redraft.types import Choice, Completion, Critique, Request, Score, Usage, Verdict


def content(lm_name: str, request: Request) -> str:
    """What makes two calls the same call: model, messages, sampling, constraint, tools, n, prefill; not the cap."""
    body: dict[str, Any] = {"model": lm_name, "messages": request.messages}
    given = zip(_CONTENT, _content_values(request), strict=True)
    body |= {name: value for name, value in given if value is not None and value != ()}
    if request.n != 1:
        body["n"] = request.n
    if request.extra:
        body["extra"] = dict(request.extra)
    return canonical(body)


_CONTENT = (
    "temperature",
    "top_p",
    "stop",
    "seed",
    "schema",
    "grammar",
    "tools",
    "tool_choice",
    "logprobs",
    "prefill",
    "effort",
)
_content_values = attrgetter(*_CONTENT)


def digest(value: Any) -> str:
    """A short stable hash of a text, or of a value's canonical JSON."""
    text = value if isinstance(value, str) else canonical(value)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def inputs_digest(inputs: Mapping[str, Any]) -> str:
    """`digest` of a module's inputs, whatever their order."""
    if all(type(value) is str for value in inputs.values()):  # the usual case, five times as fast
        return digest(repr(sorted(inputs.items())))
    try:
        return digest(dict(inputs))
    except (RecursionError, ValueError) as error:
        raise InputError(
            f"an input contains itself or nests too deeply to be recorded: {error}; pass plain data"
        ) from error


def derived_seed(seed: int, scope: str) -> int:
    """A sampling seed from the run's seed and a place in it: equal on replay, different everywhere else."""
    return (
        int.from_bytes(blake2b(f"{seed}|{scope}".encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big") >> 1
    )


def spec_of(strategy: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is made of, as JSON: for people, and to notice on a resume that it has changed."""
    plainly = {k: v if isinstance(v, int | float | None) else _headed(as_text(v)) for k, v in inputs.items()}
    threshold = getattr(strategy, "threshold", None)
    wanted = {"threshold": threshold} if isinstance(threshold, int | float) else {}
    return {"strategy": type(strategy).__name__, "inputs": plainly, **wanted, "redraft": __version__}


_SHOWN = 10_000


def _headed(text: str) -> str:
    """A text, or of a long one its beginning and a hash: a journal is no place for a whole file."""
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}\n[{len(text):,} characters in all, hash {digest(text)}]"


@lru_cache(maxsize=256)
def limits(budget: Hashable) -> Any:
    """A budget as JSON."""
    return plain(budget)


def used(usage: Usage) -> dict[str, Any]:
    """A usage as JSON, zeros left out."""
    return {name: value for name, value in zip(_USAGE, _usage_values(usage), strict=True) if value}


def completion_data(completion: Completion) -> dict[str, Any]:
    """A completion as JSON."""
    return {
        "model": completion.model,
        "usage": None if completion.usage is None else used(completion.usage),
        "choices": [_choice_data(choice) for choice in completion.choices],
    }


def _choice_data(choice: Choice) -> dict[str, Any]:
    """What is empty is left out, field by field: half the time of a loop, on every call."""
    data: dict[str, Any] = {}
    if choice.text:
        data["text"] = choice.text
    if choice.reasoning:
        data["reasoning"] = choice.reasoning
    if choice.tool_calls:
        data["tool_calls"] = choice.tool_calls
    if choice.finish_reason:
        data["finish_reason"] = choice.finish_reason
    if choice.logprobs:
        data["logprobs"] = choice.logprobs
    if choice.items:
        data["items"] = choice.items
    return data


def completion_from(data: Mapping[str, Any]) -> Completion:
    """The completion that `completion_data` wrote."""
    usage = data["usage"]
    return Completion(
        model=data["model"],
        usage=None if usage is None else Usage(**usage),
        choices=tuple(
            Choice(**{k: tuple(v) if k in _TUPLES else v for k, v in c.items()})  # type: ignore[arg-type]
            for c in data["choices"]
        ),
    )


_USAGE = tuple(Usage.__dataclass_fields__)
_usage_values = attrgetter(*_USAGE)
_TUPLES = ("tool_calls", "logprobs", "items")


def score_from(data: Mapping[str, Any] | None) -> Score | None:
    """The score whose JSON form is in an event."""
    if data is None:
        return None
    return Score(
        value=data["value"],
        feedback=data["feedback"],
        verdicts=tuple(Verdict(**v) for v in data["verdicts"]),
    )


def score_data(score: Score | None) -> dict[str, Any] | None:
    """A score as JSON."""
    if score is None:
        return None
    return {"value": score.value, "feedback": score.feedback, "verdicts": [plain(v) for v in score.verdicts]}


def critique_data(critique: Critique) -> dict[str, Any]:
    """A critique as JSON."""
    return {**plain(critique), "issues": [plain(i) for i in critique.issues], "keep": list(critique.keep)}


def error_data(error: LMError) -> dict[str, Any]:
    """A failed call's error as JSON."""
    parts = getattr(error, "parts", ())
    return {
        **({"parts": list(parts)} if parts else {}),
        "class": type(error).__name__,
        "error": str(error),
        "status": error.status,
        "sent": error.sent,
        "parameter": getattr(error, "parameter", None),
    }


def error_from(data: Mapping[str, Any]) -> LMError:
    """The recorded refusal again, for a replay."""
    kind = getattr(errors, data["class"], LMError)
    if kind is UnsupportedError:
        parts = tuple(data.get("parts", ()))
        return UnsupportedError(data["error"], parameter=data["parameter"], status=data["status"], parts=parts)
    error: LMError = kind(data["error"], status=data["status"], sent=data["sent"])
    return error
