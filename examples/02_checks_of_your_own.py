"""A check is a function: told to the author, scored with partial credit, explained, and mended by code where it can be.

    python examples/02_checks_of_your_own.py

Replies come from a script, so that every kind of failure is met. Expected output: three drafts; the second is the
first one mended by code, for nothing; the third passes.
"""

import re
from typing import Any

from redraft import Predict, Refine, Result, check
from redraft.testing import ScriptedLM

SCRIPT = ["Buy it now!!! You and your skin will love it!", "Suds: a soap that lasts, for hands that work."]


@check(tell="Use no exclamation marks.", fix=lambda text: re.sub("!+", ".", text))
def calm(text: str) -> bool:
    """True or False is enough; the fix is taken if no other check fails for it."""
    return "!" not in text


@check(tell="Do not address the reader.")
def about_the_product(text: str) -> tuple[float, str]:
    """A number with a reason: each word that addresses the reader takes some of the credit."""
    found = re.findall(r"\b(?:buy|you|your)\b", text, re.IGNORECASE)
    return 1 / (1 + len(found)), f"it addresses the reader: {', '.join(found)}"


@check(tell="Name the product.")
def named(inputs: dict[str, Any], prediction: Any) -> str | None:
    """With two parameters a check sees the inputs as well; a complaint is a failure, None is fine."""
    name = inputs["product"].split(",")[0]
    return None if name in prediction.slogan else f"{name} is not named"


def main() -> Result:
    """Write a slogan."""
    write = Refine(Predict("product -> slogan", lm=ScriptedLM(SCRIPT)), N=3, checks=[calm, about_the_product, named])
    result = write(product="Suds, a soap")
    for attempt in result.attempts:
        print(f"draft {attempt.index + 1} ({attempt.rung}, {attempt.score.value:.2f}): {attempt.text}")
        for verdict in attempt.score.verdicts:
            print(f"    {'ok' if verdict.passed else 'x '} {verdict.check} {verdict.score:.2f} {verdict.explanation}")
    print(result.receipt())
    return result


if __name__ == "__main__":
    main()
