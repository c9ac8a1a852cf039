"""A real `redraft serve` on loopback, in a thread of its own, in front of a `FaultServer`."""

import json
import threading
from contextlib import contextmanager

import httpx2
import uvicorn

from redraft.server.app import create_app
from redraft.server.heads import Heads
from redraft.server.serving import plans_of
from redraft.sockets import listen_at

ASKED = [{"role": "user", "content": "Write."}]
THREE = {"strategy": "refine", "checks": ["sentences:3"], "attempts": 3}
GOOD = "One. Two. Three."
BAD = "Only one."


class Served:
    """A server that runs, and what a test asks it by."""

    def __init__(self, url, house):
        self.url = url
        self.base_url = f"{url}/v1"
        self.house = house
        self.clients = []

    def _kept(self, client):
        self.clients.append(client)
        return client

    def openai(self, **more):
        from openai import OpenAI

        return self._kept(OpenAI(base_url=self.base_url, **{"api_key": "client-key", "max_retries": 0, **more}))

    def async_openai(self, **more):
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=self.base_url, **{"api_key": "client-key", "max_retries": 0, **more})

    def anthropic(self, **more):
        from anthropic import Anthropic

        return self._kept(Anthropic(base_url=self.url, **{"api_key": "client-key", "max_retries": 0, **more}))

    def post(self, path, body, headers=None, **more):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        told = {"content-type": "application/json", **(headers or {})}
        return httpx2.post(self.url + path, content=content, headers=told, timeout=30, **more)

    def get(self, path, headers=None):
        return httpx2.get(self.url + path, headers=headers, timeout=30)

    def chat(self, model, messages=None, headers=None, **more):
        body = {"model": model, "messages": messages or ASKED, **more}
        return self.post("/v1/chat/completions", body, headers)


@contextmanager
def serving(upstream=None, presets=None, **project):
    """`presets` are tables of redraft.toml, whose model is the upstream's; `project` its further tables."""
    here = {} if upstream is None else {"model": "openai/test", "base_url": upstream.base_url}
    tables = {name: {**here, **table} for name, table in (presets or {}).items()}
    if upstream is not None and "upstreams" not in project:
        project["upstreams"] = {"up": {"base_url": upstream.base_url}}
    with running(plans_of({"presets": tables, **project})) as served:
        yield served


@contextmanager
def running(plans):
    app = create_app(plans)
    listening = listen_at("127.0.0.1", 0)
    begun = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            begun.set()

    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2, http=Heads)
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    assert begun.wait(20)
    served = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", app.state.house)
    try:
        yield served
    finally:
        for client in served.clients:
            client.close()
        server.should_exit = True
        thread.join(20)
        listening.close()


def words(messages):
    """The text of a request as one."""
    texts = []
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [p.get("text", "") for p in content]
        texts += parts
    return "\n".join(texts)
