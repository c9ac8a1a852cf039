"""A Hugging Face hub on this machine's loopback, as huggingface_hub talks to one, and small real GGUF files."""

import hashlib
import json
import re
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
OLD = "0bade1" + "0" * 34


def gguf(padding=300_000, **values):
    """A GGUF file: its head with the values, then bytes that stand for the weights."""
    head = b"".join(_pair(name.replace("__", "."), value) for name, value in values.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + head + bytes(i % 251 for i in range(padding))


def _pair(name, value):
    raw = name.encode()
    return struct.pack("<Q", len(raw)) + raw + _value(value)


def _value(value):
    if isinstance(value, str):
        return struct.pack("<IQ", 8, len(value)) + value.encode()
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 4, len(value)) + b"".join(struct.pack("<I", v) for v in value)
    return struct.pack("<II", 4, value)


def llama(**more):
    """The head of a small model: 2 layers, 2 key-value heads of 64: 1,024 bytes a token of context."""
    return gguf(
        general__architecture="llama",
        llama__block_count=2,
        llama__context_length=8192,
        llama__embedding_length=256,
        llama__attention__head_count=4,
        llama__attention__head_count_kv=2,
        tokenizer__ggml__tokens="x" * 100_000,  # far beyond what is read of the file
        **more,
    )


@dataclass
class Repo:
    files: dict[str, bytes]
    card: dict | None = None
    tags: tuple[str, ...] = ()
    gated: bool = False
    private: bool = False
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT, "v1": OLD, "refs/pr/1": OLD})


class Hub:
    """Serves repositories at `url`; the content comes from another host name, as it does from the real one's CDN.

    `tokens` may read what is private or gated. `log` holds (method, path, Range, Authorization) of every request.
    `cut` is how many bytes of the next content are sent before the connection breaks; `swapped` is sent instead.
    """

    def __init__(self):
        self.repos, self.log, self.tokens = {}, [], {"hf_good"}
        self.cut = self.swapped = None
        hub = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def contents_sent(self):
        """The ranges that were asked of contents, without looks at the head."""
        return [
            bytes_ for method, path, bytes_, _ in self.log if path.startswith("/cdn/") and bytes_ != "bytes=0-65535"
        ]

    def answer(self, web):
        path = unquote(urlsplit(web.path).path)
        self.log.append((web.command, path, web.headers.get("Range"), web.headers.get("Authorization")))
        if path.startswith("/cdn/"):
            return self._content(web, path.removeprefix("/cdn/"))
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if not (api or file):
            return _send(web, 404, {"error": "no such page"})
        repo = self.repos.get((api or file)[1])
        known = web.headers.get("Authorization", "").removeprefix("Bearer ") in self.tokens
        if repo is None or (repo.private and not known):
            return _send(web, 401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
        if api:
            return self._info(web, api[1], repo, api[2] or "main")
        if repo.gated and not known:
            return _send(web, 403, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        return self._resolve(web, repo, repo.revisions.get(file[2], file[2]), file[3])

    def _info(self, web, name, repo, revision):
        commit = repo.revisions.get(revision)
        if commit is None:
            return _send(web, 404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        siblings = [
            {
                "rfilename": path,
                "size": len(data),
                "blobId": "0" * 40,
                "lfs": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134},
            }
            for path, data in repo.files.items()
        ]
        said = {"id": name, "sha": commit, "private": repo.private, "gated": repo.gated and "auto"}
        return _send(web, 200, {**said, "siblings": siblings, "tags": [*repo.tags], "cardData": repo.card})

    def _resolve(self, web, repo, commit, path):
        if path not in repo.files:
            return _send(
                web, 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
            )
        sha = hashlib.sha256(repo.files[path]).hexdigest()
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Etag": f'"{sha}"',
            "X-Linked-Size": str(len(repo.files[path])),
            "Location": f"http://localhost:{self.port}/cdn/{sha}",
        }
        return _send(web, 302, {}, headers)

    def _content(self, web, sha):
        every = {hashlib.sha256(data).hexdigest(): data for repo in self.repos.values() for data in repo.files.values()}
        data = self.swapped or every[sha]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", web.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        last = min(int(asked[2] or len(data)), len(data) - 1) if asked else len(data) - 1
        body = data[first : last + 1]
        web.send_response(206 if asked else 200)
        web.send_header("Content-Length", str(len(body)))
        web.send_header("ETag", f'"{sha}"')
        if asked:
            web.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        web.end_headers()
        cut = None if asked and last < len(data) - 1 else self.cut
        if cut is not None:
            self.cut, web.close_connection = None, True
        web.wfile.write(body[:cut])


def _send(web, status, data, headers=None):
    body = json.dumps(data).encode()
    web.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        web.send_header(name, value)
    web.send_header("Content-Length", str(len(body)))
    web.end_headers()
    if web.command != "HEAD":
        web.wfile.write(body)
