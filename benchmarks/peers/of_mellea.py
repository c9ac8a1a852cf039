"""mellea: a requirement with a validation function, under its rejection sampling and its repair template."""

import logging

from child import Said, run, sentences
from mellea import MelleaSession
from mellea.backends.openai import OpenAIBackend
from mellea.core import MelleaLogger, Requirement
from mellea.stdlib import sampling
from mellea.stdlib.context import SimpleContext
from mellea.stdlib.requirements import simple_validate

MelleaLogger.get_logger().setLevel(logging.ERROR)


def options(kind, job):
    def three(text):
        return sentences(text) == 3, f"{sentences(text)} sentences, want 3"

    requirement = Requirement("Write exactly three sentences.", validation_fn=simple_validate(three))
    strategy = getattr(sampling, kind)(loop_budget=job["tries"])
    return {"requirements": [requirement], "strategy": strategy, "return_sampling_results": True}


def session(job):
    more = {"timeout": job["timeout"]} if "timeout" in job else {}
    backend = OpenAIBackend(job["model"], base_url=job["url"], api_key="none", **more)
    return MelleaSession(backend, ctx=SimpleContext())


def said(result):
    spent = [one.generation.usage for one in result.sample_generations]
    return Said(str(result.result.value or ""), sum(one["total_tokens"] for one in spent) if all(spent) else None)


def of(kind):
    def make(job):
        there = session(job)

        def answer(prompt):
            return said(there.instruct(prompt, **options(kind, job)))

        return answer

    return make


def at_once(job):
    there = session(job)

    async def answer(prompt):
        return said(await there.ainstruct(prompt, **options("RejectionSamplingStrategy", job)))

    return answer


if __name__ == "__main__":
    run({"rejection": of("RejectionSamplingStrategy"), "repair": of("RepairTemplateStrategy"), "at once": at_once})
