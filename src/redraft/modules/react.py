"""ReAct (Yao et al. 2022, arXiv 2210.03629): a model thinks, calls tools, sees what came of it, and answers.

Where ours differs: several calls of one reply run at the same time; what is wrong with a call is told to the model and
never ends the run; the last turn has to answer, with no second module that extracts it; and tools run once, however
often the run is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from redraft.cached import forget
from redraft.config import resolve_lm
from redraft.errors import BadRequestError, ContextOverflowError, InputError, ParseError, UnsupportedError
from redraft.frame import Advice, Frame, current_frame, entered
from redraft.modules.acting import FINISH, Acting, Call, Said, Turn, Worded, acting
from redraft.modules.base import Module
from redraft.modules.calls import cut, observe
from redraft.modules.forms import ask
from redraft.modules.predict import Predict, differently, only_thought
from redraft.modules.toolbox import as_tools
from redraft.modules.wire import TOOL_CALLS, compose
from redraft.protocols import LM
from redraft.record import digest
from redraft.refusals import refuses, remember_refusal
from redraft.signature import Signature, SignatureSpec, did_you_mean
from redraft.types import Completion, Message, Prediction, Request

TRAJECTORY = "trajectory"
"""The output that holds the steps; no part of the answer's text."""

_ITS_OWN = frozenset({"tool_choice", "logprobs", "prefill", "reasks", "role"})
_REASKS = 2  # replies in a row that hold neither a call nor an answer; one, if they were all thought
_SAME = 3  # equal turns in a row after which the model has to answer
_SMALL = 200  # characters of an observation that is not worth dropping


class ReAct(Module):
    """Answer with the help of tools: `ReAct("question -> answer", tools=[search, calculator])(question="...")`.

    `tools` are functions (their type hints and docstring are the definition) or `Tool`s; after `max_iters` replies, or
    three of the same calls with the same results, the model has to answer without them. A model without tool calls is
    asked for JSON in words. The prediction has the signature's outputs and `trajectory`: a dict a call with `thought`,
    `tool`, `arguments`, `observation` and `error` (None, or of what kind). Longer results than `max_output_chars` are cut
    in the middle. `sampling` as in Predict.

    Raises `ParseError` if the model gives no usable reply three times in a row. A tool's own exception is shown to the
    model; what ends a run (its budget) is raised.
    """

    alone = True
    _saved = ("system", "temperature", "max_tokens", "sampling", "max_iters", "max_output_chars")

    def __init__(
        self,
        signature: str | type[Signature] | SignatureSpec,
        tools: Iterable[Any],
        max_iters: int = 20,
        *,
        lm: LM | str | None = None,
        system: str = "",
        max_output_chars: int = 10_000,
        **sampling: Any,
    ) -> None:
        if unfit := sorted(_ITS_OWN & set(sampling)):
            raise InputError(
                f"ReAct takes no {unfit[0]}: it decides itself when tools may be called, and when to ask again"
            )
        plain = Predict(signature, lm=lm, system=system, **sampling)  # the same rules for the same options
        self.signature = plain.signature
        self.lm, self.system = plain.lm, plain.system
        self.temperature, self.max_tokens, self.sampling = plain.temperature, plain.max_tokens, plain.sampling
        if taken := {TRAJECTORY, TOOL_CALLS} & {*self.signature.outputs}:
            raise InputError(f"the output {taken.pop()!r} is ReAct's own; give yours another name")
        for name, value in (("max_iters", max_iters), ("max_output_chars", max_output_chars)):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name}={value!r}: give a whole number, 1 or more")
        self.tools = as_tools(tools)
        if FINISH in self.tools:
            raise InputError(
                f"a tool is called {FINISH!r}, which is how the model answers; rename it: Tool(fn, name=...)"
            )
        self.max_iters = max_iters
        self.max_output_chars = max_output_chars

    def __call__(self, *unnamed: Any, **inputs: Any) -> Prediction:
        """Answer and wait. On an event loop, `await react.acall(...)` instead."""
        prediction: Prediction = super().__call__(*unnamed, **inputs)
        return prediction

    async def aforward(self, **inputs: Any) -> Prediction:
        """See `Module`."""
        frame = current_frame()
        assert frame is not None
        talk = _Talk(self, frame, self.signature.bind(inputs))
        for _ in range(self.max_iters):
            said = await talk.say()
            if said.calls:
                await talk.act(said)
            if said.answer is not None:
                return talk.answered(said.answer)
            if talk.stuck():
                break
        return talk.answered(await talk.last_word())

    def identity(self) -> str:
        """See `Module`."""
        return self._kind()

    def _kind(self) -> str:
        lm = getattr(self.lm, "name", self.lm)
        parts = (self.signature, self.signature.instructions, lm, self.system, self.temperature, self.max_tokens)
        tools = digest([tool.wire for tool in self.tools.values()])
        return "|".join(map(str, (*parts, self.max_iters, self.max_output_chars, tools)))

    def __repr__(self) -> str:
        return f"ReAct({str(self.signature)!r}, tools=[{', '.join(self.tools)}])"


class _Talk:
    """The state of one call, so that the module never changes."""

    def __init__(self, react: ReAct, frame: Frame, inputs: dict[str, Any]) -> None:
        self.react, self.frame, self.inputs = react, frame, inputs
        self.lm: LM = frame.advice.lm or resolve_lm(react.lm)
        self.way: Acting = acting(react.signature, react.tools, self.lm)
        self.turns: list[Turn] = []
        self.last = False
        self.constrained = True
        self.error: ParseError | None = None
        self.faults = self.thoughts = 0

    # What the model says

    async def say(self) -> Said:
        """The next reply that says something: calls, an answer, or both."""
        while True:
            request, completion = await self._reply()
            said = self.way.read(completion, self.turns)
            if said.error is None and (said.answer is not None or not self.last):
                self.error, self.faults, self.thoughts = None, 0, 0
                return said
            names = ", ".join(call.name for call in said.calls)
            why = ParseError(f"tools were called ({names}) where only the answer is asked for now")
            if self.error is None and not self.frame.fresh:
                forget(self.lm, request)
            self._fault(said.error or why, completion)

    async def last_word(self) -> Prediction:
        """The answer of a model that has used all its turns."""
        self.last = True
        answer = (await self.say()).answer
        assert answer is not None
        return answer

    def _fault(self, error: ParseError, completion: Completion) -> None:
        """Note why a reply cannot be used; raise if that was one too many."""
        error.completion = completion
        journal = self.frame.run.journal
        key = journal.key(self.frame.scope, "parse_error")
        journal.note("parse_error", scope=self.frame.scope, key=key, error=str(error))
        self.error, self.faults = error, self.faults + 1
        self.thoughts += only_thought(completion)
        if self.thoughts > 1 or self.faults > _REASKS:
            raise error

    async def _reply(self) -> tuple[Request, Completion]:
        """One reply, with less in the prompt, or without what the model refuses, where it must be."""
        while True:
            request = self._request()
            try:
                with entered(self.frame if self.error is None else self.frame.again()):
                    return request, await self.frame.run.complete(request, lm=self.lm)
            except ContextOverflowError:
                if not self._drop():
                    raise
            except UnsupportedError as refused:
                if not self._without(refused, request):
                    raise
            except BadRequestError:
                # servers say in many words that a schema is too much for them, or does not go with tools
                if not self.constrained or (request.schema is None and request.grammar is None):
                    raise
                self.constrained = False

    def _without(self, refused: UnsupportedError, request: Request) -> bool:
        """Go on without a parameter that was refused; False if that cannot be."""
        parameter = refused.parameter
        if parameter == "schema" and refused.parts and self.constrained:
            self.constrained = False  # this schema is too much for the model; others are still sent
            return True
        known = parameter in ("tools", "tool_choice", "schema", "grammar")
        if not known or not getattr(request, parameter) or refuses(self.lm, parameter):
            return False
        remember_refusal(self.lm, parameter)
        if parameter == "tools":
            self.way = Worded(self.react.signature, self.react.tools)
        return True

    def _request(self) -> Request:
        react, advice, lm = self.react, self.frame.advice, self.lm
        effort, most = advice.effort or react.sampling.get("effort"), react.max_tokens
        if self.error is not None and self.error.completion is not None and only_thought(self.error.completion):
            effort, most = differently(lm, self.error.completion, effort, most)
        temperature = react.temperature if advice.temperature is None else advice.temperature
        return Request(
            messages=self._messages(),
            temperature=temperature if lm.capabilities.temperature else None,
            max_tokens=most,
            **self.way.options(lm, last=self.last, constrained=self.constrained),
            **{**react.sampling, **({"effort": effort} if effort else {})},
        )

    def _messages(self) -> tuple[Message, ...]:
        react, advice, way = self.react, self.frame.advice, self.way
        messages = [
            *compose(
                react.signature,
                self.inputs,
                style="plain",
                system="\n\n".join(filter(None, (react.system, way.system()))),
                requirements=advice.requirements,
                hint=advice.hint,
                form=way.form(),
            ),
            *(message for turn in self.turns for message in way.messages(turn)),
        ]
        notes = [LAST] if self.last else []
        if self.last and not (way.native and react.signature.plain):
            notes.append(ask(react.signature, "schema"))
        if self.error is not None:
            notes.append(f"Your last reply could not be used: {self.error}")
        return _with_notes(messages, "\n".join(notes))

    def stuck(self) -> bool:
        """True if the last turns are all the same, calls and results: another one would be, too."""
        last = [([c._replace(id="") for c in t.said.calls], [_result(o) for o in t.seen]) for t in self.turns[-_SAME:]]
        return len(last) == _SAME and all(turn == last[0] for turn in last)

    # What comes of it

    async def act(self, said: Said) -> None:
        """Carry out the calls of one reply, at the same time; the observations keep their order."""
        turn = len(self.turns)
        done = [self._call(call, f"tool[{turn}.{i}]:{call.name}") for i, call in enumerate(said.calls)]
        seen = await asyncio.gather(*done, return_exceptions=True)  # one that ends the run leaves no other half done
        for observation in seen:
            if isinstance(observation, BaseException):
                raise observation
        self.turns.append(Turn(said, [*seen]))  # type: ignore[list-item]  # the errors were raised

    async def _call(self, call: Call, place: str) -> dict[str, Any]:
        """The observation of one call: on record, so that a resumed run does not make it again."""
        react, frame = self.react, self.frame
        if call.fault:
            return {"text": cut(call.fault, react.max_output_chars), "error": "arguments"}
        tool = react.tools.get(call.name)
        if tool is None:
            known = [*self.way.offered]
            text = f"There is no tool {call.name!r}{did_you_mean(call.name, known)}; the tools are: {', '.join(known)}"
            return {"text": cut(text, react.max_output_chars), "error": "unknown tool"}
        # What the author is told of its answer is none of a tool's business, nor of the modules in it.
        inside = replace(
            frame, scope=f"{frame.scope}/{place}", advice=Advice(lm=frame.advice.lm), counts={}, paths=None
        )
        asked = (tool, call.arguments, react.max_output_chars)
        frame.meter.check_time()
        with entered(inside):
            try:
                async with asyncio.timeout(frame.meter.seconds_left):
                    seen = await frame.run.step(f"{tool.name}:{digest(call.arguments)}", observe, *asked)
            except TimeoutError as late:
                raise frame.meter.out_of_time(f", while the tool {tool.name} was at work") from late
        return dict(seen)

    def _drop(self) -> bool:
        """Make room: the older half of the observations goes, and of a single one the middle; False if there are none."""
        seen = [o for turn in self.turns for o in turn.seen]
        left = [o for o in seen if "shown" not in o and (len(o["text"]) > _SMALL or o.get("parts"))]
        if not left:
            return False
        if len(left) == 1 and not left[0].get("parts"):
            left[0]["shown"] = cut(left[0]["text"], len(left[0]["text"]) // 4)
        for observation in left[: len(left) // 2] or ([] if "shown" in left[0] else left):
            observation["shown"] = f"[dropped to make room: {len(observation['text']):,} characters]"
        self.frame.run.journal.remark(
            "observation_dropped", scope=self.frame.scope, dropped=sum("shown" in o for o in seen), of=len(seen)
        )
        return True

    def answered(self, answer: Prediction) -> Prediction:
        """The answer with the record of how it came about."""
        steps = [
            {
                "thought": turn.said.thought if i == 0 else "",
                "tool": call.name,
                "arguments": call.arguments,
                "observation": _result(seen),
                "error": seen.get("error"),
            }
            for turn in self.turns
            for i, (call, seen) in enumerate(zip(turn.said.calls, turn.seen, strict=True))
        ]
        return Prediction({**answer.to_dict(), TRAJECTORY: steps})


def _result(seen: Mapping[str, Any]) -> Any:
    """What a tool returned, whatever of it the model is still shown."""
    return seen.get("parts") or seen["text"]


def _with_notes(messages: list[Message], notes: str) -> tuple[Message, ...]:
    """Notes at the end: in the user's last message if that is a text, else in one of their own."""
    if not notes:
        return tuple(messages)
    if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], str):
        return (*messages[:-1], {**messages[-1], "content": f"{messages[-1]['content']}\n\n{notes}"})
    return (*messages, {"role": "user", "content": notes})


LAST = "No more tools can be used. Answer now, from what you know."
