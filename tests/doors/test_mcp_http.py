"""The same server over streamable HTTP: sessions, who may reach it, and by which name."""

import asyncio
import signal
import subprocess

import pytest

pytest.importorskip("mcp")

import httpx2
from mcp_sessions import COMMAND, http_server, on_http, surroundings, until

from redraft.testing import FaultServer
from redraft.testing.replies import Reply

pytestmark = pytest.mark.doors

PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_session_refines_with_progress(mode):
    told = []

    async def hear(progress, total, message):
        told.append(progress)

    with FaultServer(["one", "one two"]) as upstream, http_server(upstream, "-m", "test") as server:
        async with on_http(server.url, mode=mode) as client:
            asked = {"task": "Count", "checks": ["words:2"]}
            answer = await client.call_tool("refine", asked, progress_callback=hear)
    assert answer.structured_content["text"] == "one two"
    assert told == [1, 2]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_cancelling_reaches_the_upstream(mode):
    with FaultServer(lambda _: Reply(delay=30)) as upstream, http_server(upstream, "-m", "test") as server:
        async with on_http(server.url, mode=mode) as client:
            call = asyncio.ensure_future(client.call_tool("refine", {"task": "t", "checks": ["words:1"]}))
            await until(lambda: upstream.calls == 1)
            call.cancel()
            await until(lambda: upstream.aborted == 1)
        assert upstream.calls == 1


async def test_sessions_run_side_by_side():
    def echo(body):
        return Reply(text=body["messages"][-1]["content"].split()[0], delay=0.2)

    async def one(url, name):
        async with on_http(url) as client:
            return await client.call_tool("refine", {"task": name, "checks": [f"contains:{name}"]})

    with FaultServer(echo) as upstream, http_server(upstream, "-m", "test") as server:
        answers = await asyncio.gather(*(one(server.url, f"name{i}") for i in range(4)))
    assert [a.structured_content["text"] for a in answers] == [f"name{i}" for i in range(4)]


async def test_with_a_key_only_those_who_send_it_get_in():
    with FaultServer() as upstream, http_server(upstream, "-m", "test", REDRAFT_MCP_KEY="clé") as server:
        with httpx2.Client(headers=ACCEPT) as http:
            keys = ("", "Bearer", "Bearer wrong", "Basic clé", "clé")
            refused = [http.post(server.url, json=PING, headers={"authorization": key.encode()}) for key in keys]
        async with on_http(server.url, key="clé") as client:
            assert len((await client.list_tools()).tools) == 3
    assert [r.status_code for r in refused] == [401] * 5
    assert refused[0].headers["www-authenticate"] == "Bearer"


def test_it_does_not_listen_beyond_this_machine_without_a_key():
    said = refusal("0.0.0.0:0")
    assert "REDRAFT_MCP_KEY" in said
    assert "Traceback" not in said


async def test_with_a_key_it_listens_beyond_this_machine():
    with FaultServer() as upstream, http_server(upstream, "-m", "test", host="0.0.0.0", REDRAFT_MCP_KEY="k") as server:
        async with on_http(server.url, key="k") as client:
            assert len((await client.list_tools()).tools) == 3


def test_a_page_that_found_its_way_by_another_name_is_refused():
    with (
        FaultServer() as upstream,
        http_server(upstream, "-m", "test", "--allow-host", "proxy.example") as server,
        httpx2.Client(headers=ACCEPT) as http,
    ):
        name = http.post(server.url, json=PING, headers={"host": "evil.example"})
        page = http.post(server.url, json=PING, headers={"origin": "http://evil.example"})
        known = http.post(server.url, json=PING, headers={"host": "proxy.example"})
    assert (name.status_code, page.status_code) == (421, 403)
    assert known.status_code not in (421, 403)


@pytest.mark.parametrize("address", ["8000:x", "127.0.0.1:99999", "nohost.invalid:0"])
def test_an_address_that_cannot_be_is_said(address):
    said = refusal(address, REDRAFT_MCP_KEY="k")
    assert address in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_said_in_a_line():
    with FaultServer() as upstream, http_server(upstream, "-m", "test") as server:
        taken = server.url.removeprefix("http://").removesuffix("/mcp")
        assert f"cannot listen on {taken}" in refusal(taken)


def refusal(address, **environment):
    """What is said of an address at which it does not serve."""
    with FaultServer() as upstream:
        command, env = [*COMMAND, "-m", "test", "--http", address], surroundings(upstream, **environment)
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    return ended.stderr


async def test_a_signal_ends_it_with_a_request_under_way():
    async def ask(url):
        async with on_http(url) as client:
            await client.call_tool("refine", {"task": "t", "checks": ["words:1"]})

    with FaultServer(lambda _: Reply(delay=30)) as upstream, http_server(upstream, "-m", "test") as server:
        asking = asyncio.ensure_future(ask(server.url))
        await until(lambda: upstream.calls == 1)
        server.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(server.wait, 10) == 130
        await until(lambda: upstream.aborted == 1)
        with pytest.raises(BaseExceptionGroup):  # the client's connection is gone
            await asking
        assert "Traceback" not in server.stderr.read()
