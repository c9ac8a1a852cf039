"""BestOfN with a judge: independent samples; checks gate them, and a judge picks among those that code cannot tell apart.

    python examples/03_best_of_n_with_a_judge.py

A judge is a model, a persona or a function (task, drafts) -> index. A model is asked in two orders and has to say the
same, for judges prefer places. Here script and judge are stand-ins, so that it runs anywhere. Expected output: three
drafts, of which one fails a check; the judge's pick of the other two; five calls.
"""

import json
import re

from redraft import BestOfN, Predict, Request, Result, checks
from redraft.testing import FunctionLM, ScriptedLM

DRAFTS = ["Tea is a nice drink.", "Rain on the tin roof, and the tea goes cold.", "What a lovely day it is."]


def vivid(request: Request) -> str:
    """Stands in for a judge's model: it looks for rain, wherever that draft stands."""
    shown = re.findall(r"Draft (\w):\n<.*?>\n(.*?)\n<", request.messages[-1]["content"])
    return json.dumps({"best": next((letter for letter, draft in shown if "Rain" in draft), "tie")})


def main() -> Result:
    """Write a line on tea."""
    judge = FunctionLM(vivid, name="judge")
    write = BestOfN(
        Predict("topic -> line", lm=ScriptedLM(DRAFTS)),
        N=3,
        checks=[checks.contains("tea")],
        judge=judge,
        concurrency=3,
    )
    result = write(topic="an afternoon")
    for attempt in result.attempts:
        print(f"draft {attempt.index + 1}: {attempt.text} | {attempt.reason}")
    print(f"kept: {result.line}")
    print(f"{result.receipt()}; the judge was asked {len(judge.requests)} times")
    return result


if __name__ == "__main__":
    main()
