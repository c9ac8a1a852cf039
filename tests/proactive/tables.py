"""Models that are tables, and plans for them."""

from __future__ import annotations

from redraft.proactive import DynamicBacktracker
from redraft.proactive.decode import Ask, Decoding, Draft, Judge, Plan, Rewind, Written
from redraft.proactive.scripted import END, TableLM, chain
from redraft.proactive.tokens import reported
from redraft.types import Request

WORDS = [END, "A", " dull", " red", " dog", " cat", ".", " It", " runs"]

DOGS = chain(
    {
        END: {"A": 1.0},
        "A": {" dull": 0.6, " red": 0.4},
        " dull": {" dog": 1.0},
        " red": {" dog": 0.7, " cat": 0.3},
        " dog": {".": 1.0},
        " cat": {".": 1.0},
        ".": {END: 0.6, " It": 0.4},
        " It": {" runs": 1.0},
        " runs": {".": 1.0},
    }
)
"""Greedy: "A dull dog."."""


def dogs(*, ids: bool = True, name: str = "local/table") -> TableLM:
    return TableLM(DOGS, WORDS, ids=ids, name=name)


def driven(lm: TableLM, *, guard=lambda text: "", good=None, signal=None, back=None, most=40, **more):
    """Carry out a decode on a table, without any Run. Returns (drafts, rewinds, decoding, asks)."""
    plan = Plan(guard=guard, signal=signal, back=back or DynamicBacktracker(), max_tokens=most, **more)
    decoding = Decoding(plan)
    steps, answer = decoding.steps(), None
    drafts, rewinds, asks = [], [], 0
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return drafts, rewinds, decoding, asks
        answer = None
        if isinstance(step, Ask):
            asks += 1
            answer = [_written(lm, step, i) for i in range(len(step.branches))]
        elif isinstance(step, Judge):
            answer = [None if good is None else 1.0 if good(text) else 0.5 for text in step.texts]
        elif isinstance(step, Draft):
            drafts.append(step.text)
            decoding.drafts = [*getattr(decoding, "drafts", ()), step]
            answer = good is None or good(step.text)
        else:
            assert isinstance(step, Rewind)
            rewinds.append(step)


def _written(lm: TableLM, ask: Ask, i: int) -> Written:
    branch = ask.branches[i]
    kept = [token.id for token in ask.kept] + ([branch.first.id] if branch.first else [])
    watch, seen = ask.watch[i] if len(ask.watch) == len(ask.branches) else None, []

    def over(entries):
        seen.extend(entries)
        from redraft.proactive.tokens import tokens_of

        return watch is not None and watch(tokens_of(seen))

    request = Request(
        messages=(), max_tokens=ask.cap, temperature=branch.temperature, seed=i, extra={"kept_ids": kept}, logprobs=8
    )
    [choice] = lm.reply(request, over, None).choices
    return Written(tokens=tuple(reported(choice)), finish=choice.finish_reason)
