"""The model that writes the code: what it is sent, with less of the past where that does not fit, and its last word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redraft.config import resolve_lm
from redraft.errors import ContextOverflowError, ParseError, UnsupportedError
from redraft.frame import Frame, entered
from redraft.modules.fields import find
from redraft.modules.forms import ask
from redraft.modules.predict import differently, only_thought
from redraft.modules.wire import Style, parse, style_for
from redraft.protocols import LM
from redraft.refusals import refuses, remember_refusal
from redraft.rlm.parsing import read
from redraft.rlm.prompt import FALLBACK, History
from redraft.rlm.submit import Submit, literal
from redraft.types import Completion, Message, Prediction, Request

if TYPE_CHECKING:
    from redraft.rlm.rlm import RLM

_REASKS = 1  # times that a last word which holds no answer is asked for again


class Author:
    """One call's author. `first` is the task, `rules` the system message."""

    def __init__(self, rlm: RLM, frame: Frame, history: History, *, rules: str, first: str) -> None:
        self.rlm, self.frame, self.history = rlm, frame, history
        self.lm: LM = frame.advice.lm or resolve_lm(rlm.lm)
        self.rules, self.first = rules, first
        self.fruitless: Completion | None = None
        """The last reply, if it was all thought."""

    async def write(self) -> Completion:
        """The next reply."""
        completion = await self._reply(())
        self.fruitless = completion if only_thought(completion) else None
        return completion

    async def answer(self, submit: Submit) -> Prediction:
        """The answer without any more code, from what was shown. Raises `ParseError` if the model gives none."""
        signature = self.rlm.signature
        style = style_for(signature, self.lm.capabilities)
        wrong: ParseError | None = None
        for _ in range(1 + _REASKS):
            if style == "schema" and refuses(self.lm, "schema"):
                style = "json"
            notes = [FALLBACK, ask(signature, style)]
            if wrong is not None:
                notes.append(f"Your last reply could not be used: {wrong}")
            try:
                completion = await self._reply(tuple(filter(None, notes)), style)
                return _answer_in(completion, submit, style)
            except UnsupportedError as refused:
                if refused.parameter != "schema" or style != "schema":
                    raise
                remember_refusal(self.lm, "schema")
                wrong = None
            except ParseError as error:
                wrong = error
        raise wrong or ParseError("the model refuses the form of the answer")

    async def _reply(self, notes: tuple[str, ...], style: Style = "plain") -> Completion:
        while True:
            try:
                with entered(self.frame):
                    return await self.frame.run.complete(self._request(notes, style), lm=self.lm)
            except ContextOverflowError:
                if not self.history.squeeze():
                    raise

    def _request(self, notes: tuple[str, ...], style: Style) -> Request:
        rlm, advice, lm = self.rlm, self.frame.advice, self.lm
        effort, most = advice.effort or rlm.sampling.get("effort"), rlm.max_tokens
        if self.fruitless is not None:
            effort, most = differently(lm, self.fruitless, effort, most)
        temperature = rlm.temperature if advice.temperature is None else advice.temperature
        messages: list[Message] = [{"role": "system", "content": self.rules}, *self.history.messages(self.first)]
        if notes:
            last = messages[-1]
            messages[-1] = {**last, "content": "\n\n".join((last["content"], *notes))}
        sampling: dict[str, Any] = {**rlm.sampling, **({"effort": effort} if effort else {})}
        if style == "schema":
            sampling["schema"] = rlm.signature.json_schema()
        return Request(
            messages=tuple(messages),
            temperature=temperature if lm.capabilities.temperature else None,
            max_tokens=most,
            **sampling,
        )


def _answer_in(completion: Completion, submit: Submit, style: Style) -> Prediction:
    """The answer that a last word holds, also in a SUBMIT of plain values; a name in a fence is a text, no variable's."""
    signature = submit.signature
    reply = read(completion)
    if (given := literal(reply.code)) is not None:
        try:
            return submit.read(submit.named(*given))
        except (TypeError, ValueError) as error:
            raise ParseError(str(error), completion=completion) from error
    if reply.code and "SUBMIT(" in reply.code:
        raise ParseError("it is code, which is not run any more: give the answer itself", completion=completion)
    if style == "plain" and completion.text.strip().startswith("```"):
        return Prediction(signature.coerce(find(signature, completion.text, json_first=False).values))
    return parse(signature, completion, style)
