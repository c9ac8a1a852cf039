"""Model servers on this machine: found by what they answer, on real sockets of free ports."""

import json
import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redraft import registry
from redraft.errors import UnsupportedError
from redraft.lm import servers
from redraft.lm.servers import look
from redraft.types import Request, Usage

OLLAMA, LLAMA, LMSTUDIO, VLLM = servers._PLACES

FORMS = {
    "ollama": {"object": "list", "data": [{"id": "qwen2.5:7b", "object": "model", "owned_by": "library"}]},
    "llama-server": {
        "object": "list",
        "data": [{"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}}],
    },
    "lmstudio": {
        "object": "list",
        "data": [{"id": "text-embedding-nomic"}, {"id": "qwen3-4b", "owned_by": "organization_owner"}, {"id": "phi-4"}],
    },
    "vllm": {"object": "list", "data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm", "max_model_len": 40960}]},
    "other": {"object": "list", "data": [{"id": "mlx model", "owned_by": "someone"}]},
}


@pytest.fixture
def serve():
    """`serve(body)` listens on a free port of the loopback and returns its URL; `asked` holds the paths."""
    started = []

    def begin(body, status=200, wait=None):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self):
                begin.asked.append(self.path)
                if wait is not None:
                    wait.wait(10)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    begin.asked = []
    yield begin
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def usual(monkeypatch):
    """Sets where each kind of server usually listens."""

    def put(**urls):
        places = tuple(replace(p, url=urls.get(p.provider.replace("-", "_"), dead())) for p in servers._PLACES)
        monkeypatch.setattr(servers, "_PLACES", places)
        monkeypatch.delenv("OLLAMA_HOST", raising=False)
        monkeypatch.delenv("REDRAFT_DISCOVER", raising=False)
        servers.found.cache_clear()
        return places

    yield put
    servers.found.cache_clear()


def dead():
    """A URL that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def at(place, url):
    return replace(place, url=url)


pytestmark = pytest.mark.server


def test_each_kind_is_named_with_what_to_type(serve, usual):
    places = usual(**{name.replace("-", "_"): serve(FORMS[name]) for name in FORMS if name != "other"})
    found = servers.found()
    assert [(server.provider, server.models, server.options) for server in found] == [
        ("ollama", ("qwen2.5:7b",), "-m ollama/qwen2.5:7b"),
        ("llama-server", ("m.gguf",), "-m llama-server/m.gguf"),
        ("lmstudio", ("qwen3-4b", "phi-4"), "-m lmstudio/qwen3-4b"),
        ("vllm", ("Qwen/Qwen3-8B",), "-m vllm/Qwen/Qwen3-8B"),
    ]
    assert f"LM Studio at {places[2].url}/v1 with qwen3-4b and 1 more: -m lmstudio/qwen3-4b" in servers.notice()
    assert serve.asked == ["/v1/models"] * 4, "nothing else is asked"
    servers.found()
    assert len(serve.asked) == 4, "once a process"


def test_a_server_is_known_by_what_it_says_and_not_by_its_port(serve):
    odd, other = serve(FORMS["llama-server"]), serve(FORMS["other"])
    one, two = look([at(LMSTUDIO, odd), at(VLLM, other)])
    assert (one.provider, one.options) == ("llama-server", f"-m llama-server/m.gguf --base-url {odd}/v1")
    assert (two.provider, two.options) == (None, f"-m 'mlx model' --base-url {other}/v1")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"data": []}, 200),
        ({"object": "list", "data": None}, 200),
        ([1, 2], 200),
        ({"data": [{"id": 5}, {"id": "bad\x1b[31m"}, {"id": "nomic-embed"}]}, 200),
        (b"<html>a web page</html>", 200),
        (b"[" * 100_000, 200),
        (b"\xff\xfe", 200),
        (FORMS["vllm"], 404),
        (FORMS["vllm"], 302),
    ],
)
def test_what_is_no_model_server_is_not_found(serve, body, status):
    assert look([at(VLLM, serve(body, status)), at(OLLAMA, serve(body, status))]) == ()


def test_nobody_waits_for_one_that_does_not_answer(serve):
    end = threading.Event()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        silent = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        places = [at(OLLAMA, silent), at(LMSTUDIO, serve(FORMS["lmstudio"], wait=end)), at(VLLM, serve(FORMS["vllm"]))]
        began = time.monotonic()
        found = look(places)
        took = time.monotonic() - began
        end.set()
    assert [server.provider for server in found] == ["vllm"]
    assert took < 2  # 0.25 s on a machine that has time


def test_only_this_machine_is_asked_and_no_proxy(serve, monkeypatch):
    proxy = serve(FORMS["other"])
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    assert look([at(OLLAMA, "http://192.0.2.1:11434"), at(VLLM, dead())]) == ()
    assert serve.asked == []


def test_it_can_be_switched_off(serve, usual, monkeypatch):
    usual(vllm=serve(FORMS["vllm"]))
    monkeypatch.setenv("REDRAFT_DISCOVER", "0")
    assert servers.found() == ()
    assert servers.notice() == ""
    assert serve.asked == []


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box:9000", "http://gpu-box:9000"),
        (":9000", "http://127.0.0.1:9000"),
        ("http://gpu-box", "http://gpu-box:80"),
        ("https://ollama.example/api", "https://ollama.example:443/api"),
        ("[::1]:9000", "http://[::1]:9000"),
        ('"127.0.0.1:9000"', "http://127.0.0.1:9000"),
        ("host:notaport", "http://127.0.0.1:11434"),
    ],
)
def test_ollamas_own_variable_is_read_as_ollama_reads_it(monkeypatch, host, url):
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert registry.find("models", "ollama")("qwen2.5:7b")._upstream.base_url.rstrip("/") == f"{url}/v1"


def test_a_server_needs_no_key_costs_nothing_here_and_promises_only_what_it_has(monkeypatch):
    for name in ("VLLM_API_KEY", "OLLAMA_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    used = Usage(calls=1, input_tokens=1000, output_tokens=1000)
    here = registry.find("models", "vllm")("Qwen/Qwen3-8B")
    assert (here.name, here.cost(used)) == ("vllm/Qwen/Qwen3-8B", 0.0)
    assert registry.find("models", "vllm")("x", base_url="http://10.0.0.7:8000/v1").cost(used) == 0.0
    assert registry.find("models", "vllm")("x", base_url="https://gpu.example/v1").cost(used) is None
    assert registry.find("models", "ollama")("gpt-oss:120b-cloud").cost(used) is None
    monkeypatch.setenv("VLLM_API_KEY", "k")
    assert registry.find("models", "vllm")("x")._upstream.api_key == "k"


async def test_what_a_server_does_not_have_is_refused_before_it_is_sent():
    lm = registry.find("models", "ollama")("qwen2.5:7b", base_url=f"{dead()}/v1")
    with pytest.raises(UnsupportedError, match="'n'"):
        await lm.generate(Request(messages=({"role": "user", "content": "x"},), n=2))
