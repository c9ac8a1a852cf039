"""One loopback server a model, and a counting proxy in front of it.

Peers make calls of their own (feedback, fallbacks, repairs), so calls and tokens are counted where all of them pass. A
worker has a path of its own (`/w0/v1`) and one job at a time: what arrives there belongs to that job. The proxy also
sets each call's seed, from (seed, prompt, nth call), so that no arm owes its luck to how a library picks seeds.

A greedy request that was answered before gets the same reply again, with its calls, tokens and seconds counted as they
were then: arms that begin with the same greedy draft then share it, and a second seed does not pay for it again.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before the engine is loaded: its threads must not spin

import hashlib
import http.client
import json
import threading
import time
import zlib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import xllamacpp

from redraft.lm import catalogue

CTX = 4096  # of each slot: dspy's feedback prompts are the longest
RETRY = {"temperature": 0.9, "top_p": 0.95}


@dataclass
class Count:
    """What one job's calls came to, as the server reported it."""

    seed: str = ""
    ladder: bool = False
    """Greedy first, then `RETRY`: for libraries that cannot vary the temperature between tries."""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: int = 0
    """Replies that ended at the limit of tokens."""
    known_seconds: float = 0.0
    """What the replies took that were not asked for again."""
    refused: list[str] = field(default_factory=list)


class Proxy:
    """Counts, and hands on to whichever model is at work. `kept` is a file for greedy replies."""

    def __init__(self, workers: int, kept: Path) -> None:
        self.counts = [Count() for _ in range(workers)]
        self.upstream = ""
        self.kept = kept
        lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
        self.known = {d["key"]: d for d in (json.loads(line) for line in lines if line.endswith("}"))}
        self.lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy.forward(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def do_GET(self) -> None:
                proxy.forward(self, b"")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, worker: int) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/w{worker}/v1"

    def begin(self, worker: int, seed: str, *, ladder: bool) -> Count:
        """A new job of this worker."""
        self.counts[worker] = Count(seed, ladder)
        return self.counts[worker]

    def forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        worker, _, path = handler.path.lstrip("/").partition("/")
        count = self.counts[int(worker[1:])]
        chat = path.endswith("completions")
        asked = self._altered(count, json.loads(body)) if chat else {}
        key = _greedy_key(path, asked)
        known = self.known.get(key)
        if known:
            status, kind, content = 200, "application/json", known["reply"].encode()
            count.known_seconds += known["seconds"]
        else:
            started = time.perf_counter()
            status, kind, content = self._sent(handler.command, path, json.dumps(asked).encode() if chat else body)
            if key and status == 200:
                self._keep({"key": key, "seconds": time.perf_counter() - started, "reply": content.decode()})
        if chat:
            self._add(count, status, content)
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _sent(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        address = urlsplit(self.upstream)
        upstream = http.client.HTTPConnection(address.hostname or "", address.port, timeout=900)
        try:
            upstream.request(method, f"/{path}", body, {"Content-Type": "application/json"})
            reply = upstream.getresponse()
            return reply.status, reply.headers.get("Content-Type", "application/json"), reply.read()
        finally:
            upstream.close()

    def _keep(self, known: dict[str, Any]) -> None:
        with self.lock, self.kept.open("a", encoding="utf-8") as file:
            self.known[known["key"]] = known
            file.write(json.dumps(known) + "\n")

    def _altered(self, count: Count, asked: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            nth = count.calls
            count.calls += 1
        asked["seed"] = zlib.crc32(f"{count.seed}/{nth}".encode()) & 0x7FFFFFFF
        if count.ladder:
            asked |= RETRY if nth else {"temperature": 0.0}
        if asked.get("stream"):
            asked["stream_options"] = {"include_usage": True}
        return asked

    def _add(self, count: Count, status: int, content: bytes) -> None:
        with self.lock:
            if status != 200:
                count.refused.append(content.decode(errors="replace")[:300])
                return
            for reply in replies(content):
                usage = reply.get("usage") or {}
                count.prompt_tokens += usage.get("prompt_tokens", 0)
                count.completion_tokens += usage.get("completion_tokens", 0)
                count.cut += any(c.get("finish_reason") == "length" for c in reply.get("choices", ()))


def _greedy_key(path: str, asked: dict[str, Any]) -> str:
    """What makes two greedy requests the same; empty for others."""
    if asked.get("temperature") != 0 or asked.get("stream"):
        return ""
    same = {key: value for key, value in asked.items() if key not in ("seed", "top_p")}
    return hashlib.sha256(json.dumps([path, same], sort_keys=True).encode()).hexdigest()


def replies(content: bytes) -> list[dict[str, Any]]:
    """A reply, or the chunks of a streamed one."""
    if not content.startswith(b"data:"):
        return [json.loads(content)]
    events = [line[5:].strip() for line in content.split(b"\n") if line.startswith(b"data:")]
    return [json.loads(event) for event in events if event != b"[DONE]"]


class Models:
    """The servers, each started when it is first asked for. Idle ones cost memory only."""

    def __init__(self, folder: Path | None, slots: int, threads: int) -> None:
        self.folder, self.slots, self.threads = folder, slots, threads
        self._servers: dict[str, Any] = {}

    def path(self, name: str) -> Path:
        """The embedded model by its name; another as NAME.gguf in the folder."""
        if name in catalogue.MODELS:
            return catalogue.pull(name)
        if self.folder is None or not (path := self.folder / f"{name}.gguf").is_file():
            raise SystemExit(f"{name}.gguf is not in --models {self.folder}; fetch it first")
        return path

    def address(self, name: str) -> str:
        """Where the model listens."""
        if name not in self._servers:
            self._servers[name] = self._serve(self.path(name), name)
        return str(self._servers[name].listening_address)

    def _serve(self, path: Path, name: str) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.model_alias = {name}
        params.n_parallel, params.n_ctx = self.slots, CTX * self.slots
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self.threads
        params.n_batch = params.n_ubatch = 512
        params.ui = params.warmup = params.fit_params = False
        params.cache_ram_mib = 0
        params.verbosity = -1
        return xllamacpp.Server(params)
