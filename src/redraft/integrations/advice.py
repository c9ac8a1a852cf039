"""What code under another framework needs of the surrounding run: its advice, a reply, its end; and what it returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redraft.errors import ends_run
from redraft.frame import NO_ADVICE, Advice, current_frame
from redraft.modules.wire import listed
from redraft.protocols import LM
from redraft.run import Run
from redraft.scoring import as_prediction
from redraft.signature import SignatureSpec
from redraft.types import Completion, Request


def here() -> Advice:
    """What the running code is advised; nothing outside a run."""
    frame = current_frame()
    return NO_ADVICE if frame is None else frame.advice


def as_paragraphs(advice: Advice) -> str:
    """The requirements and the hint as a text; empty where there are none."""
    return "\n\n".join(filter(None, (listed(advice.requirements) if advice.requirements else "", advice.hint)))


def told_in(
    messages: Sequence[Mapping[str, Any]],
    text: str,
    *,
    part: str = "text",
    into: Callable[[str, str], str] | None = None,
) -> list[dict[str, Any]]:
    """The messages with a paragraph more in the user's last one that holds no results of tools, or in one of its own.

    `part` is the type of its text parts; `into` says where in a text the paragraph stands, by default at the end.
    """
    told = [dict(message) for message in messages]
    for message in reversed(told):
        content: Any = message.get("content") or ""
        parts = [] if isinstance(content, str) else [*content]
        if message.get("role") != "user" or any(p.get("type") == "tool_result" for p in parts):
            continue
        if not parts:
            message["content"] = into(content or "", text) if into else f"{content or ''}\n\n{text}"
        elif into and parts[-1].get("type") == part:
            message["content"] = [*parts[:-1], {**parts[-1], "text": into(parts[-1]["text"], text)}]
        else:
            message["content"] = [*parts, {"type": part, "text": text}]
        return told
    return [*told, {"role": "user", "content": text}]


async def ask(lm: LM, request: Request) -> Completion:
    """One reply: the surrounding run's, or that of a run of its own with the budget of the settings."""
    if (frame := current_frame()) is not None:
        return await frame.run.complete(request, lm=lm)
    async with Run() as run:
        return await run.complete(request, lm=lm)


def fields_of(value: Any, signature: SignatureSpec | None) -> dict[str, Any]:
    """What a framework returned as output fields: by `as_prediction`, but None is a value like any other, and what is one
    value has the name of the signature's one output.
    """
    fields = {"answer": None} if value is None else as_prediction(value).to_dict()
    outputs = [] if signature is None else list(signature.outputs)
    return {outputs[0]: fields["answer"]} if len(outputs) == 1 and fields.keys() == {"answer"} else fields


class Unwrapped:
    """Around a framework's code: the end of the run or of a budget comes out as itself, whatever wrapped it."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        end = ends_run(error) if isinstance(error, Exception) else None
        if end is not None and end is not error:
            raise end from error
