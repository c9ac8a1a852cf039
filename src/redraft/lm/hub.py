"""Models of a Hugging Face hub on this machine: what they are called, where they lie, which are here.

`hf:OWNER/REPO/FILE.gguf` is fetched by `redraft.lm.hub_client` and from then on is the model
`local/OWNER/REPO/FILE.gguf`; of another revision than the main one, `OWNER/REPO@REVISION`.

The files lie in redraft's own cache, not in the hub's: there a name always stands for a file whose hash was checked, a
pulled model runs without huggingface_hub, and `REDRAFT_CACHE` moves all models together. What other tools have put into
the hub's cache is taken from there instead of the network. A note beside the file, written last, says that it is whole.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from redraft.errors import ConfigError, UnknownNameError
from redraft.lm.catalogue import cache_dir

SLOTS, CTX = 4, 4096
"""What the embedded engine keeps by default: so many calls at once, so many tokens of context each."""

_WORK = 200_000_000
"""Bytes that the engine needs besides the file and the context: about what was measured on small models."""
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_NAME = r"[A-Za-z0-9][\w.-]*"
_SPEC = re.compile(rf"({_NAME})/({_NAME})(?:@([^/@]+))?(?:/(.+))?")
_FORM = "hf:OWNER/REPO/FILE.gguf, hf:OWNER/REPO to see its files, hf:OWNER/REPO@REVISION/FILE.gguf for another revision"


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository on a hub, and a file in it."""

    owner: str
    repo: str
    revision: str | None = None
    """A branch, tag or commit; None is the main branch."""
    file: str = ""
    """Path within the repository; of a model in parts, the first part. Empty for the repository alone."""

    @property
    def repo_id(self) -> str:
        """The repository as the hub calls it."""
        return f"{self.owner}/{self.repo}"

    @property
    def folder(self) -> str:
        """The repository and its revision, as part of a name and of a path."""
        return self.repo_id + (f"@{quote(self.revision, safe='')}" if self.revision else "")

    def __str__(self) -> str:
        return f"{self.folder}/{self.file}" if self.file else self.folder

    @property
    def model(self) -> str:
        """What `-m` takes once it is pulled."""
        return f"local/{self}"

    @property
    def path(self) -> Path:
        """Where the file lies, or will lie."""
        return root() / self.folder / self.file

    @property
    def note(self) -> Path:
        """Where it is written down what was fetched; there only if all of it was."""
        return self.path.with_name(f"{self.path.name}.json")

    def parts(self) -> tuple[str, ...]:
        """All files of the model: one, or the parts that its name speaks of."""
        found = _PART.search(self.file)
        if not found or not int(found[2]):
            return (self.file,)
        stem, whole = self.file[: found.start()], found[2]
        return tuple(f"{stem}-{number:05}-of-{whole}.gguf" for number in range(1, int(whole) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A model of a hub that is on this machine."""

    name: HubName
    size: int
    licence: str
    context: int | None
    """The longest context it was trained for, in tokens, if known."""


def root() -> Path:
    """The folder of all models of hubs."""
    return cache_dir() / "models" / "hub"


def parse(spec: str) -> HubName:
    """The name in `hf:OWNER/REPO[@REVISION][/FILE]`, with or without `hf:` or `local/`. Raises `ConfigError`."""
    bare = re.sub(r"^(hf:(//)?|local[/:](hf:)?)", "", spec)
    bare = re.sub(
        r"^https?://[^/]+/([^/]+/[^/]+)(?:/(?:blob|resolve|tree)/main)?", r"\1", bare
    )  # as a browser shows it
    bare = bare.partition("?")[0]
    found = _SPEC.fullmatch(bare)
    if not found or not bare.isprintable():
        raise ConfigError(f"{spec!r} names nothing on a hub; write {_FORM}")
    owner, repo, revision, file = found.groups()
    if file and not is_model_file(file):
        raise ConfigError(f"{spec!r} names no GGUF model: {file!r} is no file ending in .gguf; write {_FORM}")
    return first_part(HubName(owner, repo, unquote(revision) if revision else None, file or ""))


def is_model_file(path: str) -> bool:
    """True for the path of a GGUF file that stays within its repository, and can be shown and typed."""
    inside = not re.search(r"[\\:]", path) and {"", ".", ".."}.isdisjoint(path.split("/"))
    return inside and path.endswith(".gguf") and path.isprintable()


def first_part(name: HubName) -> HubName:
    """The name by which a model in parts is known: that of its first part."""
    return HubName(name.owner, name.repo, name.revision, name.parts()[0])


def pulled() -> list[Pulled]:
    """The models of hubs that are here, whole, by name. What else lies in their folder is passed over."""
    top = root()
    found = []
    for note in sorted(top.glob("*/*/**/*.gguf.json")) if top.is_dir() else ():
        with contextlib.suppress(ConfigError):
            found.append(_read(parse(note.relative_to(top).as_posix().removesuffix(".json"))))
    return [model for model in found if model is not None]


def find(spec: str) -> Path:
    """The file of a pulled model. Raises `UnknownNameError`, which says how to get it."""
    name = parse(spec)
    if not name.file:
        raise ConfigError(f"{spec!r} names a repository; name a file in it: redraft models pull hf:{name} lists them")
    if _read(name) is None:
        raise UnknownNameError(
            f"the model {name.model} is not on this machine, and there is no such file here; fetch it once: "
            f"redraft models pull hf:{name}"
        )
    return name.path


def remove(name: HubName) -> None:
    """Take a pulled model off this machine. Raises `UnknownNameError` if it is not here."""
    if not name.note.exists():
        raise UnknownNameError(f"the model {name.model} is not on this machine; redraft models list shows what is")
    name.note.unlink()  # first: what is left of a removal that fails is no model
    for part in name.parts():
        (root() / name.folder / part).unlink(missing_ok=True)


def looks_like_one(spec: str) -> bool:
    """True for what may be the name of a hub's file, and not for a path of this machine."""
    return spec.startswith(("hf:", "https://", "http://")) or (spec.count("/") >= 2 and bool(_SPEC.fullmatch(spec)))


def write_note(name: HubName, sizes: Sequence[int], about: dict[str, Any]) -> None:
    """Write down that all files of a model are here; the last step of a fetch."""
    text = json.dumps({**about, "sizes": list(sizes)}, indent=2)
    draft = name.note.with_name(f".{uuid4().hex[:12]}.new")  # of this process alone: another may pull the same
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(name.note)


def memory_needed(size: int, per_token: int | None) -> int | None:
    """Bytes of memory to run it with the engine's default slots: the file, the context and some work space.

    None if it is not known how much a token of context takes.
    """
    return None if per_token is None else size + per_token * SLOTS * CTX + _WORK


def _read(name: HubName) -> Pulled | None:
    """The model, if its note and all its files are here."""
    try:
        note = json.loads(name.note.read_text(encoding="utf-8"))
        sizes = note["sizes"]
        there = [(root() / name.folder / part).stat().st_size for part in name.parts()]
    except (OSError, ValueError, KeyError, TypeError):  # no note, or not one of ours
        return None
    if there != sizes:
        return None
    context = note.get("context")
    licence = str(note.get("licence") or "licence not stated")
    return Pulled(name=name, size=sum(there), licence=licence, context=context if isinstance(context, int) else None)
