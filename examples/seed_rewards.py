"""Coming from DSPy: reward functions and modules written for it run as they are, under Refine and BestOfN.

What differs: a model is named with `configure(model="openai/...")` or `lm=`. On a small model such as the embedded one Refine gives no
hints and no advice, which were measured to harm it, so that without checks it draws the same samples as BestOfN.

What you see for each: the score of what was kept, what it cost, and why it stopped. And, once each, what is wasteful about
a set-up: a reward that only says yes or no cannot rank near misses, one that asks a model pays it for every attempt.

Expected output on the embedded model, in a minute or two (a better one: `python examples/seed_rewards.py openai/gpt-4.1-mini`):

    redraft: reward function 'concise_answer' only says yes or no: among 3 attempts it cannot tell a near miss from a ...
    concise_answer          Refine   1.00  kept draft 2 of 2 | 2 calls | 251 tokens | $0.00 | stopped: threshold
    concise_answer          BestOfN  1.00  kept draft 2 of 2 | 2 calls | 251 tokens | $0.00 | stopped: threshold
    ...
    good_summary            Refine   0.50  kept draft 1 of 3 | 5 calls | 1622 tokens | $0.00 | stopped: rounds
    redraft: reward function 'quality_reward' calls a model for each attempt; use a rubric check, asked only of ...
    quality_reward          Refine   1.00  kept draft 1 of 1 | 2 calls | 362 tokens | $0.00 | stopped: threshold
"""

# ruff: noqa: ARG001, D101, D102 - functions and class stand as they are in the guides
from __future__ import annotations

import re
import sys
from typing import Any

import redraft as dspy
from redraft.errors import ParseError
from redraft.lm import catalogue

# As they stand in guides to DSPy


def concise_answer(args: Any, pred: Any) -> float:
    """Reward one-word answers."""
    return 1.0 if len(pred.answer.split()) == 1 else 0.0


def valid_json(args: Any, pred: Any) -> float:
    """Accept only valid JSON outputs."""
    import json

    try:
        json.loads(pred.output)
        return 1.0
    except (json.JSONDecodeError, TypeError):
        return 0.0


def quality_score(args: Any, pred: Any) -> float:
    """Score answer quality on multiple criteria."""
    score = 0.0
    answer = pred.answer

    # Criterion 1: not empty
    if answer.strip():
        score += 0.3

    # Criterion 2: reasonable length (20-200 words)
    word_count = len(answer.split())
    if 20 <= word_count <= 200:
        score += 0.4

    # Criterion 3: addresses the question
    if args["question"].split()[0].lower() in answer.lower():
        score += 0.3

    return score


def valid_email_extraction(args: Any, pred: Any) -> float:
    """Reward valid email addresses extracted from text."""
    emails = pred.emails if isinstance(pred.emails, list) else []
    if not emails:
        return 0.0
    email_pattern = r"^[\w.-]+@[\w.-]+\.\w+$"
    valid_count = sum(1 for e in emails if re.match(email_pattern, e))
    return valid_count / len(emails)


class Summarizer(dspy.Module):
    def __init__(self) -> None:
        self.summarize = dspy.ChainOfThought("article -> summary", max_tokens=200)

    def forward(self, article: str) -> Any:
        return self.summarize(article=article)


def good_summary(args: Any, pred: Any) -> float:
    """Score summary quality."""
    summary = pred.summary
    article = args["article"]
    score = 0.0

    # Shorter than original
    if len(summary) < len(article) * 0.3:
        score += 0.5

    # At least 2 sentences
    if summary.count(".") >= 2:
        score += 0.5

    return score


def quality_reward(args: Any, pred: Any) -> float:
    """Reward analysis that meets a minimum quality threshold."""
    judge = dspy.ChainOfThought("query, summary, top_complaints -> quality_score: float, feedback")
    evaluation = judge(
        query=args["query"],
        summary=pred.summary,
        top_complaints=pred.top_complaints,
    )
    return float(evaluation.quality_score)


def log_analysis_reward(args: Any, pred: Any) -> float:
    """Hard constraints return 0.0 on failure; soft constraints subtract a small penalty."""
    # Hard constraints - must have patterns and substantive root cause
    if len(pred.error_patterns) == 0:
        return 0.0
    if len(pred.root_cause) < 20:
        return 0.0
    # Soft constraint - prefer focused pattern lists
    score = 1.0
    if len(pred.error_patterns) > 10:
        score -= 0.1
    return score


# What they are tried on

ARTICLE = (
    "Hemp was sown along this coast for four hundred years, and every harbour had its rope walk: a shed as long as the "
    "longest rope, where men walked backwards all day, spinning. Steam took the work in 1870, and wire took the trade in "
    "1890. Of the forty sheds two are left. One is a bowling alley. The other spins rope again, for museums and for film "
    "crews, on a machine that its owner built from a bicycle and the drawings in a parish chest. She has eleven orders "
    "waiting, and no apprentice yet."
)
LOGS = "09:01 ERROR db timeout\n09:02 WARN retry\n09:03 ERROR db timeout\n09:04 ERROR pool exhausted, 0 of 20 free"
REVIEWS = "The battery died after a day. / Lovely screen. / Battery again: flat by noon. / Support never answered."

SHORT: Any = {"max_tokens": 120}

TRIALS: list[tuple[Any, Any, float, dict[str, str]]] = [
    (
        concise_answer,
        dspy.ChainOfThought("question -> answer", **SHORT),
        1.0,
        {"question": "What is the capital of Belgium?"},
    ),
    (
        valid_json,
        dspy.Predict("text -> output", **SHORT),
        1.0,
        {"text": "As JSON with the keys name and age: Ann is 30."},
    ),
    (
        quality_score,
        dspy.Predict("question -> answer", **SHORT),
        0.7,
        {"question": "Why is the sky blue?"},
    ),
    (
        valid_email_extraction,
        dspy.Predict("text -> emails: list[str]", **SHORT),
        1.0,
        {"text": "Write to ann@example.org or bob@example.com."},
    ),
    (
        good_summary,
        Summarizer(),
        0.8,
        {"article": ARTICLE},
    ),
    (
        quality_reward,
        dspy.Predict("reviews, query -> summary, top_complaints: list[str]", **SHORT),
        0.7,
        {"reviews": REVIEWS, "query": "Summarize customer feedback"},
    ),
    (
        log_analysis_reward,
        dspy.Predict("logs, query -> root_cause, error_patterns: list[str]", **SHORT),
        0.9,
        {"logs": LOGS, "query": "Find error patterns and root causes"},
    ),
]


def main(model: dspy.LM | str = "local/smollm2-135m", seed: int = 3) -> list[dspy.Result]:
    """Try each reward function under both, show what came of it, and return it."""
    if isinstance(model, str) and model.startswith("local/"):
        catalogue.pull(model.removeprefix("local/"))
    results = []
    with dspy.context(model=model, seed=seed):
        for reward, module, threshold, inputs in TRIALS:
            for method in (dspy.Refine, dspy.BestOfN):
                best = method(module=module, N=3, reward_fn=reward, threshold=threshold)
                row = f"{reward.__name__:22}  {method.__name__:7}"
                try:
                    result = best(**inputs)
                except ParseError as error:
                    print(f"{row}     -  none of {len(error.attempts)} attempts could be read: {error}", flush=True)
                    continue
                results.append(result)
                print(f"{row}  {result.score or 0:4.2f}  {result.receipt()}", flush=True)
    return results


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
