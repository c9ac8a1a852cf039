"""Ours."""

import os
import sys
import tempfile
from pathlib import Path

import openai
from child import Said, free_port, proxy, run, share

from redraft import BestOfN, Budget, Predict, Refine, checks, context
from redraft.lm.openai import OpenAILM


def author(job):
    return Predict("task -> answer", lm=OpenAILM(job["model"], base_url=job["url"], parallel=job.get("at_once") or 64))


def reward(_, pred):
    """The share of three sentences that the answer has."""
    return share(pred.answer)


def said(result):
    return Said(result.answer if "answer" in result else None, result.usage.input_tokens + result.usage.output_tokens)


def called(strategy, job):
    """As a script calls it. A limit in seconds stands for the timeout that others give their clients."""
    budget = Budget(seconds=job.get("timeout"), tokens=job.get("tokens"))

    def answer(prompt):
        with context(budget=budget):
            return said(strategy(task=prompt))

    return answer


def best_of_n(job):
    return called(BestOfN(author(job), N=job["tries"], reward_fn=reward, threshold=1.0), job)


def with_checks(job):
    return called(Refine(author(job), N=job["tries"], checks=[checks.sentences(3)]), job)


def with_advice(job):
    """As dspy.Refine: a reward function that gives a number, and a model that advises after each failure."""
    return called(Refine(author(job), N=job["tries"], reward_fn=reward, threshold=1.0), job)


def at_once(job):
    strategy = BestOfN(author(job), N=job["tries"], reward_fn=reward, threshold=1.0)

    async def answer(prompt):
        return said(await strategy.acall(task=prompt))

    return answer


def refine_at_once(job):
    strategy = Refine(author(job), N=job["tries"], checks=[checks.sentences(3)])

    async def answer(prompt):
        return said(await strategy.acall(task=prompt))

    return answer


SERVED = """
[presets.three]
strategy = "best-of-n"
checks = ["sentences:3"]
attempts = {tries}
model = "openai/{model}"
base_url = "{url}"
parallel = 1024
"""


def started(job):
    """`redraft serve` with a preset; its store is on, as it is by default."""
    port, folder = free_port(), tempfile.mkdtemp(prefix="redraft-bench-")
    Path(folder, "redraft.toml").write_text(SERVED.format(**job), encoding="utf-8")
    env = {**os.environ, "OPENAI_API_KEY": "none"}
    proxy([sys.executable, "-m", "redraft", "serve", "--port", str(port), "-q"], port, env=env, cwd=folder)
    return {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "none", "max_retries": 0, "timeout": 120}


def served(job):
    client = openai.OpenAI(**started(job))

    def answer(prompt):
        messages = [{"role": "user", "content": prompt}]
        reply = client.chat.completions.create(model="refine/three", messages=messages)
        return Said(reply.choices[0].message.content, reply.usage.total_tokens)

    return answer


def served_at_once(job):
    client = openai.AsyncOpenAI(**started(job))

    async def answer(prompt):
        messages = [{"role": "user", "content": prompt}]
        reply = await client.chat.completions.create(model="refine/three", messages=messages)
        return Said(reply.choices[0].message.content, reply.usage.total_tokens)

    return answer


if __name__ == "__main__":
    run({"BestOfN": best_of_n, "Refine, checks": with_checks, "Refine, reward": with_advice, "serve": served,
         "at once": at_once, "Refine at once": refine_at_once, "serve at once": served_at_once})  # fmt: skip
