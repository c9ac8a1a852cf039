"""Fetching models from a Hugging Face hub. The only file that touches huggingface_hub (the extra `hub`).

`HF_ENDPOINT`, `HF_TOKEN` (or the token that `hf auth login` stored), `HF_HUB_OFFLINE` and the proxies hold, as for other tools.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from redraft.errors import ConfigError, ModelFetchError
from redraft.lm import gguf, hub
from redraft.lm.catalogue import Progress, cache_dir, sweep
from redraft.lm.hub import HubName

_GB = 1e9
_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file as the hub describes it."""

    path: str
    size: int
    sha256: str | None
    """None for a small file, which the hub keeps without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A model as a hub offers it: all that can be said before it is fetched."""

    name: HubName
    commit: str
    files: tuple[HubFile, ...]
    licence: str | None
    context: int | None
    """The longest context it was trained for, in tokens, if known."""
    per_token: int | None
    """Bytes of memory for each token of context, if known."""

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def memory(self) -> int | None:
        """Bytes of memory to run it with the default slots, if known."""
        return hub.memory_needed(self.size, self.per_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """What the hub says of a repository."""

    commit: str
    files: tuple[HubFile, ...]
    licence: str | None


def models_in(name: HubName) -> list[tuple[HubName, int]]:
    """The GGUF models of a repository and their sizes in bytes, in the hub's order; a model in parts is one."""
    return _models(name, _listing(name))


def offer(name: HubName) -> Offer:
    """What the hub offers under that name; reads the first kilobytes of the file. Raises `ModelFetchError`."""
    listing = _listing(name)
    files = {file.path: file for file in listing.files}
    if missing := [part for part in name.parts() if part not in files]:
        raise ModelFetchError(_no_such_file(name, missing[0], [str(model) for model, _ in _models(name, listing)]))
    if not all(files[part].size for part in name.parts()):
        raise ModelFetchError(f"{_endpoint()} does not say how large {name} is: it is no whole hub; check HF_ENDPOINT")
    with _explained(name):
        head = gguf.read_head(_first_bytes(name, listing.commit))
    return Offer(
        name=name,
        commit=listing.commit,
        files=tuple(files[part] for part in name.parts()),
        licence=listing.licence,
        context=gguf.longest_context(head),
        per_token=gguf.context_bytes(head),
    )


def fetch(wanted: Offer, progress: Progress | None = None) -> Path:
    """Have the model on this machine and return its (first) file. Files that are there and right are not fetched again.

    Each file gets its name only when it is whole and its hash was checked; an interrupted fetch leaves nothing else.
    Raises `ModelFetchError`; what `progress` raises ends the fetch.
    """
    name, folder = wanted.name, hub.root() / wanted.name.folder
    report = _Sum(wanted.size, progress)
    store = cache_dir() / "models"
    with _explained(name):
        store.mkdir(parents=True, exist_ok=True)
        sweep(store)
        missing = [file for file in wanted.files if not _intact(folder / file.path, file)]
        report.whole(wanted.size - sum(file.size for file in missing))
        _check_room(name, sum(file.size for file in missing), store)
        stage = Path(tempfile.mkdtemp(prefix=".pull-", dir=store))
        try:
            for file in missing:
                _fetch_one(wanted, file, stage, report)
            about = {
                "repo": name.repo_id,
                "commit": wanted.commit,
                "licence": wanted.licence,
                "context": wanted.context,
            }
            hub.write_note(name, [file.size for file in wanted.files], about)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    return name.path


def free_on_disk() -> int:
    """Bytes that are free where models are kept."""
    place = cache_dir()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _fetch_one(wanted: Offer, file: HubFile, stage: Path, report: _Sum) -> None:
    from huggingface_hub import hf_hub_download

    name, target = wanted.name, hub.root() / wanted.name.folder / file.path
    came = Path(
        hf_hub_download(
            name.repo_id,
            file.path,
            revision=wanted.commit,
            local_dir=stage,
            endpoint=_endpoint(),
            library_name="redraft",
            tqdm_class=_bar(lambda done: report.part(min(done, file.size), stage)),
        )
    )
    if not _intact(came, file):
        raise ModelFetchError(
            f"{file.path} of {name.repo_id} arrived damaged: {came.stat().st_size:,} bytes with another sha256 than the hub "
            f"states ({file.size:,} bytes, {file.sha256}). Nothing was kept; try again"
        )
    with came.open("rb") as start:
        if start.read(4) != b"GGUF":
            raise ModelFetchError(f"{file.path} of {name.repo_id} is not a GGUF model, whatever its name says")
    with came.open("rb+") as done:
        os.fsync(done.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    came.replace(target)
    report.whole(file.size)


class _Sum:
    """Adds up what came of all files, one after the other."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._progress, self._whole, self._part = total, progress, 0, 0

    def whole(self, size: int) -> None:
        """Count a file that is there."""
        self._whole, self._part = self._whole + size, 0
        self._tell()

    def part(self, done: int, stage: Path) -> None:
        """Count what is there of the file that is coming, and keep the stage from looking abandoned."""
        os.utime(stage)
        if done > self._part:
            self._part = done
            self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(min(self._total, self._whole + self._part), self._total)


def _bar(tell: Callable[[int], None]) -> type:
    """The progress bar that huggingface_hub feeds: it shows nothing, and tells how many bytes it was told of in all.

    A Xet download feeds two, of bytes received and of bytes written: the one that is ahead counts.
    """
    from tqdm import tqdm

    def start(self: Any, *args: Any, **options: Any) -> None:
        tqdm.__init__(self, *args, **{**options, "disable": True})
        self.came = 0

    def update(self: Any, done: float | None = 1) -> None:
        self.came += int(done or 0)
        tell(self.came)

    return type("Bar", (tqdm,), {"__init__": start, "update": update})


def _listing(name: HubName) -> _Listing:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError("fetching from a hub needs the package huggingface_hub: pip install 'redraft[hub]'")
    from huggingface_hub import HfApi

    api = HfApi(endpoint=_endpoint(), library_name="redraft")
    with _explained(name):
        try:
            info = api.model_info(name.repo_id, revision=name.revision, files_metadata=True, timeout=_WAIT_S)
            return _Listing(commit=info.sha, files=tuple(_files(info)), licence=_licence(info))
        except (TypeError, LookupError, AttributeError) as error:  # JSON, but not what a hub answers
            raise ValueError(
                f"it describes the repository in another form ({type(error).__name__}: {error})"
            ) from error


def _files(info: Any) -> Iterator[HubFile]:
    for file in info.siblings or ():
        if hub.is_model_file(file.rfilename):
            size = file.size if isinstance(file.size, int) and file.size > 0 else 0
            yield HubFile(file.rfilename, size, file.lfs.sha256 if file.lfs else None)


def _models(name: HubName, listing: _Listing) -> list[tuple[HubName, int]]:
    sizes: dict[HubName, int] = {}
    for file in listing.files:
        if not Path(file.path).name.startswith("mmproj"):  # the eyes of a model, not a model
            model = hub.first_part(HubName(name.owner, name.repo, name.revision, file.path))
            sizes[model] = sizes.get(model, 0) + file.size
    return [*sizes.items()]


def _licence(info: Any) -> str | None:
    """As the model card states it, else as the hub tagged it."""
    card = info.card_data
    stated = getattr(card, "license", None) if card is not None else None
    if stated == "other":
        stated = getattr(card, "license_name", None) or getattr(card, "license_link", None) or stated
    tagged = next((tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")), None)
    shown = "".join(c for c in str(stated or tagged or "") if c.isprintable())  # it comes from a stranger's text
    return shown[:200] or None


def _first_bytes(name: HubName, commit: str) -> bytes:
    """The start of the model's (first) file."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    url = hf_hub_url(name.repo_id, name.file, revision=commit, endpoint=_endpoint())
    headers = {**build_hf_headers(library_name="redraft"), "Range": f"bytes=0-{gguf.HEAD_BYTES - 1}"}
    start = b""
    with get_session().stream("GET", url, headers=headers, timeout=_WAIT_S) as answer:
        hf_raise_for_status(answer)
        for block in answer.iter_bytes(gguf.HEAD_BYTES):
            start += block
            if len(start) >= gguf.HEAD_BYTES:  # a server may send the whole file all the same
                break
    return start


def _intact(path: Path, file: HubFile) -> bool:
    """True if the file is there, of the size and the hash that the hub states."""
    try:
        if path.stat().st_size != file.size:
            return False
        with path.open("rb") as content:
            return file.sha256 is None or hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
    except FileNotFoundError:
        return False


def _check_room(name: HubName, need: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ModelFetchError(
            f"{name} needs {need / _GB:.1f} GB on the disk of {folder}, {free / _GB:.1f} GB are free. Free some space "
            "there, or set REDRAFT_CACHE to a folder on another disk"
        )


def _endpoint() -> str:
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


@contextmanager
def _explained(name: HubName) -> Iterator[None]:
    """What goes wrong on the way, as a `ModelFetchError` that says what to do."""
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except (
        httpx2.HTTPError,
        OSError,
        ValueError,
        RuntimeError,
        errors.EntryNotFoundError,
        errors.XetDownloadError,
    ) as error:
        raise ModelFetchError(_explanation(name, error)) from error


def _explanation(name: HubName, error: Exception) -> str:
    from huggingface_hub import errors

    at, repo = _endpoint(), name.repo_id
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repo} is gated: accept its terms at {at}/{repo}, then set HF_TOKEN to a token of that account "
            "(or run `hf auth login`)"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{at} shows no model repository {repo}: check the name. If it is private, or gated, set HF_TOKEN to a token of "
            "an account that may read it (or run `hf auth login`)"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no revision {name.revision!r}; leave @{name.revision} out for the main one"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"{name} is not here and cannot be fetched: HF_HUB_OFFLINE is set; unset it"
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        advice = "check HF_TOKEN" if status in (401, 403) else "try again later" if status >= 429 else "check the name"
        return f"{at} refused {name} (HTTP {status}): {_said(error)}; {advice}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{name} could not be stored in {hub.root()}: the disk is full. Free some space, or set REDRAFT_CACHE"
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"{name} could not be stored: {error.strerror}: {error.filename}. Set REDRAFT_CACHE to a folder that you "
            "may write to"
        )
    return (
        f"{name} could not be fetched from {at}: {_said(error)}. Is this machine online, and is that a hub (HF_ENDPOINT)? "
        "Nothing half was kept; try again"
    )


def _said(error: Exception) -> str:
    """An error's message on one line, without the hub's advice about its own options."""
    causes = [str(error), str(error.__cause__ or "")]
    text = next((cause for cause in causes if cause.strip()), type(error).__name__)
    return re.sub(r"\s+", " ", text).strip()[:300].rstrip(".")


def _no_such_file(name: HubName, missing: str, there: list[str]) -> str:
    if not there:
        return f"{name.repo_id} holds no GGUF file at all; look for a repository that does (often named ...-GGUF)"
    close = get_close_matches(str(name), there, n=1, cutoff=0.3)
    hint = f" Did you mean hf:{close[0]}?" if close else ""
    return (
        f"{name.repo_id} has no file {missing}.{hint} `redraft models pull hf:{name.folder}` lists its {len(there)} "
        f"GGUF models"
    )
