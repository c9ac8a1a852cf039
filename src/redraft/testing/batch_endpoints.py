"""A model server with OpenAI's Files and Batches endpoints beside chat completions, for tests of provider batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redraft.testing.replies import Reply, as_bytes, completion_json
from redraft.testing.server import FaultServer, Script

_NDJSON = {"content-type": "application/x-ndjson"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """How one job goes. The plain one ends well, when it was looked at once."""

    looks: int = 1
    """How often it is looked at before it ends."""
    ends: str = "completed"
    """Or "failed", "expired"."""
    answered: int | None = None
    """How many of its lines are answered before its end; None: all, of a failed job none."""
    spoil: Callable[[int, bytes], bytes | None] = lambda _, line: line
    """What becomes of the nth line of its output; None: it is missing."""
    errors: tuple[tuple[str, str], ...] = ()
    """Codes and messages of a failed one."""


class BatchServer:
    """`with BatchServer(script) as server:` is `FaultServer(script)` with `/v1/files` and `/v1/batches`.

    The script answers a job's lines as it does calls; an answer with another status than 200 goes to the job's file of
    errors. `jobs` are the plans of the jobs in order, then plain ones follow. `refusals` are what `METHOD /path` (a path
    without its ids) answers first: `{"POST /batches": [Reply.busy()]}`.

    `sent` are the bodies of all jobs' lines, `created` the jobs as the provider shows them, `asked` what was asked, in
    order.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        jobs: Iterable[JobPlan] = (),
        refusals: dict[str, list[Reply]] | None = None,
        lists: bool = True,
    ) -> None:
        self._server = FaultServer(script, beside=self._beside)
        self._plans = iter(jobs)
        self._refusals = refusals or {}
        self._lists = lists
        self._numbers = count(1)
        self._plan_of: dict[str, JobPlan] = {}
        self._looks: dict[str, int] = {}
        self.files: dict[str, bytes] = {}
        self.created: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.arrived = threading.Condition()
        """Notified whenever something was asked."""

    @property
    def base_url(self) -> str:
        """Ends in /v1."""
        return self._server.base_url

    @property
    def online(self) -> list[dict[str, Any]]:
        """Bodies of the calls that came directly."""
        return self._server.requests

    def __enter__(self) -> BatchServer:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, where)

    def end(self, job: int = 0) -> None:
        """Let this job end at the next look."""
        self._looks[self.created[job]["id"]] = 10**9

    def _beside(self, target: str, body: bytes) -> Reply | None:
        method, _, path = target.partition(" ")
        split = urlsplit(path.removeprefix("/v1"))
        parts = split.path.strip("/").split("/")
        what = f"{method} /{'/'.join(part for part in parts if '_' not in part)}"
        with self.arrived:
            self.asked.append(f"{method} /{'/'.join(parts)}")
            self.arrived.notify_all()
            if self._refusals.get(what):
                return self._refusals[what].pop(0)
            return self._told(what, parts, parse_qs(split.query), body)

    def _told(self, what: str, parts: list[str], query: dict[str, list[str]], body: bytes) -> Reply | None:
        if what == "POST /files":
            return Reply(body={"id": self._keep(_uploaded(body)), "object": "file", "purpose": "batch"})
        if what == "GET /files/content":
            found = self.files.get(parts[1])
            return _missing(parts[1]) if found is None else Reply(body=found, headers=_NDJSON)
        if what == "POST /batches":
            return self._create(json.loads(body))
        if what == "GET /batches" and len(parts) == 1 and self._lists:
            return self._list(query)
        job = next((job for job in self.created if len(parts) > 1 and job["id"] == parts[1]), None)
        if job is None:
            return _missing(parts[-1])
        if what == "POST /batches/cancel":
            job["status"] = "cancelling" if job["status"] == "in_progress" else job["status"]
        elif job["status"] == "cancelling":
            self._finish(job, "cancelled", 0)
        elif job["status"] == "in_progress":
            self._looks[job["id"]] += 1
            plan = self._plan_of[job["id"]]
            if self._looks[job["id"]] > plan.looks:
                self._finish(job, plan.ends, 0 if plan.ends == "failed" else plan.answered)
        return Reply(body=job)

    def _create(self, asked: dict[str, Any]) -> Reply:
        if asked["input_file_id"] not in self.files:
            return _missing(asked["input_file_id"])
        job = {"id": f"batch_{next(self._numbers)}", "object": "batch", "status": "in_progress", **asked}
        self.created.append(job)
        self._plan_of[job["id"]] = next(self._plans, JobPlan())
        self._looks[job["id"]] = 0
        self.sent += [json.loads(line)["body"] for line in self.files[asked["input_file_id"]].splitlines()]
        return Reply(body=job)

    def _list(self, query: dict[str, list[str]]) -> Reply:
        newest = self.created[::-1]
        after = query.get("after", [""])[0]
        start = next((at + 1 for at, job in enumerate(newest) if job["id"] == after), 0)
        page = newest[start : start + int(query.get("limit", ["20"])[0])]
        return Reply(body={"object": "list", "data": page, "has_more": start + len(page) < len(newest)})

    def _finish(self, job: dict[str, Any], status: str, answered: int | None) -> None:
        plan = self._plan_of[job["id"]]
        lines = [json.loads(line) for line in self.files[job["input_file_id"]].splitlines()]
        answered = len(lines) if answered is None else answered
        output: list[bytes] = []
        errors: list[bytes] = []
        for at, line in enumerate(lines if status != "failed" else ()):
            done = self._line(line) if at < answered else _undone(line["custom_id"], status)
            good = (done["response"] or {}).get("status_code") == 200
            spoiled = plan.spoil(at, as_bytes(done))
            if spoiled is not None:
                (output if good else errors).append(spoiled + b"\n")
        job["status"] = status
        job["errors"] = {"data": [{"code": code, "message": message} for code, message in plan.errors]}
        job["output_file_id"] = self._keep(b"".join(output)) if output else None
        job["error_file_id"] = self._keep(b"".join(errors)) if errors else None

    def _line(self, line: dict[str, Any]) -> dict[str, Any]:
        reply = self._server._next(line["body"])
        body = completion_json(reply, line["body"]) if reply.body is None else reply.body
        told = {"status_code": reply.status, "request_id": "req_1", "body": body}
        return {"id": "batch_req_1", "custom_id": line["custom_id"], "response": told, "error": None}

    def _keep(self, content: bytes) -> str:
        name = f"file_{next(self._numbers)}"
        self.files[name] = content
        return name


def _undone(custom_id: str, status: str) -> dict[str, Any]:
    error = {"code": f"batch_{status}", "message": f"This request was not done: its batch {status}."}
    return {"id": "batch_req_1", "custom_id": custom_id, "response": None, "error": error}


def _uploaded(body: bytes) -> bytes:
    """The file's content in a form of several parts."""
    boundary = body.partition(b"\r\n")[0]
    for part in body.split(boundary):
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return content.removesuffix(b"\r\n")
    return b""


def _missing(what: str) -> Reply:
    return Reply.error(404, f"there is no {what}")
