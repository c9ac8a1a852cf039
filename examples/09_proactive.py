"""A text is mended while it is written: what cannot pass any more is taken back at once, not paid for to its end.

    python examples/09_proactive.py

It runs on the embedded model (98 MB, fetched once), for it takes a model that reports likely tokens and continues a text.
Expected output: what was taken back and why, what was put there instead, a text that passes, and its tokens.
"""

import redraft
from redraft import Predict, ProactiveDecoder, Result, Run, checks
from redraft.types import Event

CHECKS = [checks.forbids("world", "new"), checks.sentences(1)]


def rewinds(event: Event) -> None:
    """Say what is taken back, as it happens."""
    if event.kind == "rewind":
        taken, put, why = event.data["taken"], event.data["put"], event.data["cause"]
        print(f"    {why}: took back {taken!r}, put {put!r}", flush=True)


def main() -> Result:
    """Write one sentence without two words that this model likes."""
    write = ProactiveDecoder(Predict("topic -> sentence", max_tokens=40, temperature=0.0), checks=CHECKS)
    with redraft.context(model="local/smollm2-135m", seed=1), Run(listeners=[rewinds]):
        result = write(topic="winter morning")
    print(result.text)
    print(result.receipt())
    return result


if __name__ == "__main__":
    main()
