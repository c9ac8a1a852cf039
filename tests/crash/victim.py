"""A process that runs a strategy until it is killed or done: `python victim.py FOLDER SHAPE [sent|call N]`.

With `sent N` it kills itself the moment its model receives the Nth call; with `call N`, when it is told that the Nth
reply is committed.

In FOLDER: `runs.db` (the store), `calls` (a line for each call the model received), `done` (the result, when it is).
"""

import asyncio
import json
import os
import random
import signal
import sys
from hashlib import blake2b
from pathlib import Path

from redraft import Budget, Critic, Module, Pairwise, Predict, Refine, Run, SelfRefine, SqliteStore, context
from redraft.testing import FunctionLM


def fraction(*parts):
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big") / 2**32


class LoggedLM(FunctionLM):
    """Replies by what it is asked and its seed alone, late by luck; every call it receives outlives the process."""

    def __init__(self, folder, last=0):
        super().__init__(self._reply, name="logged")
        self._last = last
        self.parallel = 6
        self._log = os.open(folder / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def _reply(self, request):
        asked = json.dumps(request.messages)
        os.write(self._log, f"{request.seed} {blake2b(asked.encode(), digest_size=8).hexdigest()}\n".encode())
        if len(self.requests) == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(random.random() * 0.01)
        luck = fraction(asked, request.seed)
        if request.schema is not None:
            if "better" in request.schema["properties"]:
                return json.dumps({"better": "A" if luck < 0.5 else "B"})
            issue = {"problem": "p", "suggestion": "s", "aspect": "a", "severity": "major", "location": "l"}
            return json.dumps({"verdict": "revise", "issues": [issue]})
        return " ".join(f"w{int(luck * 10**6)}" for _ in range(1 + int(luck * 9)))


class Team(Module):
    """Nested user modules: async ones at once, a sync one in a thread, and an inner strategy."""

    def __init__(self):
        self.writers = [Predict("q -> a", system=f"writer {i}") for i in range(3)]
        self.inner = Refine(Predict("q -> a", system="inner"), N=2, reward_fn=by_text, budget=Budget(calls=40))
        self.helper = Helper()

    async def aforward(self, q):
        async def late(module):
            await asyncio.sleep(random.random() * 0.005)
            return (await module.acall(q=q)).to_dict()

        said = await asyncio.gather(*(late(part) for part in (*self.writers, self.inner, self.helper)))
        return {"answer": json.dumps(said)}


class Helper(Module):
    def __init__(self):
        self.first = Predict("q -> a", system="first")
        self.second = Predict("q -> a", system="second")

    def forward(self, q):
        return {"a": self.first(q=q).a + " " + self.second(q=q).a}


def by_text(inputs, prediction):
    return fraction(str(prediction.to_dict()))


def strategy(shape):
    if shape == "refine":
        return Refine(Predict("q -> answer"), N=6, reward_fn=by_text)
    if shape == "self_refine":
        return SelfRefine(
            Predict("q -> answer"), critic=Critic(), judge=Pairwise(), reward_fn=by_text, rounds=5, revise="edit"
        )
    return Refine(Team(), N=3, reward_fn=by_text)


def dies_after(nth):
    """A listener that ends the process when so many replies are committed."""
    seen = []

    def listener(event):
        seen.extend([event] if event.kind == "call" else [])
        if len(seen) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return listener


async def main(folder, shape, how="", nth="0"):
    store = SqliteStore(folder / "runs.db")
    last = int(nth)
    with context(model=LoggedLM(folder, last if how == "sent" else 0)):
        chosen = strategy(shape)
        listeners = [dies_after(last)] if how == "call" else []
        run = Run(run_id="victim", store=store, seed=5, budget=Budget(calls=400), listeners=listeners)
        result = await run.execute(chosen, chosen.bind({"q": "x"}))
    store.close()
    seen = {
        "fields": result.to_dict(),
        "score": result.score,
        "stop": str(result.stop_reason),
        "drafts": [[a.index, a.parent, a.text, a.accepted, a.reason] for a in result.attempts],
        "calls": result.usage.calls,
        "tokens": result.usage.tokens,
        "uncertain": result.usage.uncertain_tokens,
    }
    part = folder / "done.part"
    part.write_text(json.dumps(seen))
    part.rename(folder / "done")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
