"""The arms: each takes a job and returns the text that its user would get.

All get the same prompt, the same limit of tokens a call, the same checks and at most three tries. Where an arm's library lets one
say so, the first try is greedy and later ones have T=0.9, top_p 0.95; mellea and instructor cannot vary it, so the proxy does it for
them (`LADDER`). dspy sets T=1.0 on every try of BestOfN and Refine, and keeps it. Peers are imported when they run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import openai
from server import RETRY
from tasks import Task

from redraft import BestOfN, Predict, Refine
from redraft.checks import Check
from redraft.grammar import engine_grammar
from redraft.lm.openai import OpenAILM
from redraft.types import Capabilities

TRIES = 3
MAX_TOKENS = 160
ADVICE_TOKENS = 400  # of dspy's feedback calls, whose discussion would not fit the limit of an answer
GREEDY = {"temperature": 0.0}


@dataclass(frozen=True)
class Job:
    """One prompt for one model, behind one worker's path."""

    task: Task
    model: str
    url: str


@cache
def _client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=900)


def _ask(job: Job, messages: list[dict[str, str]] | None = None, **options: Any) -> str:
    messages = messages or [{"role": "user", "content": job.task.prompt}]
    reply = _client(job.url).chat.completions.create(
        model=job.model, messages=messages, max_tokens=MAX_TOKENS, **options
    )
    return reply.choices[0].message.content or ""


# Without a library


def single(job: Job) -> str:
    """One greedy answer."""
    return _ask(job, **GREEDY)


def blind(job: Job) -> str:
    """Best of 3 by the checks, nothing learned in between: the peer to beat."""
    best, best_score = "", -1.0
    for nth in range(TRIES):
        text = _ask(job, **(RETRY if nth else GREEDY))
        score = job.task.score(text)
        if score.value > best_score:
            best, best_score = text, score.value
        if score.passed:
            break
    return best


def guided(job: Job) -> str:
    """One greedy answer under the constraint that the checks compile to; a plain one where none does."""
    constraint = job.task.constraint
    extra = {"grammar": engine_grammar(constraint.grammar())} if constraint else {}
    return _ask(job, **GREEDY, extra_body=extra)


def loop(job: Job) -> str:
    """What many people write: show the bad answer, say what is wrong, ask again."""
    messages = [{"role": "user", "content": job.task.prompt}]
    text = ""
    for nth in range(TRIES):
        text = _ask(job, messages, **(RETRY if nth else GREEDY))
        wrong = job.task.complaints(text)
        if not wrong:
            break
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": f"That answer is not right: {wrong}. Please answer again."})
    return text


# Ours


@cache
def _lm(model: str, url: str) -> OpenAILM:
    able = Capabilities(json_schema=True, grammar=True, logprobs=True, seed=True)  # as llama.cpp's server is
    return OpenAILM(model, base_url=url, capabilities=able)


def _author(job: Job) -> Predict:
    return Predict("task -> answer", lm=_lm(job.model, job.url), max_tokens=MAX_TOKENS, top_p=RETRY["top_p"], **GREEDY)


def refine(job: Job) -> str:
    """Our Refine as it comes. The checks are not told a second time: the prompt states them, as it does for every arm."""
    return Refine(_author(job), N=TRIES, checks=_untold(job.task))(task=job.task.prompt).text


def refine_told(job: Job) -> str:
    """Ablation: the checks told by us as well."""
    return Refine(_author(job), N=TRIES, checks=job.task.checks)(task=job.task.prompt).text


def _untold(task: Task) -> list[Check]:
    untold = [copy(check) for check in task.checks]
    for check in untold:
        check.told = False
    return untold


def bestofn(job: Job) -> str:
    """Our BestOfN as it comes."""
    strategy = BestOfN(_author(job), N=TRIES, checks=_untold(job.task))
    return strategy(task=job.task.prompt).text


def sketch(job: Job) -> str:
    """Ablation: the plainest ladder. A greedy draft, a greedy one under the constraint, then samples under it."""
    constraint = job.task.constraint
    extra = {"grammar": engine_grammar(constraint.grammar())} if constraint else {}
    best, best_score = "", -1.0
    for nth in range(TRIES):
        sampled = RETRY if nth > 1 or (nth and not extra) else GREEDY
        text = _ask(job, **sampled, extra_body=extra if nth else {})
        score = job.task.score(text)
        if score.value > best_score:
            best, best_score = text, score.value
        if score.passed:
            break
    return best


# Peers


def _dspy(job: Job, kind: str) -> str:
    import dspy

    def lm(limit: int) -> Any:
        return dspy.LM(
            f"openai/{job.model}", api_base=job.url, api_key="none", cache=False, num_retries=0, max_tokens=limit
        )

    def reward(_: Any, pred: Any) -> float:
        """The share of the requirements in the prompt that the answer meets."""
        return job.task.share(pred.answer or "")

    module = dspy.Predict("task -> answer")
    module.set_lm(lm(MAX_TOKENS))
    with dspy.context(lm=lm(ADVICE_TOKENS)):
        strategy = getattr(dspy, kind)(module, N=TRIES, reward_fn=reward, threshold=1.0)
        pred = strategy(task=job.task.prompt)
    return "" if pred is None else pred.answer or ""


def dspy_refine(job: Job) -> str:
    """dspy.Refine(N=3)."""
    return _dspy(job, "Refine")


def dspy_bestofn(job: Job) -> str:
    """dspy.BestOfN(N=3)."""
    return _dspy(job, "BestOfN")


@cache
def _mellea_backend(model: str, url: str) -> Any:
    import logging

    from mellea.backends.model_options import ModelOption
    from mellea.backends.openai import OpenAIBackend
    from mellea.core import MelleaLogger

    MelleaLogger.get_logger().setLevel(logging.ERROR)
    options = {ModelOption.MAX_NEW_TOKENS: MAX_TOKENS, ModelOption.STREAM_TIMEOUT: None}
    return OpenAIBackend(model, base_url=url, api_key="none", model_options=options)


def _mellea(job: Job, strategy: str) -> str:
    from mellea import MelleaSession
    from mellea.core import Requirement
    from mellea.stdlib import sampling
    from mellea.stdlib.context import SimpleContext
    from mellea.stdlib.requirements import simple_validate

    def requirement(nth: int) -> Any:
        def judged(text: str) -> tuple[bool, str]:
            verdict = job.task.score(text).verdicts[nth]
            return verdict.passed, verdict.explanation

        return Requirement(job.task.checks[nth].tell(), validation_fn=simple_validate(judged))

    session = MelleaSession(_mellea_backend(job.model, job.url), ctx=SimpleContext())
    result = session.instruct(
        job.task.prompt,
        requirements=[requirement(nth) for nth in range(len(job.task.checks))],
        strategy=getattr(sampling, strategy)(loop_budget=TRIES),
        return_sampling_results=True,
    )
    return str(result.result.value or "")


def mellea_rejection(job: Job) -> str:
    """mellea's rejection sampling."""
    return _mellea(job, "RejectionSamplingStrategy")


def mellea_repair(job: Job) -> str:
    """mellea's repair template."""
    return _mellea(job, "RepairTemplateStrategy")


def instructor_retry(job: Job) -> str:
    """instructor's retries: a schema's fields for JSON tasks, else one text field; the checks are the validator."""
    import instructor
    from instructor.core.exceptions import InstructorRetryException

    client = instructor.from_openai(_client(job.url), mode=instructor.Mode.JSON_SCHEMA)
    model = _model_for(job.task)
    try:
        answer = client.chat.completions.create(
            model=job.model,
            messages=[{"role": "user", "content": job.task.prompt}],
            response_model=model,
            max_retries=TRIES - 1,
            max_tokens=MAX_TOKENS,
        )
    except InstructorRetryException as failed:
        last = failed.last_completion
        return (last.choices[0].message.content or "") if last else ""
    return _written(answer)


def _written(answer: Any) -> str:
    fields = answer.model_dump()
    return fields["text"] if list(fields) == ["text"] else json.dumps(fields, ensure_ascii=False)


def _model_for(task: Task) -> Any:
    from pydantic import create_model, model_validator

    schema = next((c.schema for c in task.checks if hasattr(c, "schema")), None)
    kinds = {"string": str, "integer": int, "number": float}
    listed = schema.get("properties", {}) if schema else {"text": {"type": "string"}}
    fields: dict[str, Any] = {name: (kinds[part["type"]], ...) for name, part in listed.items()}

    def meets_the_requirements(answer: Any) -> Any:
        if wrong := task.complaints(_written(answer)):
            raise ValueError(wrong)
        return answer

    held = {"requirements": model_validator(mode="after")(meets_the_requirements)}
    return create_model("Answer", __validators__=held, **fields)


ARMS: dict[str, Callable[[Job], str]] = {
    "single": single,
    "blind": blind,
    "refine": refine,
    "guided": guided,
    "loop": loop,
    "mellea_rejection": mellea_rejection,
    "mellea_repair": mellea_repair,
    "dspy_bestofn": dspy_bestofn,
    "dspy_refine": dspy_refine,
    "instructor": instructor_retry,
    "bestofn": bestofn,
    "refine_told": refine_told,
    "sketch": sketch,
}
"""In the order in which they run."""

ABLATIONS = frozenset({"bestofn", "refine_told", "sketch"})
"""Run only if they are named."""

LADDER = frozenset({"mellea_rejection", "mellea_repair", "instructor"})
NEEDS = {"dspy_bestofn": "dspy", "dspy_refine": "dspy", "mellea_rejection": "mellea", "mellea_repair": "mellea",
         "instructor": "instructor"}  # fmt: skip
