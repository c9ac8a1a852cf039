"""Says what is missing, or does not fit together, before the first request fails of it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

from redraft.errors import ConfigError
from redraft.lm.native.table import INSTALL, Door, installed

_AI = "pydantic-ai-slim"


def check(door: Door) -> None:
    """Raise `ConfigError` if pydantic-ai or the provider's library is missing or of a version that does not fit."""
    for module, package in (("pydantic_ai", _AI), (door.module, door.package)):
        if not installed(module):
            raise ConfigError(f"{door.name}/... needs the package {package}: {_how(door)}")
    if (wanted := _wanted(door.package)) is None:
        return
    try:
        found = version(door.package)
    except PackageNotFoundError:  # importable all the same: vendored, or on the path
        return
    if not fits(found, wanted):
        raise ConfigError(
            f"{door.name}/... cannot be used: {_AI} {version(_AI)} needs {door.package}{wanted}, and {door.package} "
            f"{found} is installed (another package may hold it there: `pip check` names it); {_how(door)}, or "
            f"pip install '{door.package}{wanted}', in an environment of its own if need be"
        )


def explain(door: Door, error: ImportError) -> ConfigError:
    """For libraries that are there and cannot be imported together."""
    found = ", ".join(f"{package} {_version(package)}" for package in (_AI, door.package, "openai", "httpx2"))
    return ConfigError(f"{door.name}/... cannot be used with what is installed ({found}): {error}; {_how(door)}")


def _how(door: Door) -> str:
    return INSTALL if door.name not in EXTRA else f"{INSTALL} {door.package}"


EXTRA = ("cohere", "xai")
"""Doors whose library is not in the extra: few use them, and they bring much along."""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(none)"


def _wanted(package: str) -> str | None:
    """The versions that pydantic-ai takes of a package, as its metadata says: ">=1.15.0", "<3,>=2.30.0"."""
    for line in requires(_AI) or ():
        name, _, rest = line.partition(";")
        if (
            (match := re.fullmatch(r"([\w.-]+)\s*(.*)", name.strip()))
            and match[1].lower() == package
            and "extra" in rest
        ):
            return match[2].replace(" ", "") or None
    return None


def fits(found: str, wanted: str) -> bool:
    """True if a version keeps bounds like ">=1.15.0" and "<3"; other signs are left to pip."""
    have = _numbers(found)
    for bound in wanted.split(","):
        if bound.startswith(">=") and have < _numbers(bound[2:]):
            return False
        if bound.startswith("<") and not bound.startswith("<=") and have >= _numbers(bound[1:]):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """The release's numbers without trailing zeros, so that 3 and 3.0.0 are one."""
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
