"""A process that works on a batch until it is killed or done: `python batch_victim.py FOLDER URL ITEMS CALL_LIMIT`.

Each item is a user's module: three samples at once of which the first good one cancels the others, an inner strategy,
and a sync helper in a thread. In FOLDER: `runs.db` (the store), `out.jsonl` (a row for each item that has ended), `done`
(the books, when the batch has come to its end).
"""

import asyncio
import json
import sys
from hashlib import blake2b
from pathlib import Path

from redraft import Batch, BestOfN, Budget, Module, Predict, Refine, SqliteStore, context
from redraft.batch.output import Output
from redraft.lm.openai import OpenAILM


def fraction(*parts):
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big") / 2**32


def by_text(inputs, prediction):
    return fraction(str(prediction.to_dict()))


class Helper(Module):
    def __init__(self):
        self.first = Predict("q -> a", system="first")
        self.second = Predict("q -> a", system="second")

    def forward(self, q):
        return {"a": self.first(q=q).a + " " + self.second(q=q).a}


class Team(Module):
    """Nested user modules and strategies."""

    def __init__(self):
        self.race = BestOfN(Predict("q -> a", system="race"), N=3, reward_fn=by_text, threshold=0.5, concurrency=3)
        self.inner = Refine(Predict("q -> a", system="inner"), N=2, reward_fn=by_text, advisor=False)
        self.helper = Helper()

    async def aforward(self, q):
        said = await asyncio.gather(*(part.acall(q=q) for part in (self.race, self.inner, self.helper)))
        return {"answer": json.dumps([part.to_dict() for part in said])}


def items(n):
    return [{"id": i, "q": f"question {i}"} for i in range(n)]


async def main(folder, url, n, limit):
    output = Output(str(folder / "out.jsonl"))
    output.load()
    output.mend()
    with context(model=OpenAILM("test", base_url=url, api_key="k")), SqliteStore(folder / "runs.db") as store:
        work = Batch(
            Refine(Team(), N=1, advisor=False),
            concurrency=8,
            budget=Budget(calls=limit),
            store=store,
            batch_id="victim",
        )
        statuses = {}
        async for item in work.as_completed(items(n), skip=output.has):
            statuses[item.status] = statuses.get(item.status, 0) + 1
            if item.ended:
                output.write(item)
        books = {"calls": work.usage.calls, "rows": output.rows, "statuses": statuses}
    part = folder / "done.part"
    part.write_text(json.dumps(books))
    part.rename(folder / "done")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
