"""An RLM reads a server log: error patterns, a timeline and the root cause, with a tool of this machine.

    python examples/rlm_logs.py

After the second example of dspy.RLM's guide. The log is generated, so the exact answer is known. Models answer from a
script: the author's turns are written below, the sub-model finds its answer in the prompt by code. To ask a real one, give its
name: `python examples/rlm_logs.py openai/gpt-5-mini`. Expected output: each turn, then three exact answers.
"""

import random
import re
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from redraft import RLM, Budget, Refine
from redraft.testing import FunctionLM, ScriptedLM

PATTERNS = ["connection pool exhausted", "upstream timed out", "disk quota exceeded"]
asked: list[str] = []


def is_timestamp(text: str) -> bool:
    """True if the text is an ISO 8601 time."""
    asked.append(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def generated(path: Path, lines: int = 40_000) -> dict[str, object]:
    """Write a log; the exact answers."""
    chance = random.Random(7)
    at = datetime.fromisoformat("2026-03-01")
    errors: list[tuple[str, str]] = []
    with path.open("w") as file:
        for i in range(lines):
            at += timedelta(seconds=chance.randint(1, 5))
            if i % 997 == 500:
                errors.append((at.isoformat(), chance.choice(PATTERNS)))
                file.write(f"{errors[-1][0]} ERROR {errors[-1][1]}\n")
            else:
                file.write(f"{at.isoformat()} INFO GET /item/{chance.randint(1, 999)} 200\n")
    return {"error_patterns": sorted({what for _, what in errors}), "first": errors[0][0], "root_cause": errors[0][1]}


AUTHOR = [
    """How is a line built?
```python
print(peek(logs, 0, 200))
print(grep("ERROR", logs, window=60, limit=1))
```""",
    """A line is a time, a level and a message. I collect the errors, and check the times.
```python
import re
errors = re.findall(r"^(\\S+) ERROR (.*)$", logs, re.M)
print(len(errors), all(is_timestamp(t) for t, _ in errors[:20]), is_timestamp("yesterday"))
```""",
    """What came first is the likely cause; a model reads the first ones.
```python
cause = llm_query("Which error came first? Answer with its message alone.\\n" + "\\n".join(f"{t} {m}" for t, m in errors[:5]))
SUBMIT(error_patterns=sorted({m for _, m in errors}), first=errors[0][0], root_cause=cause)
```""",
]


def first_line(request) -> str:  # noqa: ANN001 - a Request
    """What a model would find in the prompt."""
    return re.search(r"^\d\S+ (.*)$", request.messages[-1]["content"], re.MULTILINE)[1]


def main(model: str | None = None) -> dict[str, object]:
    """Ask, and compare with the exact answers, which are returned with what was found."""
    lm = model or ScriptedLM(AUTHOR, name="author")
    rlm = RLM(
        "logs, query -> error_patterns: list[str], first: str, root_cause: str",
        max_llm_calls=10,
        tools=[is_timestamp],
        sub_lm=model or FunctionLM(first_line, name="reader"),
        lm=lm,
        verbose=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.log")
        exact = generated(path)
        print(f"{path.stat().st_size:,} bytes of log")
        result = Refine(rlm, N=1, budget=Budget(calls=30))(
            logs=path, query="The distinct error messages, the time of the first error, and its message as root cause"
        )
    for name, value in exact.items():
        print(f"{name}: {result[name]} ({'exact' if result[name] == value else f'wrong, it is {value}'})")
    print(f"the tool was asked {len(asked)} times; {result.receipt()}")
    return {"exact": exact, "result": result}


if __name__ == "__main__":
    found = main(*sys.argv[1:2])
    sys.exit(any(found["result"][name] != value for name, value in found["exact"].items()))
