"""optillm: best of N through its proxy. It samples N in one call and has the model rate each; no check of one's own."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import openai
from child import BESIDE, Said, free_port, proxy, run


def started(job):
    """A proxy of this job's own, or the one that the benchmark has started: it takes 20 seconds of CPU."""
    if "proxy" in job:
        port, pid = job["proxy"]
        BESIDE.append(SimpleNamespace(pid=pid, kill=lambda: None))
        return {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "none", "timeout": job.get("timeout", 120)}
    port = free_port()
    command = [str(Path(sys.executable).with_name("optillm")), "--port", str(port), "--base-url", job["url"]]
    env = {**os.environ, "OPENAI_API_KEY": "none"}
    proxy([*command, "--approach", "bon", "--best-of-n", str(job["tries"]), "--log", "error"], port, env=env)
    print(port, BESIDE[0].pid, flush=True)
    return {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "none", "timeout": job.get("timeout", 120)}


def said(reply):
    usage = reply.usage
    spent = (getattr(usage, "prompt_tokens", None) or 0) + (usage.completion_tokens or 0) if usage else None
    return Said(reply.choices[0].message.content, spent)


def best_of_n(job):
    client = openai.OpenAI(**started(job), max_retries=0)

    def answer(prompt):
        return said(client.chat.completions.create(model=job["model"], messages=[{"role": "user", "content": prompt}]))

    return answer


def at_once(job):
    client = openai.AsyncOpenAI(**started(job), max_retries=0)

    async def answer(prompt):
        messages = [{"role": "user", "content": prompt}]
        return said(await client.chat.completions.create(model=job["model"], messages=messages))

    return answer


def waits(job):
    """Start it for others, until standard input ends."""
    started(job)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    run({"bon": best_of_n, "at once": at_once, "waits": waits})
