"""A client's whole conversation as a module's one input: sent as it is, with what the run advises at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from redraft.errors import ParseError
from redraft.frame import Frame, current_frame
from redraft.modules import Predict
from redraft.modules.wire import TOOL_CALLS, Style, listed
from redraft.protocols import LM
from redraft.signature import Field, SignatureSpec
from redraft.strategies.roles import INSTRUCTIONS, Reviser, Role
from redraft.types import Choice, Completion, Message, Prediction, Request

INPUT = "messages"
_IN = Field(INPUT, list[dict[str, Any]])
TEXT = SignatureSpec([_IN], [Field("answer")])
CALLS = SignatureSpec([_IN], [Field("answer"), Field(TOOL_CALLS, list[dict[str, Any]])])


class Conversation(Predict):
    """Writes the next message of a conversation. Input: `messages`; output: `answer`, and `tool_calls` where it may call.

    Roles, images, tool calls and their results go to the model as they came. Requirements, a hint and what a reviser is
    told go into the last message of the user, or after the results of tools in one of their own. What else the client's
    request says (sampling, cap, stop, schema, tools) holds for each try; a temperature only for those that the strategy
    gives none of its own.
    """

    def __init__(self, asked: Request, lm: LM, *, system: str = "", calls: bool = False) -> None:
        super().__init__(
            CALLS if calls else TEXT,
            lm=lm,
            system=system,
            temperature=asked.temperature,
            max_tokens=asked.max_tokens,
        )
        if asked.effort:
            self.sampling["effort"] = asked.effort
        self.asked = asked
        self.note = ""
        """A paragraph more at the end."""
        self.draft: Completion | None = None
        """A reply that is there already: the first attempt is it, at no further cost."""

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Predict`."""
        frame = current_frame()
        if self.draft is not None and frame is not None and not frame.fresh:
            return self._said(self.draft.choices[0])
        return await super().aforward(**inputs)

    def _said(self, choice: Choice) -> Prediction:
        if TOOL_CALLS in self.signature.outputs:
            return Prediction(answer=choice.text, tool_calls=[*choice.tool_calls])
        if not choice.text.strip():
            raise ParseError(f"the reply is empty (finish reason: {choice.finish_reason or 'not given'}): no 'answer'")
        return Prediction(answer=choice.text)

    def request(self, messages: Sequence[Message], requirements: Sequence[str] = ()) -> Request:
        """What the first try of a conversation sends."""
        told = [listed(requirements)] if requirements else []
        return self.asked.but(messages=told_in(messages, [*told, self.note], self.system), n=1, seed=None)

    def _request(self, frame: Frame, lm: LM, bound: dict[str, Any], style: Style, error: ParseError | None) -> Request:
        made, advice = super()._request(frame, lm, bound, style, error), frame.advice
        grammar = made.grammar
        again = [] if error is None else [f"Your last reply could not be used: {error}"]
        sent = self.request(bound[INPUT], advice.requirements)
        return sent.but(
            messages=told_in(sent.messages, [advice.hint, *again]),
            temperature=made.temperature,
            max_tokens=made.max_tokens,
            effort=made.effort,
            grammar=grammar,
            schema=None if grammar else advice.schema or self.asked.schema,
        )

    def with_tools(self, choice: Any) -> Conversation:
        """The same, with this choice of tools."""
        twin = copy(self)
        twin.asked = self.asked.but(tool_choice=choice)
        return twin

    def revising(self, note: str) -> Conversation:
        """The same for a reviser, which is told this at the end."""
        twin = copy(self)
        twin.note, twin.role, twin.draft = note, "reviser", None
        return twin


class ConversationReviser(Reviser):
    """Rewrites a draft of the conversation's next message, with the conversation before it."""

    def __init__(self, conversation: Conversation, role: Role) -> None:
        super().__init__(conversation, role)
        self.conversation = copy(conversation)
        self.conversation.lm = role.lm or conversation.lm
        self.conversation.system = role.system or conversation.system
        if role.temperature is not None:
            self.conversation.temperature = role.temperature

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Reviser`."""
        keep = f"Leave this as it is:\n{inputs['keep']}" if inputs["keep"] else ""
        parts = [f"A draft of the reply:\n{inputs['draft']}", f"Its issues:\n{inputs['issues']}", keep, INSTRUCTIONS]
        revise = self.conversation.revising("\n\n".join(filter(None, parts)))
        return await revise.acall(**{INPUT: inputs[INPUT]})  # type: ignore[no-any-return]


def told_in(messages: Sequence[Message], paragraphs: Sequence[str], system: str = "") -> tuple[Message, ...]:
    """The conversation with these paragraphs at its end, and a system text before its own."""
    told = [dict(message) for message in messages]
    if system:
        if told and told[0].get("role") in ("system", "developer"):
            told[0]["content"] = _joined(system, told[0].get("content"), before=True)
        else:
            told.insert(0, {"role": "system", "content": system})
    text = "\n\n".join(filter(None, paragraphs))
    if not text:
        return tuple(told)
    last = next((m for m in reversed(told) if m.get("role") != "assistant"), None)
    if last is None or last.get("role") != "user":
        told.append({"role": "user", "content": text})
    else:
        last["content"] = _joined(text, last.get("content"), before=False)
    return tuple(told)


def _joined(text: str, content: Any, *, before: bool) -> Any:
    if isinstance(content, list | tuple):
        part: Mapping[str, Any] = {"type": "text", "text": text}
        return [part, *content] if before else [*content, part]
    pair = (text, content) if before else (content, text)
    return "\n\n".join(filter(None, pair))
