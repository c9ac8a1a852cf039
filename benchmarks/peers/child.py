"""What runs in a peer's own process and environment: a job, measured. Needs the standard library only.

`python of_NAME.py '{"url": ..., "model": "never.0", "arm": ..., "items": 20, "tries": 3}'` prints one line of JSON: CPU and
wall seconds of the items, what the server counted, what the library says it spent, and what was returned.
"""

import asyncio
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

PROMPT = "[item {0}] Write exactly three sentences about a restaurant."


@dataclass
class Said:
    """What a caller got: a text, or nothing; and the tokens that the library says it took, if it says so."""

    text: "str | None" = None
    tokens: "int | None" = None
    error: str = ""


def sentences(text):
    """How many; the same check for every peer."""
    return len(re.findall(r"[.!?](?:\s|$)", text or ""))


def share(text):
    """Of the requirement: 1.0 is three sentences."""
    return 1 - min(3, abs(sentences(text) - 3)) / 3


def asked(url, path="/counts"):
    with urllib.request.urlopen(url.removesuffix("/v1") + path, timeout=30) as reply:
        return json.load(reply)


def run(arms):
    """The whole of a peer's script: `arms` makes, by name, of a job the function that answers an item's prompt."""
    job = json.loads(sys.argv[1])
    answer = arms[job["arm"]](job)
    for i in range(job.get("warm", 2)):
        guarded(answer, PROMPT.format(f"w{os.getpid()}x{i}"), threads=False)
    before = asked(job["url"]).get(job["model"], {})
    prompts = [PROMPT.format(f"p{os.getpid()}x{i}") for i in range(job["items"])]
    used, began = cpu(), time.perf_counter()
    if job.get("at_once"):
        said = many(answer, prompts, job["at_once"])
    else:
        said = [guarded(answer, prompt, threads=False) for prompt in prompts]
    wall, used = time.perf_counter() - began, cpu() - used
    time.sleep(job.get("settle", 0))  # who goes on calling after it has answered is seen
    after = asked(job["url"]).get(job["model"], {})
    told = {
        "wall": wall,
        "cpu": used,
        "server": {key: after[key] - before.get(key, 0) for key in after},
        "said": [asdict(one) for one in said],
        "peak_mb": peak_mb(),
        "cpu_whole": cpu(),
    }
    print("\n" + json.dumps(told), flush=True)
    for process in BESIDE:
        process.kill()
    os._exit(0)  # some leave threads or loops behind, which would be waited for


BESIDE = []
"""Processes that do a part of a peer's work: a proxy."""


def cpu():
    """Seconds of this process and of those beside it, since they began."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + sum(map(cpu_of, BESIDE))


def cpu_of(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb():
    """Megabytes, of the largest of them at its largest."""
    beside = [
        int(re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) for process in BESIDE
    ]
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, *beside, 0) / 1024


def proxy(command, port, **more):
    """Start a peer that is a server of its own; wait until it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    BESIDE.append(process)
    for _ in range(4000):  # torch takes minutes on a busy machine
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended with {process.returncode}") from None
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{command[0]} does not listen")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


LOOP = None


def guarded(answer, prompt, *, threads):
    """An item's answer; what it raises is a result."""
    global LOOP  # noqa: PLW0603 - clients keep connections of one loop
    try:
        found = answer(prompt)
        if asyncio.iscoroutine(found):
            LOOP = LOOP or asyncio.new_event_loop()
            found = asyncio.run(found) if threads else LOOP.run_until_complete(found)
    except Exception as error:  # noqa: BLE001
        return failed(error)
    return found


def failed(error):
    usage = getattr(getattr(error, "total_usage", None), "total_tokens", None)
    return Said(error=f"{type(error).__name__}: {' '.join(str(error).split())[:160]}", tokens=usage)


def many(answer, prompts, at_once):
    """All at once: `answer.many` where the library has its own way, coroutines on one loop, or else threads."""
    if hasattr(answer, "many"):
        return answer.many(prompts, at_once)
    if not asyncio.iscoroutinefunction(answer):
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda prompt: guarded(answer, prompt, threads=True), prompts))

    async def one(prompt):
        try:
            return await answer(prompt)
        except Exception as error:  # noqa: BLE001
            return failed(error)

    async def main():
        return await asyncio.gather(*(one(prompt) for prompt in prompts))

    return (LOOP or asyncio.new_event_loop()).run_until_complete(main())
