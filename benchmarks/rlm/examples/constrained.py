"""The third example of dspy.RLM's guide: Refine around an RLM; hard constraints fail an attempt, soft ones cost a little.

    python benchmarks/rlm/examples/constrained.py [--size 100MB]

The first attempt's root model is told to leave the patterns empty, so that the hard constraint has something to refuse.
"""

from collections.abc import Mapping
from typing import Any

import setting

from redraft import RLM, Refine


def log_analysis_reward(_args: Mapping[str, Any], pred: Any) -> float | tuple[float, str]:
    """Hard constraints return 0.0 on failure; soft constraints subtract a small penalty."""
    if len(pred.error_patterns) == 0:
        return 0.0, "error_patterns is empty"
    if len(pred.root_cause) < 20:
        return 0.0, "root_cause says too little"
    score = 1.0
    if len(pred.error_patterns) > 10:
        score -= 0.1
    return score


data, gold, (lm, sub_lm) = setting.begin("logs", careless=1)

analyzer = Refine(
    RLM(
        "logs, query -> error_patterns: list[str], timeline: str, root_cause: str",
        lm=lm,
        sub_lm=sub_lm,
        max_iterations=20,
        max_llm_calls=30,
        interpreter_factory=setting.sandbox,
    ),
    N=3,
    reward_fn=log_analysis_reward,
    threshold=0.9,
)
result = analyzer(logs=data, query=setting.query("logs", gold))

for attempt in result.attempts:
    print(f"attempt {attempt.index + 1}: score {attempt.score and attempt.score.value}, {attempt.reason}")
print("stopped:", result.stop_reason, "| error patterns:", result.error_patterns)

setting.compare(result, gold)
