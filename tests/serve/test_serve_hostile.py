"""What nobody in their right mind sends, from either side: requests, upstreams' replies, configurations."""

import json
import logging
import socket
import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from serve_house import ASKED, GOOD, THREE, running, serving

from redraft.errors import ConfigError
from redraft.server.heads import Heads
from redraft.server.keys import Keys
from redraft.server.serving import plans_of
from redraft.store.sqlite import SqliteStore
from redraft.testing import FaultServer, Reply

pytestmark = pytest.mark.serve

RULES = {"forbidden": ["rm"], "attempts": 2}
MODEL = {"model": "openai/x", "base_url": "http://127.0.0.1:9/v1"}


def function(name, parameters=None):
    return {"type": "function", "function": {"name": name, "parameters": parameters or {"type": "object"}}}


def calling(*names):
    calls = [{"id": f"c{n}", "function": {"name": name, "arguments": "{}"}} for n, name in enumerate(names)]
    return Reply(text="", tool_calls=[{"type": "function", **call} for call in calls])


@contextmanager
def raw_upstream(data):
    """Answers every request with these bytes, and closes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def sent(served, data, seconds=10):
    """The answer to bytes, until the server closes or has told a whole head and body."""
    with socket.create_connection(("127.0.0.1", int(served.url.rsplit(":", 1)[1])), timeout=seconds) as line:
        line.sendall(data)
        got = b""
        while piece := line.recv(65_536):
            got += piece
            head, _, body = got.partition(b"\r\n\r\n")
            length = [part for part in head.lower().split(b"\r\n") if part.startswith(b"content-length:")]
            if length and len(body) >= int(length[0].split(b":")[1]):
                break
    return got


def post(body, *headers):
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"host: localhost", *headers, b"content-length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize("name", ["rm", "RM", "functions.rm", "r_m"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_a_forbidden_tool_is_never_passed_on(name, stream):
    with (
        FaultServer(lambda _: calling("ok", name)) as up,
        serving(up, {"f": THREE | {"tools": RULES}}) as served,
    ):
        reply = served.chat("refine/f", tools=[function("rm"), function("ok")], stream=stream)
    assert reply.status_code == (200 if stream else 502)
    assert "tool_calls" not in reply.text
    assert '"code":"forbidden_tool"' in reply.text
    assert up.calls == 2, "it was asked once more before it was refused"


def test_a_forbidden_call_is_refused_in_the_form_of_each_api():
    with FaultServer(lambda _: calling("rm")) as up, serving(up, {"f": THREE | {"tools": RULES}}) as served:
        told = {"input_schema": {"type": "object"}}
        tools = [{"name": "rm", **told}, {"name": "ok", **told}]
        claude = served.post("/v1/messages", {"model": "refine/f", "max_tokens": 9, "messages": ASKED, "tools": tools})
        tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("rm", "ok")]
        gpt = served.post("/v1/responses", {"model": "refine/f", "input": "x", "tools": tools})
    assert (claude.status_code, claude.json()["error"]["code"]) == (502, "forbidden_tool")
    assert (gpt.status_code, gpt.json()["error"]["code"]) == (502, "forbidden_tool")


def test_a_repaired_turn_without_the_forbidden_call_is_passed_on():
    with (
        FaultServer([calling("rm", "ok"), calling("ok")]) as up,
        serving(up, {"f": THREE | {"tools": RULES}}) as served,
    ):
        reply = served.chat("refine/f", tools=[function("rm"), function("ok")])
    assert [c["function"]["name"] for c in reply.json()["choices"][0]["message"]["tool_calls"]] == ["ok"]


def test_a_tool_offered_under_a_like_name_may_be_called():
    with FaultServer(lambda _: calling("fs.rm")) as up, serving(up, {"f": THREE | {"tools": RULES}}) as served:
        reply = served.chat("refine/f", tools=[function("fs.rm")])
    assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"tools": [function("rm")], "tool_choice": "required"}, 400),
        ({"tools": [function("rm"), function("ok")], "tool_choice": function("rm")}, 400),
        ({"tools": [{"type": "custom", "custom": {"name": "rm"}}]}, 200),
        ({"tools": [{"type": "rm"}]}, 200),
    ],
)
def test_a_forbidden_tool_is_neither_offered_nor_asked_for_in_any_form(more, status):
    with FaultServer(lambda _: GOOD) as up, serving(up, {"f": THREE | {"tools": RULES}}) as served:
        reply = served.chat("refine/f", **more)
    assert reply.status_code == status
    assert all("tools" not in asked for asked in up.requests)


def test_a_schema_without_end_is_400():
    deep = {"type": "object"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    with FaultServer() as up, serving(up, {"p": THREE}) as served:
        held = {"type": "json_schema", "json_schema": {"name": "a", "schema": deep}}
        replies = [
            served.chat("refine/p", response_format=held),
            served.chat("refine/p", tools=[function("f", deep)]),
            served.post("/v1/chat/completions", b'{"model":' + b"[" * 100_000),
        ]
    assert [reply.status_code for reply in replies] == [400, 400, 400]
    assert up.calls == 0


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization", b"x-api-key"])
def test_a_header_that_says_who_asks_comes_once(name):
    body = json.dumps({"model": "test", "messages": ASKED}).encode()
    with FaultServer() as up, serving(up) as served:
        got = sent(served, post(body, name + b": evil.example", name + b": localhost"))
        good = sent(served, post(body, b"x-other: 1", b"x-other: 2"))
    assert got.startswith(b"HTTP/1.1 400")
    assert good.startswith(b"HTTP/1.1 200")
    assert up.calls == 1


def test_a_chunked_body_and_a_length_together_are_refused_and_chunks_alone_are_read():
    body = json.dumps({"model": "test", "messages": ASKED}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    chunks = b"\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with FaultServer() as up, serving(up) as served:
        both = sent(served, head + b"content-length: 4\r\n" + chunks)
        alone = sent(served, head + chunks)
    assert both.startswith(b"HTTP/1.1 400")
    assert alone.startswith(b"HTTP/1.1 200")
    assert up.requests == [{"model": "test", "messages": ASKED}]
    assert "transfer-encoding" not in up.headers[0]


def test_a_body_that_does_not_come_is_408():
    with FaultServer() as up, serving(up, server={"patience": 0.2}) as served:
        got = sent(served, post(b"{}")[:-1])
    assert got.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in got.lower()


@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat", post(b"{}")[:40]])
def test_a_head_that_does_not_come_ends_the_connection(monkeypatch, begun):
    monkeypatch.setattr(Heads, "head_seconds", 0.2)
    with FaultServer() as up, serving(up) as served:
        assert sent(served, begun) == b""


def test_a_head_without_end_is_400():
    with FaultServer() as up, serving(up) as served:
        got = sent(served, b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * 600_000)
    assert got.startswith(b"HTTP/1.1 400")


OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x01 no http\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"content-length: abc\r\n\r\n{}",
        OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        OK + b"x: a\x01b\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"x: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
)
def test_an_upstream_that_speaks_no_http_is_502(data):
    with raw_upstream(data) as url, serving(None, upstreams={"up": {"base_url": url}}) as served:
        reply = served.chat("test")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize(
    ("project", "place"),
    [
        ({"presets": {"p": MODEL | {"tools": 3}}}, r"\[presets.p\] tools"),
        ({"presets": {"p": MODEL | {"tools": {"attempts": 0}}}}, r"\[presets.p\] tools.attempts"),
        ({"presets": {"p": MODEL | {"tools": {"forbidden": 3}}}}, r"\[presets.p\] tools.forbidden"),
        ({"presets": {"p": MODEL | {"attempts": 0}}}, r"\[presets.p\] attempts"),
        ({"presets": {"p": MODEL | {"rounds": 10**9}}}, r"\[presets.p\] rounds"),
        ({"presets": {"a\r\nb": MODEL}}, "a preset's name"),
        ({"upstreams": {"a": {"base_url": "http://me:secret@host/v1"}}}, "holds a name or a password"),
        ({"upstreams": {"a": {"base_url": f"http://{'a' * 70}.b/v1"}}}, "cannot be used"),
        ({"upstreams": {"a": {"base_url": "http://h/v1", "api_key_env": 3}}}, r"\[upstreams.a\] api_key_env"),
        ({"upstreams": {"a": {"base_url": "http://h/v1", "api_key_env": "NO_SUCH"}}}, "NO_SUCH, which is not set"),
        ({"upstreams": {"a": {"base_url": "http://h/v1", "api_key_env": "sk-secret-1"}}}, "not the key that is in it"),
        ({"presets": {"p": MODEL}, "shadow": {"preset": "p"}}, "no upstream"),
        ({"server": {"active": 0.5}}, r"\[server\] active"),
        ({"server": {"patience": float("nan")}}, r"\[server\] patience"),
        ({"server": {"keys_file": 3}}, r"\[server\] keys_file"),
        ({"presets": {"p": MODEL}, "shadow": {"preset": "p", "share": True}}, r"\[shadow\] share"),
        ({"presets": {"p": MODEL}, "shadow": {"preset": "p", "models": 3}}, r"\[shadow\] models"),
        ({"presets": {"p": MODEL}, "shadow": {"preset": "p", "parallel": "x"}}, r"\[shadow\] parallel"),
        ({"presets": {"p": MODEL}, "shadow": {"preset": "p", "limits": {"zz": 1}}}, r"\[shadow\] limits"),
    ],
)
def test_a_wrong_setting_is_told_with_its_place(project, place):
    with pytest.raises(ConfigError, match=place) as caught:
        plans_of(project)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-secret\nx-api-key: other", "sk-secret-\u00e9"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_told(monkeypatch, key):
    monkeypatch.setenv("UP_KEY", key)
    with pytest.raises(ConfigError, match="UP_KEY, which no header can carry") as caught:
        plans_of({"upstreams": {"a": {"base_url": "http://h/v1", "api_key_env": "UP_KEY"}}})
    assert "secret" not in str(caught.value)


def test_one_forbidden_tool_may_be_given_as_a_text():
    plans = plans_of({"presets": {"p": MODEL | {"tools": {"forbidden": "rm"}}}})
    assert plans.presets["refine/p"].tools.forbidden == ("rm",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no key"),
        ('[a]\nkey = "x"\ncalls = "many"\n', r"\[a\]: budget calls"),
        ('[a]\nkey = "x"\nrate = inf\n', "rate"),
        ('[a]\nkey = "x"\nparallel = 0.5\n', "parallel"),
        ('[a]\nkey = "x y"\n', "printable ASCII"),
        ('[a]\nkey = "x"\n[b]\nkey = "x"\n', "have to differ"),
    ],
)
def test_a_keys_file_that_says_nothing_certain_is_refused(tmp_path, text, told):
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        Keys.read(path)


def test_keys_that_are_said_but_are_none_do_not_open_the_server(monkeypatch):
    monkeypatch.setenv("REDRAFT_SERVER_KEYS", " , ")
    with pytest.raises(ConfigError, match="holds no key"):
        Keys.read()


def test_keys_that_everybody_can_read_are_said(tmp_path, caplog):
    path = tmp_path / "keys.toml"
    path.write_text('[a]\nkey = "very-secret"\n', encoding="utf-8")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING, "redraft.server"):
        assert Keys.read(path)
    assert "chmod 600" in caplog.text
    assert "very-secret" not in caplog.text


def test_a_client_that_leaves_at_any_point_leaves_no_call_open():
    body = json.dumps({"model": "test", "messages": ASKED, "stream": True}).encode()
    whole = post(body)
    with FaultServer(lambda _: Reply(text="a b c", pause=1.0)) as up, serving(up) as served:
        port = int(served.url.rsplit(":", 1)[1])
        for cut in (10, 60, len(whole) - 5, len(whole), len(whole), len(whole)):
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(whole[:cut])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.sendall(whole)
            assert line.recv(9) == b"HTTP/1.1 "
        until = time.monotonic() + 10
        while (served.house.gate.active or up.open_connections) and time.monotonic() < until:
            time.sleep(0.02)  # of another thread: nothing tells of it
        assert (served.house.gate.active, up.open_connections) == (0, 0)


def test_a_store_that_is_locked_is_503_and_tells_no_path(tmp_path):
    with FaultServer(lambda _: GOOD) as up:
        plans = plans_of({"presets": {"p": THREE | {"model": "openai/test", "base_url": up.base_url}}})
        path = tmp_path / "runs.db"
        store = SqliteStore(path)
        with running(replace(plans, store=store)) as served:
            assert served.chat("refine/p").status_code == 200
            other = sqlite3.connect(path)
            other.execute("BEGIN IMMEDIATE")
            locked = served.chat("refine/p")
            other.rollback()
            other.close()
            again = served.chat("refine/p")
        store.close()
    assert (locked.status_code, locked.json()["error"]["code"]) == (503, "store_unavailable")
    assert "runs.db" not in locked.text
    assert again.status_code == 200
