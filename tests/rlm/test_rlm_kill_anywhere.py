"""Property: wherever a run is cut off, it ends as it would have ended, and buys no committed reply again."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from local_repl import LocalRepl, cell

import redraft
from redraft import RLM, Run, Tool
from redraft.errors import RunClosed, TransientLMError
from redraft.frame import payer
from redraft.journal import MemoryStore
from redraft.testing import FunctionLM

TEXT = "one two three " * 1000

CELLS = {
    "count": "seen.append(len(text))",
    "one": "seen.append(llm_query(f'q{len(seen)}'))",
    "batch": "seen.extend(llm_query_batched([f'b{len(seen)}.{i}' for i in range(3)]))",
    "same": "seen.extend(llm_query_batched(['same', 'same']))",
    "fails": "seen.extend(llm_query_batched([f'bad{len(seen)}', f'ok{len(seen)}']))",
    "tool": "seen.append(note(len(seen)))",
    "error": "seen.append('x')\n1/0",
    "lost": "DIE",
    "refused": "seen.append('s')\nSUBMIT()",
    "child": "seen.append(rlm_query(f'child{len(seen)}', data=[len(seen)]))",
    "prose": None,
    "held": "print('look')\nSUBMIT(str(seen))",
}


class Model:
    """Writes the cells in turn, and is cut off at its `stop`-th reply."""

    def __init__(self, program, stop):
        self.program, self.stop, self.bought = program, stop, []

    async def reply(self, request):
        if len(self.bought) == self.stop:
            payer().run.root.cancel()
            await asyncio.Event().wait()
        first = request.messages[0]
        self.bought.append(request.messages[-1]["content"])
        if first["content"].startswith("bad"):
            raise TransientLMError("down", status=503)
        if first["role"] != "system":
            return f"re {first['content']}"
        if "prompt: str" in request.messages[1]["content"]:
            return cell("SUBMIT(llm_query(prompt) + str(data))")
        if "No more code" in request.messages[-1]["content"]:
            return "the last word"
        turn = sum(message["role"] == "assistant" for message in request.messages)
        if turn >= len(self.program):
            return cell("SUBMIT(str(seen))")
        code = CELLS[self.program[turn]]
        return (
            f"Let me think {turn}."
            if code is None
            else cell(f"{code}  # turn {turn}" if turn else f"seen = []\n{code}")
        )


def run(store, program, stop=None):
    noted = []
    model = Model(program, stop)
    made = RLM(
        "text -> answer",
        lm=FunctionLM(model.reply),
        interpreter=LocalRepl,
        bypass=0,
        depth=2,
        tools=[Tool(lambda n: noted.append(n) or f"noted {n}", name="note", parameters={"type": "object", "properties": {"n": {}}})],
    )  # fmt: skip
    try:
        with redraft.context(tries=1), Run(run_id="r", store=store, seed=1) as around:
            said = made(text=TEXT)
    except RunClosed:
        return None, model, noted, None
    return said, model, noted, [event.kind for event in around.journal.events]


def told(said):
    steps = [{k: v for k, v in step.items() if k != "seconds"} for step in said.trajectory]
    return said.answer, steps


def bought(*models):
    """The replies that were had; a failure that may pass is asked for again."""
    return sorted(asked for model in models for asked in model.bought if not asked.startswith("bad"))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=5), st.data())
def test_a_run_cut_off_anywhere_ends_as_it_would_have(program, data):
    program = [name for i, name in enumerate(program) if name != "held" or "held" not in program[:i]]
    if program[0] in ("lost", "prose"):
        program.insert(0, "count")
    whole, model, noted, _ = run(MemoryStore(), program)
    total = len(model.bought)
    stop = data.draw(st.integers(0, total - 1))
    store = MemoryStore()
    cut, first, noted_first, _ = run(store, program, stop)
    assert cut is None
    again, second, noted_again, kinds = run(store, program)
    assert told(again) == told(whole)
    assert bought(first, second) == bought(model)
    assert noted_first + noted_again == noted
    assert "diverged" not in kinds
