"""`redraft mcp` as a process of its own, and real client sessions with it."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

COMMAND = [sys.executable, "-m", "redraft", "mcp"]


def surroundings(upstream, **more):
    """The environment of a server whose models answer from `upstream`, a FaultServer."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "REDRAFT_"))}
    return {**kept, "OPENAI_BASE_URL": upstream.base_url, "OPENAI_API_KEY": "k", **more}


@contextlib.asynccontextmanager
async def on_stdio(upstream, *options, mode="auto"):
    """A session with a new process; `client.said()` is what it wrote to stderr so far."""
    with tempfile.TemporaryFile("w+") as errors:
        parameters = StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:], *options], env=surroundings(upstream)
        )
        async with Client(stdio_client(parameters, errlog=errors), mode=mode) as client:
            client.said = lambda: _whole(errors)
            yield client


def _whole(file):
    file.seek(0)
    return file.read()


@contextlib.contextmanager
def http_server(upstream, *options, host="127.0.0.1", **environment):
    """A process that serves HTTP; its `url`, and the process itself."""
    command = [*COMMAND, "--http", f"{host}:0", *options]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=surroundings(upstream, **environment), **streams) as process:
        try:
            line = process.stderr.readline()
            process.url = re.search(r"http://\S+/mcp", line)[0].replace("0.0.0.0", "127.0.0.1")
            yield process
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def on_http(url, key=None, mode="auto"):
    """A session over HTTP."""
    headers = {"Authorization": f"Bearer {key}".encode()} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def until(condition, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


def error_of(answer):
    """The message of an answer that is an error."""
    assert answer.is_error, answer.structured_content
    (content,) = answer.content
    assert "Traceback" not in content.text
    return content.text
