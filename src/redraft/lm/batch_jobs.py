"""The Files and Batches endpoints of an OpenAI-compatible upstream, as redraft asks them. Only `LMError` comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.errors import BadRequestError, TransientLMError
from redraft.lm.batch_book import Round
from redraft.lm.clients import client_for
from redraft.lm.openai import OpenAILM
from redraft.lm.openai_errors import Refusal, as_error

if TYPE_CHECKING:
    import openai

URL = "/v1/chat/completions"
"""What a line's request is for; the provider's word for it, whatever the base URL is."""
_MARK = "redraft_round"
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_TOO_MUCH = ("token_limit_exceeded", "rate_limit_exceeded", "quota")
_PAGE = 100
_PAGES = 10
_CLOCKS_DIFFER = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the provider tells of it."""

    id: str
    status: str
    files: tuple[str, ...]
    """Of output and errors."""
    why: str
    """Its errors, in words."""
    crowded: bool
    """It was refused because too much is queued already."""

    @property
    def ended(self) -> bool:
        """True if nothing more comes."""
        return self.status in _ENDED


class Jobs:
    """One upstream's jobs."""

    def __init__(self, lm: OpenAILM) -> None:
        self._lm = lm

    async def check(self) -> None:
        """Raises `LMError` if there is no Batch API."""
        await self._get("/batches", limit=1)

    async def upload(self, content: bytes) -> str:
        """The id of a new file of requests."""
        async with self._asking("POST /files") as client:
            made = await client.files.create(file=("round.jsonl", content), purpose="batch")
        return self._id(made.to_dict() if hasattr(made, "to_dict") else made)

    async def create(self, file_id: str, name: str) -> str:
        """The id of a new job for a file; the round's name goes with it, so that `find` finds it."""
        async with self._asking("POST /batches") as client:
            made = await client.post(
                "/batches",
                body={
                    "input_file_id": file_id,
                    "endpoint": URL,
                    "completion_window": "24h",
                    "metadata": {_MARK: name},
                },
                cast_to=object,
                options={"security": {"bearer_auth": True}},
            )
        return self._id(made)

    async def find(self, of: Round) -> str | None:
        """The id of the job that was made of a round, if one was."""
        after: dict[str, str] = {}
        for _ in range(_PAGES):
            page = await self._get("/batches", limit=_PAGE, **after)
            jobs = [job for job in page.get("data") or () if isinstance(job, dict) and job.get("id")]
            for job in jobs:
                marked = (job.get("metadata") or {}).get(_MARK)
                if marked == of.name or (of.file_id is not None and job.get("input_file_id") == of.file_id):
                    return str(job["id"])
            if not page.get("has_more") or not jobs:
                return None
            if (jobs[-1].get("created_at") or of.begun) < of.begun - _CLOCKS_DIFFER:  # the newest come first
                return None
            after = {"after": str(jobs[-1]["id"])}
        return None

    async def look(self, job_id: str) -> Job:
        """How it goes."""
        told = await self._get(f"/batches/{job_id}")
        errors = [e for e in (told.get("errors") or {}).get("data") or () if isinstance(e, dict)]
        codes = " ".join(str(e.get("code")) for e in errors)
        files = [str(told[name]) for name in ("output_file_id", "error_file_id") if told.get(name)]
        why = "; ".join(str(e.get("message") or e.get("code")) for e in errors[:3])
        return Job(
            id=job_id,
            status=str(told.get("status")),
            files=tuple(files),
            why=why[:500],
            crowded=any(word in codes for word in _TOO_MUCH),
        )

    async def cancel(self, job_id: str) -> None:
        """End it; what is done by then is still charged, and can be had."""
        async with self._asking(f"POST /batches/{job_id}/cancel") as client:
            await client.post(f"/batches/{job_id}/cancel", cast_to=object, options={"security": {"bearer_auth": True}})

    async def lines(self, file_id: str) -> list[bytes]:
        """A file's lines; the last may be cut."""
        parts: list[bytes] = []
        async with (
            self._asking(f"GET /files/{file_id}/content") as client,
            client.files.with_streaming_response.content(file_id) as response,
        ):
            parts += [chunk async for chunk in response.iter_bytes()]
        return [line for line in b"".join(parts).split(b"\n") if line.strip()]

    async def _get(self, path: str, **query: object) -> dict[str, Any]:
        async with self._asking(f"GET {path}") as client:
            told = await client.get(path, cast_to=object, options={"params": query, "security": {"bearer_auth": True}})
        if not isinstance(told, dict):
            raise self._unreadable(f"GET {path}", f"a JSON object was expected, got {type(told).__name__}")
        return told

    def _id(self, made: object) -> str:
        found = made.get("id") if isinstance(made, dict) else None
        if not found:
            raise self._unreadable("the reply", "it names no id")
        return str(found)

    def _unreadable(self, what: str, why: str) -> TransientLMError:
        return TransientLMError(f"{self._lm.name} at {self._lm.address}: {what} is unreadable ({why})", sent=True)

    @asynccontextmanager
    async def _asking(self, what: str) -> AsyncIterator[openai.AsyncOpenAI]:
        import httpx2
        import openai

        lm = self._lm
        client = await client_for(lm._upstream)
        try:
            yield client
        except openai.APIStatusError as error:
            told = Refusal.read(error.status_code, error.body, error.response.headers)
            if told.status in (404, 405, 501):
                raise BadRequestError(
                    f"{lm.name} at {lm.address} answered {told.status} to {what}: {told.message}; not every server has a "
                    "Batch API, and files and jobs are not kept for ever",
                    status=told.status,
                ) from error
            raise as_error(told, (), lm._endpoint) from error
        except openai.APIConnectionError as error:
            raise lm._disconnected(error.__cause__ or error) from error
        except openai.OpenAIError as error:
            raise BadRequestError(f"{lm.name} cannot be asked {what}: {error}") from error
        except httpx2.HTTPError as error:
            raise lm._disconnected(error) from error
        except ValueError as error:  # not JSON, not UTF-8
            raise self._unreadable(what, str(error)) from error
