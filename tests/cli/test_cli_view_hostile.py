"""The page's server and requests that no browser sends."""

import socket
import threading

import pytest

pytest.importorskip("jinja2")

from redraft.cli.viewing import bound
from redraft.store.sqlite import SqliteStore


@pytest.fixture
def viewer(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    made = bound(store, "127.0.0.1", 0, 0)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join(5)
    made.server_close()
    store.close()


def status(viewer, path, *hosts):
    lines = [f"GET {path} HTTP/1.1", *(f"host: {host}" for host in hosts), "connection: close", "", ""]
    with socket.create_connection(viewer.server_address[:2], timeout=10) as line:
        line.sendall("\r\n".join(lines).encode())
        return int(line.recv(65_536).split()[1])


def test_one_host_is_named_and_it_is_this_one(viewer):
    here = f"127.0.0.1:{viewer.server_address[1]}"
    told = [status(viewer, "/", *hosts) for hosts in ((here,), (here, "evil"), ("evil", here), (), (f"{here}.evil",))]
    assert told == [200, 421, 421, 421, 421]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("http://[", 400), ("/../../etc/passwd", 404), ("/run/..%2f..%2fetc%2fpasswd", 404), ("/run/%00", 404)],
)
def test_an_address_that_is_none_is_told_so(viewer, path, wanted):
    assert status(viewer, path, f"127.0.0.1:{viewer.server_address[1]}") == wanted
