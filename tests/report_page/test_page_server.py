"""`redraft view`'s server, asked over a real socket: what it answers, and what it does not."""

import http.client
import json
import socket
import threading
from urllib.parse import quote

import pytest
from page_runs import Journal

from redraft.cli.viewing import Viewer, bound
from redraft.errors import UsageError
from redraft.store import SqliteStore
from redraft.types import Event

SECRET = "sk-proj-abcdefghijklmnop0123456789"


@pytest.fixture
def kept(tmp_path):
    journal = Journal()
    journal("run", key="run", seed=1, version=1, budget=None, spec={"task": f"Say {SECRET}", "strategy": "Refine"})
    journal.answered(journal.asked(f"the key is {SECRET}"))
    with SqliteStore(tmp_path / "runs.db") as store:
        store.append("a run/1", journal.events)
        store.append("done", [Event(seq=0, kind="stop", time=1.0, data={"reason": "passed", "error": None})])
        yield store


@pytest.fixture
def viewer(kept):
    with Viewer(kept, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def ask(viewer):
    def request(path, method="GET", **headers):
        host, port = viewer.server_address[:2]
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        reply.text = reply.read().decode()
        connection.close()
        return reply

    return request


RUN = quote("a run/1", safe="")


def test_the_list_leads_to_each_run(ask):
    page = ask("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert f'href="/run/{RUN}"' in page.text
    run = ask(f"/run/{RUN}")
    assert run.status == 200
    assert "not ended" in run.text


def test_secrets_are_neither_on_a_page_nor_in_its_json(ask):
    for path in ("/", f"/run/{RUN}", f"/json/{RUN}"):
        reply = ask(path)
        assert reply.status == 200
        assert SECRET not in reply.text
        assert "[redacted]" in reply.text


def test_a_run_as_json(ask):
    reply = ask(f"/json/{RUN}")
    assert reply.headers["Content-Type"] == "application/json"
    data = json.loads(reply.text)
    assert data["run_id"] == "a run/1"
    assert [e["kind"] for e in data["events"]] == ["run", "intent", "call"]


def test_a_page_is_sent_again_only_when_there_is_something_new(ask, kept):
    assert ask(f"/run/{RUN}?part=1&seen=3").status == 204
    kept.append("a run/1", [Event(seq=3, kind="stop", time=2000.0, data={"reason": "passed", "error": None})])
    part = ask(f"/run/{RUN}?part=1&seen=3")
    assert part.status == 200
    assert 'data-live="" data-seen="4">' in part.text
    assert "<html" not in part.text


def test_the_list_is_sent_again_only_when_there_is_something_new(ask, kept, viewer):
    mark = viewer.lister.listing(5).mark
    assert ask(f"/?part=1&seen={mark}").status == 204
    kept.append("new", [Event(seq=0, kind="stop", time=1.0, data={"reason": "passed", "error": None})])
    assert "/run/new" in ask(f"/?part=1&seen={mark}").text


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "localhost:1", ""])
def test_another_name_for_this_machine_gets_nothing(ask, viewer, name):
    port = viewer.server_address[1]
    for host in (name, f"{name}:{port}" if ":" not in name else name):
        reply = ask("/", Host=host)
        assert reply.status == 421
        assert "La Maison" not in reply.text
        assert "<a" not in reply.text


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_its_own_names_are_known(ask, viewer, name):
    assert ask("/", Host=f"{name}:{viewer.server_address[1]}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(ask, method):
    assert ask("/", method).status == 501


def test_head_has_no_body(ask):
    reply = ask("/", "HEAD")
    assert (reply.status, reply.text) == (200, "")


def test_no_other_site_can_read_frame_or_script_it(ask):
    headers = ask("/").headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/run/none",
        "/json/none",
        "/run/",
        "/run/..%2f..%2fetc%2fpasswd",
        "//x",
        "/run/%ff%00",
        "/run/<b>",
        "/?n=-1",
        "/?n=99999999999",
        "/?part=1&seen=%00",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(ask, path):
    reply = ask(path)
    assert reply.status in (200, 404)
    assert "Traceback" not in reply.text
    assert "<b>" not in reply.text.rpartition("</head>")[2]


def test_a_run_that_cannot_be_read_is_a_page_that_says_so(ask, kept):
    kept.append("bad", [Event(seq=0, kind="attempt", time=1.0, scope="/attempt[0]", data={"index": 0})])
    for path in ("/run/bad", "/json/bad"):
        reply = ask(path)
        assert reply.status == 500
        assert "cannot be read" in reply.text
    assert ask("/").status == 200


def test_a_browser_that_leaves_ends_nothing(ask, viewer, capfd):
    for _ in range(3):
        with socket.create_connection(viewer.server_address[:2]) as left:
            left.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{viewer.server_address[1]}\r\n\r\n".encode())
    assert ask("/").status == 200
    assert capfd.readouterr().err == ""


def test_figures_that_are_none_are_a_page_that_says_so(ask, kept):
    usage = {"calls": 1, "input_tokens": "many"}
    call = {"intent": None, "role": "author", "model": "m", "usage": usage, "completion": {"choices": []}}
    kept.append("odd", [Event(seq=0, kind="call", time=1.0, data=call)])
    assert ask("/run/odd").status == 500
    assert ask("/").status == 200


def test_a_store_that_is_gone_is_a_page_that_says_so(ask, kept):
    kept.path.rename(kept.path.with_suffix(".moved"))
    reply = ask("/")
    assert reply.status == 500
    assert "was moved or deleted" in reply.text
    kept.path.with_suffix(".moved").rename(kept.path)


def test_a_port_that_is_taken(kept, viewer):
    port = viewer.server_address[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot be had"):
            bound(kept, "127.0.0.1", taken.getsockname()[1], port)
        with bound(kept, "127.0.0.1", None, taken.getsockname()[1]) as other:
            assert other.server_address[1] not in (0, taken.getsockname()[1])


def test_many_readers_at_once(ask):
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(f"/run/{RUN}").status)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 8
