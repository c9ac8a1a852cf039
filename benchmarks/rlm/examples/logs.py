"""The second example of dspy.RLM's guide: error patterns, timeline and root cause of a server log, with a tool of the host.

python benchmarks/rlm/examples/logs.py [--size 100MB]
"""

from datetime import datetime

import setting

from redraft import RLM

asked: list[str] = []


def validate_timestamp(ts: str) -> bool:
    """Check if a timestamp string matches ISO 8601 format."""
    asked.append(ts)
    try:
        datetime.fromisoformat(ts)
    except ValueError:
        return False
    return True


data, gold, (lm, sub_lm) = setting.begin("logs")

rlm = RLM(
    "logs, query -> error_patterns: list[str], timeline: str, root_cause: str",
    lm=lm,
    sub_lm=sub_lm,
    tools=[validate_timestamp],
    max_iterations=20,
    max_llm_calls=30,
    interpreter=setting.sandbox(),
)
result = rlm(logs=data, query=setting.query("logs", gold))

print("Error patterns:", result.error_patterns)
print("Timeline:", result.timeline.replace("\n", ", ")[:300], "...")
print("Root cause:", result.root_cause)
print("The tool was asked", len(asked), "times")

setting.compare(result, gold)
