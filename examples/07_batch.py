"""Many items under one budget: each is a run of its own, an error is a row, and a killed batch would go on where it was.

    python examples/07_batch.py

A function stands in for the model, so that one item fails for sure. With `store=` and `batch_id=` the same call goes on
after a kill; on the command line it is `redraft batch in.jsonl out.jsonl`. Expected output: a line for each item as it
ends, then the sum.
"""

from redraft import BatchItem, Budget, Predict, Refine, Request, checks
from redraft.errors import BadRequestError
from redraft.testing import FunctionLM
from redraft.types import Capabilities

TOWNS = ["Lyon", "Porto", "Bergen", "Nowhere", "Graz", "Ghent"]


def reply(request: Request) -> str:
    """Three words at the second try, which is warmer; of one town the upstream knows nothing."""
    town = request.messages[-1]["content"].split("Town: ")[1].split()[0]
    if town == "Nowhere":
        raise BadRequestError("400: there is no such town")
    return f"{town} by night" if request.temperature else f"{town} is a very old town"


def main() -> list[BatchItem]:
    """Write a line for each town, three at a time."""
    lm = FunctionLM(reply, capabilities=Capabilities())  # it takes no constraint: a second draft is a new sample
    write = Refine(Predict("town -> line", lm=lm, temperature=0.0), N=3, checks=[checks.words(3)])
    items = [{"id": town.lower(), "town": town} for town in TOWNS]
    done = list(write.batch(items, concurrency=3, budget=Budget(calls=20), item_budget=Budget(calls=4)))
    for item in done:
        said = item.result.line if item.result else item.error
        print(f"{item.key:8} {item.status:6} {item.usage.calls} calls  {said}")
    print(f"{len(done)} items, {sum(item.usage.calls for item in done)} calls")
    return done


if __name__ == "__main__":
    main()
