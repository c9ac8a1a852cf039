"""The first refined answer: code judges each draft, and the next one is decoded under what the checks ask for.

    python examples/01_first_refine.py                        # the embedded model: no key; 98 MB, fetched once
    python examples/01_first_refine.py openai/gpt-4.1-mini    # any other

A model this small writes poorly; what to look at is how the text came about and what it cost. Expected output: each draft
with its verdicts, what changed and why it was kept or not, and the receipt.
"""

import sys

import redraft
from redraft import Predict, Refine, Result, checks
from redraft.report.text import trajectory


def main(model: str = "local/smollm2-135m") -> Result:
    """Write a review of three sentences that names the place."""
    write = Refine(Predict("topic -> review"), N=3, checks=[checks.sentences(3), checks.contains("La Maison")])
    with redraft.context(model=model, seed=1):  # the same drafts each time, on the same machine
        result = write(topic="La Maison, a French restaurant")
    print(trajectory(result.attempts, result.best))
    print(f"\n{result.receipt()}")
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
