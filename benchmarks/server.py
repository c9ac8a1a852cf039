"""What `redraft serve` costs: pass-through beside the direct upstream (and optillm, where it is given), how soon a client's
leaving ends its calls, memory, and how many streams it holds.

All on loopback, each in a process of its own: an upstream that answers after 20 ms, the server, the clients. Ratios are
what counts: the machine's noise is in all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

LATENCY = 0.02
TEXT = "La Maison is warm. The soup is hot. Go there."
REPLY = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "test",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19},
}
BODY = {"model": "test", "messages": [{"role": "user", "content": "Review La Maison."}]}


class Upstream(asyncio.Protocol):
    """The least server that answers chat completions: `POST /slow...` after a minute; `GET /left` says how many left it."""

    asked = 0
    left: list[float] = []  # noqa: RUF012 - one process, one list

    def connection_made(self, transport):
        self.transport, self.buffer, self.task = transport, b"", None

    def connection_lost(self, _error):
        if self.task is not None and not self.task.done():
            self.task.cancel()
            Upstream.left.append(time.time())

    def data_received(self, data):
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, rest = self.buffer.partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            length = int(lengths[0].split(b":")[1]) if lengths else 0
            if len(rest) < length:
                return
            body, self.buffer = rest[:length], rest[length:]
            self.task = asyncio.ensure_future(self.answer(head, body))

    async def answer(self, head, body):
        if head.startswith(b"GET"):
            told = {"asked": Upstream.asked, "left": Upstream.left, "data": [{"id": "test"}]}
        else:
            Upstream.asked += 1
            await asyncio.sleep(float(os.environ.get("BENCH_SLOW", "60")) if b"slowly" in body else LATENCY)
            told = REPLY
        raw = json.dumps(told).encode()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(raw), raw)
        )


async def upstream(port):
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


class Client:
    """One connection that is kept."""

    def __init__(self, port, path="/v1/chat/completions", body=None, headers=""):
        self.port = port
        content = json.dumps(body or BODY).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
        self.request = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
        self.reader = self.writer = None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self):
        if self.writer is None:
            await self.open()
        self.writer.write(self.request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        low = head.lower()
        if b"content-length:" in low:
            await self.reader.readexactly(int(low.split(b"content-length:")[1].split(b"\r\n")[0]))
        else:
            await self.chunks()
        if b"connection: close" in low:
            self.writer.close()
            self.writer = None

    async def chunks(self):
        while size := int(await self.reader.readline(), 16):
            await self.reader.readexactly(size + 2)
        await self.reader.readline()


async def latency(port, times=60, **more):
    client, took = Client(port, **more), []
    for _ in range(times):
        began = time.perf_counter()
        await client.ask()
        took.append(time.perf_counter() - began)
    return statistics.median(took[5:]) * 1000


async def rate(port, clients=50, seconds=5.0):
    until, done = time.perf_counter() + seconds, 0

    async def one():
        nonlocal done
        client = Client(port)
        while time.perf_counter() < until:
            await client.ask()
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return done / (time.perf_counter() - began)


async def ask_upstream(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    told = json.loads(await reader.readexactly(length))
    writer.close()
    return told


async def left(port, up, model, n, stream):
    """Seconds from a client's leaving to the last upstream call's end, in ms."""
    before = await ask_upstream(up)
    body = {"model": model, "messages": [{"role": "user", "content": "slowly"}], "n": n, "stream": stream}
    client = Client(port, body=body)
    await client.open()
    client.writer.write(client.request)
    while (await ask_upstream(up))["asked"] < before["asked"] + n:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    at = time.time()
    client.writer.transport.abort()
    while len((told := await ask_upstream(up))["left"]) < len(before["left"]) + n:
        await asyncio.sleep(0.01)
        if time.time() - at > 10:
            return float("inf")
    return (max(told["left"]) - at) * 1000


async def held(port, streams, seconds):
    """Streams of refined answers whose upstream takes `seconds`; how many came whole, and what was sent meanwhile."""
    body = {"model": "refine/three", "messages": [{"role": "user", "content": "slowly"}], "stream": True}
    pings, whole, heads = 0, 0, []

    async def one():
        nonlocal pings, whole
        client = Client(port, body=body)
        began = time.perf_counter()
        await client.open()
        client.writer.write(client.request)
        await client.reader.readuntil(b"\r\n\r\n")
        heads.append(time.perf_counter() - began)
        text = b""
        while size := int(await client.reader.readline(), 16):
            text += await client.reader.readexactly(size + 2)
        pings += text.count(b": ping")
        said = "".join(
            choice["delta"].get("content") or ""
            for line in text.splitlines()
            if line.startswith(b"data: {")
            for choice in json.loads(line[6:])["choices"]
        )
        whole += said == TEXT and text.rstrip().endswith(b"[DONE]")
        client.writer.close()

    began = time.perf_counter()
    told = await asyncio.gather(*(one() for _ in range(streams)), return_exceptions=True)
    failed = [error for error in told if error is not None]
    return {
        "streams": streams,
        "whole": whole,
        "failed": len(failed),
        "first_failure": repr(failed[0]) if failed else None,
        "pings": pings,
        "seconds": round(time.perf_counter() - began, 1),
        "headers_ms_median": round(statistics.median(heads) * 1000, 1),
        "headers_ms_worst": round(max(heads) * 1000, 1),
        "asked_seconds": seconds,
    }


def rss(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def cpu(pid):
    """Milliseconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def process(command, port, **more):
    running = subprocess.Popen(command, **more)
    try:
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
            time.sleep(0.05)
        yield running
    finally:
        running.terminate()
        running.wait(20)


async def measure(args, up, port, pid):
    told = {"idle_rss_mb": round(rss(pid), 1)}
    await rate(port, 10, 1.0)  # warm
    places = {"direct": up, "redraft": port, **({"optillm": args.optillm} if args.optillm else {})}
    told |= {name: {"p50_ms": [], "rate": []} for name in places}
    for _ in range(args.rounds):  # in turn: noise hits all alike
        for name, at in places.items():
            told[name]["p50_ms"].append(round(await latency(at), 2))
            told[name]["rate"].append(round(await rate(at, seconds=args.load)))
    before, asked = cpu(pid), 400
    await asyncio.gather(*(latency(port, asked // 20) for _ in range(20)))
    told["cpu_ms_each"] = round((cpu(pid) - before) / asked, 2)
    told["refined_p50_ms"] = round(await latency(port, body={**BODY, "model": "refine/three"}), 2)
    told["rss_after_load_mb"] = round(rss(pid), 1)
    told["left_ms"] = {
        f"{model} n={n} {'stream' if stream else 'whole'}": round(await left(port, up, model, n, stream), 1)
        for model, n in (("test", 1), ("refine/three", 1), ("refine/three", 8))
        for stream in (False, True)
    }
    if args.held:
        told["held"] = await held(port, args.held, args.seconds)
        told["rss_after_held_mb"] = round(rss(pid), 1)
    return told


def measured(args):
    up, port = args.upstream_port or free_port(), free_port()
    env = {
        **os.environ,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{up}/v1",
        "OPENAI_API_KEY": "k",
        "REDRAFT_MODEL": "openai/test",
    }
    env |= {"BENCH_SLOW": str(args.seconds)}
    with tempfile.TemporaryDirectory() as folder:
        toml = (
            '[presets.three]\nstrategy = "refine"\nchecks = ["sentences:3"]\nparallel = 2048\n[server]\nactive = 4096\n'
        )
        Path(folder, "redraft.toml").write_text(toml, encoding="utf-8")
        upstream_command = [sys.executable, str(Path(__file__).resolve()), "--upstream", str(up)]
        command = [sys.executable, "-m", "redraft", "serve", "--port", str(port), "-q"]
        with process(upstream_command, up, env=env), process(command, port, cwd=folder, env=env) as served:
            return asyncio.run(measure(args, up, port, served.pid))


def tables(args):
    told = measured(args)
    through = [
        {
            "to the upstream": "direct" if name == "direct" else f"through {name}",
            "by": "floor" if name == "direct" else name,
            "p50 ms, one client": statistics.median(told[name]["p50_ms"]),
            "requests/s, 50 clients": max(told[name]["rate"]),
        }
        for name in ("direct", "redraft", "optillm")
        if name in told
    ]
    about = f"an upstream of 20 ms; median and best of {args.rounds} rounds in turn"
    better = {"p50 ms, one client": "low", "requests/s, 50 clients": "high"}
    yield record.Table("Passed through", about, through, better)
    figures = {
        "CPU ms of the server, a request passed through": told["cpu_ms_each"],
        "p50 ms of a refined answer (one draft)": told["refined_p50_ms"],
        "resident MB, idle": told["idle_rss_mb"],
        "resident MB, after the load": told["rss_after_load_mb"],
        **{f"ms from a client's leaving to the end of its calls: {name}": ms for name, ms in told["left_ms"].items()},
    }
    if "held" in told:
        figures |= {f"streams held for {args.seconds:g} s: {key}": value for key, value in told["held"].items()}
        figures["resident MB, after that"] = told["rss_after_held_mb"]
    rows = [{"what": what, "by": "redraft", "value": value} for what, value in figures.items() if value is not None]
    yield record.Table("The server", "of one process", rows)


def more(parser):
    parser.add_argument("--held", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=float, default=4.0)
    parser.add_argument("--optillm", type=int, default=0, metavar="PORT", help="where one runs before --upstream-port")
    parser.add_argument("--upstream-port", type=int, default=0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--upstream"]:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(upstream(int(sys.argv[2])))
    else:
        record.main("server", "What `redraft serve` costs", tables, more, about=__doc__)
