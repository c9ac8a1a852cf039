"""One call of an RLM: its author, its REPL, its steps so far. The module itself never changes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redraft.budget import Meter
from redraft.config import resolve_lm
from redraft.errors import LMError, ParseError
from redraft.frame import Advice, Frame, entered
from redraft.modules.predict import Predict
from redraft.modules.react import TRAJECTORY
from redraft.protocols import Interpreter
from redraft.rlm import prompt
from redraft.rlm.answers import Asked, Limit, Work, added, bought, ending, head, may_pass
from redraft.rlm.author import Author
from redraft.rlm.parsing import Reply, read
from redraft.rlm.prompt import History, Turn
from redraft.rlm.queries import Queries
from redraft.rlm.session import Session, Step
from redraft.rlm.submit import NAME, Submit
from redraft.rlm.tools import host_function
from redraft.rlm.variables import Variable, fingerprint
from redraft.sync import call_user
from redraft.types import Completion, Prediction

if TYPE_CHECKING:
    from redraft.rlm.rlm import RLM

_SAME = 3  # equal turns in a row, or replies without code, after which only the answer is asked for
_ROOM = 2  # turns like the last one that have to fit into what is left of a limit


class Call:
    """The state of one call. `around`: the sub-calls of the RLM that asks, if one does."""

    def __init__(self, rlm: RLM, frame: Frame, variables: Mapping[str, Variable], around: Limit | None) -> None:
        self.rlm, self.frame, self.variables, self.around = rlm, frame, variables, around
        self.limit = Limit(rlm.max_llm_calls, around)
        self.steps: list[Step] = []
        self.held: Prediction | None = None
        """An answer that was given before its cell's output was read."""
        self.last = rlm.max_iterations == 1
        self._used: dict[str, Any] = {}  # by the author's last reply

    def enter(self, interpreter: Interpreter, inputs: Mapping[str, Any]) -> None:
        """Begin: what the model is told, and what its code may call."""
        rlm, advice = self.rlm, self.frame.advice
        most = rlm.max_history_chars
        self.history = History(most, "history" if "history" not in inputs else "past_turns")
        rules = prompt.system(
            self._told(),
            rlm.tools,
            dialect=interpreter.dialect,
            helpers=_helpers(interpreter),
            most=rlm.max_output_chars,
            extra=rlm.system,
        )
        first = prompt.task(
            rlm.signature,
            self.variables,
            requirements=(*advice.requirements, *rlm.judgement.requirements()),
            hint=advice.hint,
            budget=self._begin(),
        )
        self.author = Author(rlm, self.frame, self.history, rules=rules, first=first)
        values = {name: variable.value for name, variable in self.variables.items()}
        self.repl = Session(interpreter, self.frame, values, self.limit, most=rlm.max_output_chars)
        self.repl.history_name = self.history.name
        self.submit = Submit(rlm.signature, rlm.judgement, inputs, lambda: self.repl.cell)
        self.repl.offer(self._works())

    def _told(self) -> list[str]:
        told = [prompt.QUERIES.format(longest=self.rlm.max_prompt_chars)]
        return [*told, prompt.DEEPER] if self.rlm.depth > 1 else told

    def _works(self) -> dict[str, Work]:
        rlm = self.rlm
        asked = Queries(self._sub_lm(), longest=rlm.max_prompt_chars)
        works: dict[str, Work] = {"llm_query": asked.llm_query, "llm_query_batched": asked.llm_query_batched}
        if rlm.depth > 1:
            works["rlm_query"] = self._deeper(asked)
        works |= {name: host_function(tool) for name, tool in rlm.tools.items()}
        return {**works, NAME: self.submit.submit}

    def _sub_lm(self) -> Any:
        own = self.rlm.sub_lm
        return resolve_lm(own) if own is not None else self.frame.advice.lm or resolve_lm(self.rlm.lm)

    # The direct way

    async def direct(self, inputs: Mapping[str, Any]) -> Prediction | None:
        """The answer of one plain call, where the inputs are short enough for it; None where the REPL has to be used."""
        rlm = self.rlm
        texts = {name: variable.text for name, variable in self.variables.items()}
        size = sum(len(text) for text in texts.values() if text is not None)
        if not rlm.bypass or rlm.tools or None in texts.values() or size > rlm.bypass:
            return None
        if self.around is not None:
            self.around.take(1)
        plain = Predict(
            rlm.signature,
            lm=rlm.lm,
            system=rlm.system,
            temperature=rlm.temperature,
            max_tokens=rlm.max_tokens,
            reasks=0,
            **rlm.sampling,
        )
        told = self.frame.advice
        requirements = (*told.requirements, *rlm.judgement.requirements())
        with entered(replace(self.frame, advice=replace(told, requirements=requirements))):
            try:
                answer = await call_user(
                    plain.aforward, **{k: texts[k] if _is_text(v) else v for k, v in inputs.items()}
                )
            except ParseError as error:
                self._add({"output": "", "error": str(error), "bypass": True})
                return None
        step = {"output": head(answer.to_dict()), "bypass": True}
        judge = Submit(rlm.signature, rlm.judgement, inputs, lambda: None)
        score = await judge.judged(Asked(self.frame, self.limit, {}), answer)
        if score is not None and not score.passed:
            self._add({**step, "error": score.feedback})
            return None
        return self.answered(answer, step)

    # Turns

    async def turn(self) -> Prediction | None:
        """One turn: the author writes, the code runs, the output is added to what the author sees. The answer, once the
        code has given one that was taken.
        """
        if self.around is not None:
            self.around.take(1)
        completion = await self.author.write()
        self._used = bought(self.author.lm, completion)
        reply = read(completion)
        if not reply.code:
            self._unusable(completion, reply)
            return None
        last = self.last
        given = {"reasoning": reply.thought or completion.reasoning, "code": reply.code}
        step = await self.repl.run(given, self._status, last=last)
        self.last = bool(step.pop("ends"))
        status = step.pop("status")
        answer = self._submitted(step, last=last)
        output = "\n".join(filter(None, (reply.note, step["output"])))
        if self.held is not None and answer is None and "submitted" in step:
            output = f"{output}\n{_UNREAD}"
        await self._saw(completion, reply, output, status)
        self._show(step)
        return answer

    def _submitted(self, step: Step, *, last: bool) -> Prediction | None:
        """The answer that a cell gave; held back, once, if the cell also printed what nobody has read yet."""
        if "submitted" not in step:
            return None
        answer = self.submit.read(step["submitted"])
        if last or self.held is not None or not self.rlm.read_first or not step["output"].strip():
            return answer
        self.held = answer
        return None

    async def _saw(self, completion: Completion, reply: Reply, output: str, status: str) -> None:
        message = {**completion.choices[0].message(), "content": reply.shown or "(nothing)"}
        message.pop("tool_calls", None)
        before = self.history.brief
        self.history.add(Turn(message, prompt.observation(output, status), reply.code, output))
        if self.history.brief and (self.history.brief != before or self.repl.history is not None):
            await self.repl.remember(self.history.whole())

    def _unusable(self, completion: Completion, reply: Reply) -> None:
        """A reply without code uses up a turn, and the author is told why nothing was run."""
        journal, scope = self.frame.run.journal, self.frame.scope
        journal.note("parse_error", scope=scope, key=journal.key(scope, "parse_error"), error=reply.fault)
        turn = self._turn()
        self.last = turn >= self.rlm.max_iterations - 1
        status = f"[{self._turns(turn)}]" + (f"\n{prompt.LAST}" if self.last else "")
        message = {**completion.choices[0].message(), "content": reply.shown or "(nothing)"}
        message.pop("tool_calls", None)
        self.history.add(Turn(message, f"{reply.fault}\n\n{status}", "", reply.fault))
        self._add({"reasoning": reply.thought, "output": reply.fault, "error": "no code", "usage": self._used})

    def stuck(self) -> bool:
        """True if another turn would be like the last ones: all without code, or the same code with the same outcome."""
        ran = [step for step in self.steps if not step.get("bypass")][-_SAME:]
        same = {_outcome(step) for step in ran}
        return len(ran) == _SAME and len(same) == 1

    def _status(self, step: Step) -> dict[str, Any]:
        """What is left, in words; and whether the next turn is the last one. On record, since clocks and other calls differ."""
        turn = self._turn()
        said = [self._turns(turn), f"{self.limit.left} of {self.limit.most} sub-calls left"]
        ends = turn >= self.rlm.max_iterations - 1 or (self.around is not None and self.around.left <= _ROOM)
        tokens, calls, seconds = _left(self.frame.meter)
        usage = added([self._used, step["usage"]])
        if tokens is not None:
            said.append(f"about {max(0, tokens):,} tokens left")
            ends |= tokens < _ROOM * (usage.get("input_tokens", 0) + usage.get("output_tokens", 0))
        if calls is not None:
            said.append(f"{calls} model calls left")
            ends |= calls <= _ROOM
        if seconds is not None:
            said.append(f"{seconds:.0f} s left")
        status = f"[{'; '.join(said)}]" + (f"\n{prompt.LAST}" if ends else "")
        return {"usage": usage, "status": status, "ends": ends}

    def _begin(self) -> str:
        if self.last:
            return prompt.LAST
        # other calls draw on what this one shares with the one that asked for it: no number holds for long
        calls = f"{self.rlm.max_llm_calls} sub-calls" if self.around is None else "few sub-calls"
        return f"You have {self.rlm.max_iterations} turns and {calls}."

    def _turn(self) -> int:
        """The number of the turn at work, from 1."""
        return 1 + sum(not step.get("bypass") for step in self.steps)

    def _turns(self, turn: int) -> str:
        return f"turn {turn} of {self.rlm.max_iterations} done"

    # The end

    async def last_word(self) -> Prediction:
        """The best there is without an accepted answer: one that was held back, or the author's, asked for from what it has
        seen, or one that failed fewer checks than that.
        """
        if self.held is not None:
            return self.answered(self.held, self._marked("the answer was given before its cell's output was read"))
        if self.around is not None:
            self.around.take(1)
        answer = await self.author.answer(self.submit)
        score = await self.submit.judged(Asked(self.frame, self.limit, {}), answer)
        best = self.submit.best
        why, error = "no answer was submitted: asked for from what the code had printed", ""
        if score is not None and not score.passed:
            error = score.feedback
            if best is not None and best[1].rank >= score.rank:
                answer, error, why = (
                    best[0],
                    best[1].feedback,
                    "no answer passed the checks: the best that was submitted",
                )
        return self.answered(answer, {**self._marked(why), "error": error, "reply": head(answer.to_dict())})

    def cut_off(self, error: Exception) -> Prediction | None:
        """What there is when a limit or a model ends the call; None if there is nothing."""
        best = self.held or (self.submit.best[0] if self.submit.best is not None else None)
        if best is None:
            return None
        failed = self.held is None and self.submit.best is not None
        why = "the best that was submitted; it failed a check" if failed else "given before its cell's output was read"
        return self.answered(best, {**self._marked(why), "error": str(error)})

    def _marked(self, why: str) -> Step:
        return {"output": why, "fallback": True}

    def answered(self, answer: Prediction, step: Step | None = None) -> Prediction:
        """The answer with the record of how it came about."""
        if step is not None:
            self._add(step)
        return Prediction({**answer.to_dict(), TRAJECTORY: self.steps})

    def _add(self, step: Step) -> None:
        """Take a step that is no cell; like those of cells it is on record, for whoever watches."""
        whole: Step = {"reasoning": "", "code": "", "output": "", "error": "", "calls": [], "usage": {}, "seconds": 0.0}
        journal, scope = self.frame.run.journal, self.frame.scope
        name = next((mark for mark in ("bypass", "fallback") if mark in step), "no code")
        journal.note("step", scope=scope, key=journal.key(scope, f"step:{name}"), name=name, value={**whole, **step})
        self._show({**whole, **step})

    def _show(self, step: Step) -> None:
        self.steps.append(step)
        if self.rlm.verbose:
            sys.stderr.write(shown(self.steps[-1], len(self.steps)))

    # Deeper

    def _deeper(self, queries: Queries) -> Work:
        async def rlm_query(asked: Asked, prompt: Any, data: Any = None) -> Any:
            queries.check(prompt)
            asked.entry["prompt"] = head(prompt)
            child = self.rlm.child(with_data=data is not None)
            inputs = {"prompt": prompt} if data is None else {"prompt": prompt, "data": data}
            with entered(asked.frame):
                frame = asked.frame.inner(child, await fingerprint(inputs))
            frame.advice = Advice(lm=None if self.rlm.sub_lm is not None else self.frame.advice.lm)
            taken = Limit(asked.limit.most, asked.limit)
            try:
                with entered(frame):
                    said = await child.within(inputs, taken)
            except LMError as error:
                if (ended := ending(frame, error)) is not None:
                    raise ended from None
                asked.unsure |= may_pass(error)
                raise RuntimeError(f"the inner model gave no answer: {error}") from error
            finally:
                asked.taken = taken.used
            steps = said[TRAJECTORY]
            asked.entry |= {
                "reply": head(said["answer"]),
                "turns": len(steps),
                "usage": added([s["usage"] for s in steps]),
            }
            return said["answer"]

        return rlm_query


def _helpers(interpreter: Interpreter) -> str:
    """What the sandbox gives the code by itself: it says so, or is one of ours."""
    ours = type(interpreter).__module__.startswith("redraft.sandbox")
    return str(getattr(interpreter, "helpers", prompt.HELPERS if ours else ""))


def _outcome(step: Step) -> tuple[Any, ...]:
    if not step["code"]:
        return ()
    return step["code"], step["output"], tuple(call.get("prompt") for call in step["calls"])


def _is_text(value: Any) -> bool:
    """True for inputs that a direct call takes as the text they were read as."""
    return not isinstance(value, int | float | list | dict | None)


def _left(meter: Meter) -> tuple[int | None, int | None, float | None]:
    """Tokens, calls and seconds left of the nearest limits; None where there is none."""
    tokens: list[int] = []
    calls: list[int] = []
    at: Meter | None = meter
    while at is not None:
        usage = at.usage
        if at.budget.tokens is not None:
            tokens.append(at.budget.tokens - usage.tokens - usage.uncertain_tokens)
        if at.budget.calls is not None:
            calls.append(at.budget.calls - usage.calls)
        at = at.parent
    return min(tokens, default=None), min(calls, default=None), meter.seconds_left


def shown(step: Step, number: int) -> str:
    """A step for people."""
    lines = [f"--- step {number}: {step['seconds']:.1f} s, {len(step['calls'])} calls"]
    lines += [step[part] for part in ("reasoning", "code", "output") if step[part]]
    return "\n".join(lines) + "\n"


_UNREAD = "[The answer was not taken yet: this output was printed in the same cell. Look at it, then SUBMIT again.]"
