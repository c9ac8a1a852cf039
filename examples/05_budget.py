"""A budget is hard: calls, tokens, dollars, seconds. What might not fit is never sent, and the best so far comes back.

    python examples/05_budget.py

The model is a script with a price, so that each figure can be checked by hand: a token is a word and costs a cent.
Expected output: for each limit what was spent, why it stopped, and that too little money for one call is an error with the
numbers, before anything is spent.
"""

from redraft import Budget, Predict, Refine, Result, checks
from redraft.errors import BudgetExceeded
from redraft.testing import ScriptedLM

DRAFTS = ["one", "one two", "one two three", "one two three four", "one two three four five"]


def tried(budget: Budget) -> Result:
    """Ask for nine words, which no draft has: only the budget ends it."""
    lm = ScriptedLM(DRAFTS, price=0.01)
    return Refine(Predict("topic -> line", lm=lm, max_tokens=20), N=5, checks=[checks.words(9)], budget=budget)(
        topic="tea"
    )


def main() -> list[Result]:
    """The same task under three budgets, and under one that is too small."""
    results = []
    for name, budget in {
        "no limit": Budget(),
        "2 calls": Budget(calls=2),
        "60 tokens": Budget(tokens=60),
        "50 cents": Budget(cost=0.50),
    }.items():
        result = tried(budget)
        print(
            f"{name:10} {result.usage.calls} calls, {result.usage.tokens} tokens, ${result.cost:.2f}: {result.stop_reason}"
        )
        print(f"           the best so far: {result.line!r}; {result.error}")
        results.append(result)
    try:
        tried(Budget(cost=0.05))
    except BudgetExceeded as error:
        print(f"5 cents    {error} ({error.usage.calls} calls)")
    return results


if __name__ == "__main__":
    main()
