"""What a batch costs beside a bare asyncio loop over the same model.

10,000 items (unless fewer are asked for) of 3 calls, each of which takes 20 ms, 500 at once; the run store is on.
The bare loop keeps nothing, judges nothing and counts nothing. Two models: a loopback server that is asked through
the official client, as one has it, and a function in this process, which costs next to nothing, so that what is
left is redraft itself. The cases run in turn, each in a process of its own, so that its peak memory is its own; the
best round counts. Rates say little on another machine; the ratios were taken on the same one at the same time.
Where other programs take part of the machine, the processor time an item says more than the rate: it is this
process's alone, the server's is not in it.
"""

import asyncio
import contextlib
import importlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

LATENCY = 0.02
CONCURRENCY = 500
FAILING = 0.05
TEXT = "La Maison is a fine place to eat."

SERVER = f"""
import asyncio, json
usage = {{"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}}
message = {{"role": "assistant", "content": {TEXT!r}}}
dspy = "[[ ## answer ## ]]\\\\n" + message["content"] + "\\\\n\\\\n[[ ## completed ## ]]"
whole = {{"id": "x", "object": "chat.completion", "created": 0, "model": "bench", "usage": usage}}
def http(status, body):
    body = json.dumps(body).encode()
    head = f"HTTP/1.1 {{status}}\\\\r\\\\ncontent-type: application/json\\\\r\\\\ncontent-length: {{len(body)}}\\\\r\\\\n\\\\r\\\\n"
    return head.encode() + body
def said(text):
    return http("200 OK", {{**whole, "choices": [{{"index": 0, "message": {{**message, "content": text}}, "finish_reason": "stop"}}]}})
PLAIN, DSPY = said(message["content"]), said(dspy)
REFUSED = http("400 Bad Request", {{"error": {{"message": "refused"}}}})
class Line(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.read = transport, b""
    def data_received(self, data):
        self.read += data
        while (end := self.read.find(b"\\\\r\\\\n\\\\r\\\\n")) >= 0:
            head = self.read[:end].lower()
            size = int(head[head.find(b"content-length:") + 15:].split(b"\\\\r\\\\n")[0])
            if len(self.read) < end + 4 + size:
                return
            body, self.read = self.read[end + 4:end + 4 + size], self.read[end + 4 + size:]
            answer = REFUSED if b"refuse me" in body else DSPY if b"[[ ##" in body else PLAIN
            loop.call_later({LATENCY}, self.send, answer)
    def send(self, answer):
        if not self.transport.is_closing():
            self.transport.write(answer)
async def main():
    global loop
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Line, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
""".replace("\\\\", "\\")


@contextlib.contextmanager
def served():
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


class Nothing:
    """Keeps no requests: they would count as the batch's memory."""

    def append(self, _):
        pass


def model(url):
    if url:
        from redraft.lm.openai import OpenAILM

        lm = OpenAILM("bench", base_url=url, api_key="none")
        lm.parallel = CONCURRENCY
        return lm
    from redraft.errors import BadRequestError
    from redraft.testing import FunctionLM

    async def reply(request):
        await asyncio.sleep(LATENCY)
        if "refuse me" in request.messages[-1]["content"]:
            raise BadRequestError("refused", status=400)
        return TEXT

    lm = FunctionLM(reply, name="bench")
    lm.parallel = CONCURRENCY
    lm.requests = Nothing()
    return lm


def items(n, failing=0.0):
    for i in range(n):
        refuse = ", and refuse me" if failing and i % round(1 / failing) == 0 else ""
        yield {"task": f"Review restaurant {i}, a French restaurant in a quiet street{refuse}."}


def bare(n, url, _store):
    """Three calls an item, as many items at once."""
    from redraft.types import Request

    source, done = items(n), 0

    async def worker(lm):
        nonlocal done
        for item in source:
            for step in range(3):
                system = {"role": "system", "content": f"Step {step}."}
                await lm.generate(Request(messages=(system, {"role": "user", "content": item["task"]})))
            done += 1

    async def main():
        lm = model(url)
        await asyncio.gather(*(worker(lm) for _ in range(CONCURRENCY)))

    asyncio.run(main())
    return done, 0


def batch(module, n, folder, failing=0.0):
    from redraft import Batch, SqliteStore

    async def main():
        done = failed = 0
        with SqliteStore(Path(folder) / "runs.db") if folder else contextlib.nullcontext() as store:
            work = Batch(module, concurrency=CONCURRENCY, store=store, batch_id="bench")
            async for item in work.as_completed(items(n, failing)):
                done += item.status == "done"
                failed += item.status == "failed"
        return done, failed

    return asyncio.run(main())


def steps(n, url, folder, failing=0.0):
    """A module of three Predicts, one after the other."""
    from redraft import Module, Predict

    class Steps(Module):
        def __init__(self):
            self.parts = [Predict("task -> answer", lm=model(url), system=f"Step {i}.") for i in range(3)]

        async def aforward(self, task):
            for part in self.parts:
                said = await part.acall(task=task)
            return said

    return batch(Steps(), n, folder, failing)


def steps_unstored(n, url, _folder):
    return steps(n, url, None)


def steps_failing(n, url, folder):
    return steps(n, url, folder, FAILING)


def best_of_3(n, url, folder):
    """A strategy: three samples, each judged by a check that none of them meets; the best is kept."""
    from redraft import BestOfN, Predict, checks

    return batch(BestOfN(Predict("task -> answer", lm=model(url)), N=3, checks=[checks.sentences(3)]), n, folder)


def dspy_batch(n, url, threads, failing=0.0):
    """DSPy's own: three Predicts in a module, by `Module.batch`. It stops at the tenth error unless told otherwise."""
    import dspy

    class Steps(dspy.Module):
        def __init__(self):
            super().__init__()
            self.parts = [dspy.Predict("task -> answer") for _ in range(3)]

        def forward(self, task):
            for part in self.parts:
                said = part(task=task)
            return said

    dspy.configure(lm=dspy.LM("openai/bench", api_base=url, api_key="none", cache=False, num_retries=0))
    examples = [dspy.Example(**item).with_inputs("task") for item in items(n, failing)]
    done = Steps().batch(examples, num_threads=threads, disable_progress_bar=True, max_errors=n)
    return sum(d is not None for d in done), sum(d is None for d in done)


CASES = {
    "bare asyncio loop, keeps nothing": bare,
    "module of 3 Predicts, run store on": steps,
    "the same, no run store": steps_unstored,
    "the same, 5% of the items refused": steps_failing,
    "BestOfN of 3, judged, run store on": best_of_3,
}
PEERS = {f"dspy.batch, {n} threads": n for n in (8, 32, 100, 300)}


def child(name, n, wire):
    with (
        tempfile.TemporaryDirectory(prefix="redraft-bench-") as folder,
        served() if wire else contextlib.nullcontext() as url,
    ):
        importlib.import_module("dspy" if name in PEERS else "redraft.lm.openai")
        importlib.import_module("openai")
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        done, failed = dspy_batch(n, url, PEERS[name]) if name in PEERS else CASES[name](n, url, folder)
        wall = time.perf_counter() - began
    if done + failed != n:
        raise SystemExit(f"{name}: {done} done, {failed} failed, of {n}")
    spent = resource.getrusage(resource.RUSAGE_SELF)
    cpu = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    peak = spent.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    print(json.dumps({"wall": wall, "cpu": cpu, "failed": failed, "peak": peak}))


def measure(name, n, wire):
    command = [sys.executable, __file__, "--child", name, str(n), str(wire)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(out.stderr)
    return json.loads(out.stdout.splitlines()[-1])


def table(what, names, n, rounds, *, wire):
    taken = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            taken[name].append(measure(name, n, wire))
            print(f"{name}: {taken[name][-1]}", file=sys.stderr, flush=True)
    floor, rows = taken[names[0]], []
    for name in names:
        best = min(taken[name], key=lambda t: t["wall"])
        ratios = [f["wall"] / t["wall"] for f, t in zip(floor, taken[name], strict=True)]
        rows.append({
            "batch": name,
            "by": "floor" if name == names[0] else "dspy" if name in PEERS else "redraft",
            "items/s": n / best["wall"],
            "of bare": min(t["wall"] for t in floor) / best["wall"],
            "median": statistics.median(ratios),
            "CPU ms": min(t["cpu"] for t in taken[name]) / n * 1000,
            "peak MB": round(max(t["peak"] for t in taken[name])),
            "failed": best["failed"],
        })  # fmt: skip
    about = f"{n:,} items x 3 calls of 20 ms, {CONCURRENCY} at once; best of {rounds} rounds in turn; CPU an item"
    return record.Table(what, about, rows, {"items/s": "high", "CPU ms": "low", "peak MB": "low"})


def tables(given):
    peers = [*PEERS] if given.dspy else []
    yield table("On a loopback server, by the official client", [*CASES, *peers], given.items, given.rounds, wire=True)
    if not given.wire:
        yield table("On a function in this process", [*CASES], given.items, given.rounds, wire=False)


def more(parser):
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dspy", action="store_true", help="DSPy beside it, on the same server")
    parser.add_argument("--wire", action="store_true", help="the server alone")


if __name__ == "__main__":
    if "--child" in sys.argv:
        _, name, n, wire = sys.argv[1:]
        child(name, int(n), wire == "True")
    else:
        record.main("batch", "What a batch costs", tables, more, about=__doc__)
