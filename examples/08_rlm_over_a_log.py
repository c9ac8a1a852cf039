"""An RLM reads a log that fits no prompt: code that a model writes counts and searches, and asks a model about pieces.

    python examples/08_rlm_over_a_log.py

Models answer from a script (the embedded one cannot write such code); a real one: `python examples/08_rlm_over_a_log.py
openai/gpt-5-mini`. The code runs in the jail (Linux). Expected output: each turn, then three exact answers.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from redraft import RLM, Budget, Refine, Request
from redraft.testing import FunctionLM, ScriptedLM

SIGNATURE = "logs, query -> error_patterns: list[str], first: str, root_cause: str"
QUERY = "The distinct error messages, the number of the first error's line, and its message as root cause"
PATTERNS = ["upstream timed out", "connection pool exhausted", "disk quota exceeded"]
EXACT = {"error_patterns": sorted(PATTERNS), "first": "00500", "root_cause": PATTERNS[0]}
AUTHOR = [
    'How is a line built?\n```python\nprint(peek(logs, 0, 99))\nprint(grep("ERROR", logs, window=60, limit=1))\n```',
    'I collect the errors.\n```python\nimport re\nerrors = re.findall(r"^(\\S+) ERROR (.*)$", logs, re.M)\nlen(errors)\n```',
    """What came first is the likely cause.
```python
cause = llm_query("Which error came first? Answer with its message alone.\\n" + "\\n".join(map(" ".join, errors[:5])))
SUBMIT(error_patterns=sorted({m for _, m in errors}), first=errors[0][0], root_cause=cause)
```""",
]


def line(i: int) -> str:
    """One of 40,000; every thousandth is an error."""
    return f"{i:05} {f'ERROR {PATTERNS[i // 1000 % 3]}' if i % 1000 == 500 else f'INFO GET /{i * 7919 % 997} 200'}\n"


def first_line(request: Request) -> str:
    """Stands in for a sub-model: what it would find in its prompt."""
    return re.search(r"^\d\S+ (.*)$", request.messages[-1]["content"], re.MULTILINE)[1]


def main(model: str | None = None) -> Any:
    """Ask, and compare."""
    lm, sub_lm = model or ScriptedLM(AUTHOR), model or FunctionLM(first_line)
    rlm = RLM(
        "logs, query -> error_patterns: list[str], first: str, root_cause: str", lm=lm, sub_lm=sub_lm, verbose=True
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.log")
        path.write_text("".join(map(line, range(40_000))))
        result = Refine(rlm, N=1, budget=Budget(calls=30))(logs=path, query=QUERY)
    for name, value in EXACT.items():
        print(f"{name}: {result[name]} ({'exact' if result[name] == value else f'wrong, it is {value}'})")
    print(result.receipt())
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
