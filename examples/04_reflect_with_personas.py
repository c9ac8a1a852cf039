"""Self-Refine between two personas: a poet writes, an editor notes what falls short, and a revision has to win.

    python examples/04_reflect_with_personas.py

Replies come from a script, in the order in which they are asked for: a model that criticises well is not small. Name one
to see it live: `python examples/04_reflect_with_personas.py openai/gpt-4.1-mini`. Expected output: who was asked what,
two drafts, the editor's note, and that the revision won in both orders of the two drafts.
"""

import sys

import redraft
from redraft import Budget, Reflect, Result, Run
from redraft.testing import ScriptedLM
from redraft.types import Capabilities, Event

SCRIPT = [
    "The dog is in the garden.",  # the poet
    "- there is no picture in it -> say what one sees",  # the editor
    "A red dog digs among the beans.",  # the poet, who sees the draft and the note
    "A",  # the judge: the first of the two is better
    "B",  # the same judge, the drafts changed round: the same draft is better
    "OK",  # the editor has nothing left
]


PLAIN = Capabilities()  # no JSON schema, so that critic and judge are asked in words


def roles(event: Event) -> None:
    """Say who is asked."""
    if event.kind == "call":
        print(f"    {event.data['role']} answered")


def main(model: str | None = None) -> Result:
    """Write a line, and have it edited."""
    write = Reflect("Write one line about a dog", writer="poet", editor="strict editor", criteria=["imagery"], rounds=2)
    with (
        redraft.context(model=model or ScriptedLM(SCRIPT, capabilities=PLAIN)),
        Run(budget=Budget(calls=10), listeners=[roles]),
    ):
        result = write()
    for attempt in result.attempts:
        print(f"draft {attempt.index + 1}: {attempt.text} | {attempt.reason}")
        for issue in attempt.critique.issues if attempt.critique else ():
            print(f"    the editor: {issue.problem}; {issue.suggestion}")
    print(result.receipt())
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
