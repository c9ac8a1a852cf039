"""Checks from a file: `--checks FILE`, `from_file(path)`.

- Python (`.py`): a list `checks = [sentences(3), ...]`, or functions with `@check`.
- TOML (`.toml`): texts as on the command line, or tables where options are needed:

      checks = [
          "sentences:3",
          { check = "contains", args = ["La Maison"], field = "review", hard = false },
          { any_of = ["json_valid", "one_of:yes|no"] },
          { weighted = [{ check = "words:20-40", weight = 2 }, "no_commas"], threshold = 0.6 },
      ]

      [[check]]
      check = "words"
      low = 20
      high = 40

  `args` are the check's arguments in order; every other key is one by its name, the options `field`, `hard` and `tell`
  included. `all_of`, `any_of`, `not` and `weighted` hold further checks.
- promptfoo's asserts (`.yaml`, `.yml`, `.json`): a list of them, or a config that has them under `assert`, `defaultTest`
  or its one test. Where a `threshold` stands beside them, their weighted mean must reach it; otherwise all must pass.

Files that a check names are looked for beside the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redraft import registry
from redraft.checks import aliases
from redraft.checks.base import Check, FunctionCheck, check_options
from redraft.checks.compose import all_of, any_of, not_, weighted
from redraft.checks.parse import parse
from redraft.checks.userfile import names_of
from redraft.errors import ConfigError, UsageError


def from_file(path: str | Path) -> list[Check]:
    """The checks that a Python, TOML, YAML or JSON file lists; see the module. A Python file is run."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no check file {path}; give a Python, TOML, YAML or JSON file with checks")
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise ConfigError(f"{path}: a check file ends in {', '.join(_READERS)}")
    return read(path)


def from_item(item: Any, place: str = "checks", folder: Path | str = "") -> Check:
    """One check as a file holds it: a text as on the command line, a table as in TOML, or a promptfoo assert (it has a
    `type`). Raises `ConfigError`, which begins with `place`. Files are looked for in `folder`.
    """
    path = Path(folder) / "checks"
    if isinstance(item, Mapping) and isinstance(item.get("type"), str):
        with _at(place):
            return _assert_set(item, path, place) if item["type"] == "assert-set" else _assert(item, path)
    return _toml_check(item, path, place)


def _loaded(path: Path, form: str, load: Callable[[str], Any], fails: type[Exception] = ValueError) -> Any:
    """What a file holds. Editors on Windows put a mark before its text."""
    try:
        return load(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise ConfigError(f"{path} is no {form} for checks: it nests too deep") from error
    except (OSError, ValueError, fails) as error:
        raise ConfigError(f"{path} is no {form}: {' '.join(str(error).split())}") from error


def _from_python(path: Path) -> list[Check]:
    names = names_of(path)
    found = names.get("checks")
    if not isinstance(found, list | tuple):
        lists = [value for value in names.values() if isinstance(value, list | tuple)]
        found = [
            c for value in (*names.values(), *(c for items in lists for c in items)) if isinstance(c := value, Check)
        ]
    if not found or not all(callable(c) or isinstance(c, Check) for c in found):
        raise ConfigError(
            f"{path} defines no checks; write `checks = [sentences(3), ...]` or decorate functions with @check"
        )
    return [c if isinstance(c, Check) else FunctionCheck(c) for c in found]


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Whatever is wrong with what was given is wrong at that place of the file."""
    try:
        yield
    except ConfigError:
        raise
    except UsageError as error:
        raise ConfigError(f"{place}: {error}") from error
    except TypeError as error:  # an argument that the check does not take
        raise ConfigError(f"{place}: {re.sub(r'^.*?[)] ', '', str(error))}") from error


# TOML


_GROUPS = {"all_of": all_of, "any_of": any_of, "not": not_, "weighted": weighted}


def _from_toml(path: Path) -> list[Check]:
    import tomllib

    data = _loaded(path, "TOML", tomllib.loads)
    if unknown := sorted(set(data) - {"checks", "check"}):
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}; write `checks = [...]` or [[check]] tables")
    found = []
    for key in ("checks", "check"):
        items = data.get(key, [])
        if not isinstance(items, list):
            raise ConfigError(f"{path}: {key} is no list; write `checks = [...]` or [[check]] tables")
        found += [_toml_check(item, path, f"{path}, {key}[{i}]") for i, item in enumerate(items)]
    if not found:
        raise ConfigError(f'{path} holds no checks; write e.g. checks = ["sentences:3"]')
    return found


def _toml_check(item: Any, path: Path, place: str) -> Check:
    with _at(place):
        if isinstance(item, str):
            return parse(item, folder=path.parent)
        if not isinstance(item, Mapping):
            raise UsageError(f'{item!r} is no check; write "NAME:ARGS" or {{ check = "NAME", args = [...] }}')
        kinds = [key for key in ("check", *_GROUPS) if key in item]
        if len(kinds) != 1:
            raise UsageError(f"a table names one of {', '.join(('check', *_GROUPS))}, this one {kinds or 'none'}")
        options = {key: value for key, value in item.items() if key not in (kinds[0], "args")}
        check_options(options)
        if kinds[0] != "check":
            return _toml_group(kinds[0], item, path, place, options)
        name, args = item["check"], item.get("args")
        if not isinstance(name, str) or not (args is None or isinstance(args, list)):
            raise UsageError("check is a name, and args a list")
        if args is None and (":" in name or len(options.keys() - {"field", "hard", "tell"}) == 0):
            return parse(name, folder=path.parent, **options)
        made: Check = registry.find("checks", name)(*(args or ()), **options)
        return made


def _toml_group(kind: str, item: Mapping[str, Any], path: Path, place: str, options: dict[str, Any]) -> Check:
    members = item[kind] if isinstance(item[kind], list) else [item[kind]]
    weights = [m.get("weight", 1) if isinstance(m, Mapping) else 1 for m in members]
    if kind == "weighted":
        members = [{k: v for k, v in m.items() if k != "weight"} if isinstance(m, Mapping) else m for m in members]
    made = [_toml_check(member, path, f"{place}.{kind}[{i}]") for i, member in enumerate(members)]
    if kind == "not" and len(made) != 1:
        raise UsageError(f"not takes one check, this one has {len(made)}; write any_of or all_of inside it")
    group: Any = _GROUPS[kind]
    parts = zip(made, weights, strict=True) if kind == "weighted" else made
    check: Check = group(*parts, **options)
    return check


# promptfoo


_ASSERT_KEYS = ("type", "value", "threshold", "weight", "metric", "provider")
_SET_KEYS = ("type", "assert", "threshold", "weight", "metric")
_NO_LIST = "is no list; write {type, value} one after another"
_TEMPLATE = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


def _from_json(path: Path) -> list[Check]:
    return _from_promptfoo(path, _loaded(path, "JSON", json.loads))


def _from_yaml(path: Path) -> list[Check]:
    from importlib import import_module

    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise ConfigError(f"{path}: reading YAML needs PyYAML; pip install 'redraft[yaml]'") from error
    return _from_promptfoo(path, _loaded(path, "YAML", yaml.safe_load, yaml.YAMLError))


def _from_promptfoo(path: Path, data: Any) -> list[Check]:
    found: list[Check] = []
    for place, holder, values in _holders(path, data):
        try:
            asserts = _filled(holder["assert"], values, place)
        except RecursionError as error:
            raise ConfigError(f"{place}: assert holds itself, or nests too deep") from error
        pairs = _asserted(asserts, path, place)
        threshold = holder.get("threshold")
        if threshold is None:
            found += [check for check, _ in pairs]
        elif pairs:
            with _at(place):
                found.append(weighted(*pairs, threshold=_share(threshold)))
    if not found:
        raise ConfigError(f"{path} holds no asserts; write a list of {{type, value}}, or a config with assert or tests")
    return found


def _holders(path: Path, data: Any) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """(place, what has an `assert`, the values of its {{variables}})."""
    if isinstance(data, list):
        data = {"assert": data}
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path} is neither a list of asserts nor a promptfoo config")
    default = data.get("defaultTest") or {}
    tests = data.get("tests") or []
    if not isinstance(default, Mapping) or not isinstance(tests, list):
        raise ConfigError(f"{path}: defaultTest and tests must be written out in this file")
    judged = [t for t in tests if isinstance(t, Mapping) and t.get("assert")]
    alike = all((t["assert"], t.get("vars")) == (judged[0]["assert"], judged[0].get("vars")) for t in judged)
    if not alike:
        raise ConfigError(
            f"{path} has {len(judged)} tests with asserts of their own; give a file with those of one test"
        )
    sources = {f"{path}, defaultTest": default, **({f"{path}, tests": judged[0]} if judged else {})}
    values: dict[str, Any] = {}
    both: list[Any] = []
    for place, source in sources.items():
        values |= _typed(source.get("vars") or {}, Mapping, f"{place}: vars is no table; write name: value")
        both += _typed(source.get("assert") or [], list, f"{place}: assert {_NO_LIST}")
    yield from ((str(path), data, values) for _ in (1,) if data.get("assert"))
    # A test's threshold holds for its own asserts and the default ones together.
    if both:
        threshold = next((t["threshold"] for t in reversed(sources.values()) if "threshold" in t), None)
        yield place, {"assert": both, "threshold": threshold}, values


def _typed(value: Any, kind: type, why: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(why)
    return value


def _asserted(asserts: Any, path: Path, place: str) -> list[tuple[Check, float]]:
    """Checks with their weights. What has weight 0 cannot fail a promptfoo test, and is left out."""
    if not isinstance(asserts, list):
        raise ConfigError(f"{place}: assert {_NO_LIST}")
    pairs = []
    for number, item in enumerate(asserts):
        here = f"{place}, assert[{number}]"
        with _at(here):
            if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
                raise UsageError("an assert is a table with a type, e.g. {type: icontains, value: fox}")
            weight = _share(item.get("weight", 1), most=float("inf"))
            check = _assert_set(item, path, here) if item["type"] == "assert-set" else _assert(item, path)
            check.name = str(item.get("metric") or check.name)
            pairs += [(check, weight)] if weight else []
    return pairs


def _assert(item: Mapping[str, Any], path: Path) -> Check:
    _known_keys(item, _ASSERT_KEYS)
    kind, provider = item["type"], item.get("provider")
    if provider is not None and not isinstance(provider, str):
        raise UsageError("a provider is named by one text here, e.g. openai:gpt-5-mini")
    base = kind.removeprefix("not-")
    check = aliases.made(
        base,
        item.get("value"),
        folder=path.parent,
        threshold=None if item.get("threshold") is None else _share(item["threshold"]),
        lm=provider,
    )
    return check if base == kind else not_(check)


def _assert_set(item: Mapping[str, Any], path: Path, place: str) -> Check:
    _known_keys(item, _SET_KEYS)
    pairs = _asserted(item.get("assert"), path, place)
    if item.get("threshold") is None:
        return all_of(*(check for check, _ in pairs))
    return weighted(*pairs, threshold=_share(item["threshold"]))


def _known_keys(item: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(map(str, item)) - set(known)):
        raise UsageError(f"unknown key {unknown[0]!r} in an assert; known are: {', '.join(known)}")


def _share(value: Any, most: float = 1.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise UsageError(f"{value!r} is no number from 0 to {most:g}")
    return float(value)


def _filled(value: Any, values: Mapping[str, Any], place: str) -> Any:
    """Asserts with their {{variables}} put in."""
    if isinstance(value, list):
        return [_filled(item, values, place) for item in value]
    if isinstance(value, Mapping):
        return {key: _filled(item, values, place) for key, item in value.items()}
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ConfigError(f"{place}: no value for {match[0]}; known are: {', '.join(values) or 'none'}")
        return str(values[match[1]])

    filled = _TEMPLATE.sub(put, value)
    if "{%" in value or (_TEMPLATE.sub("", value).find("{{") >= 0):
        raise ConfigError(f"{place}: only plain {{{{variables}}}} can be filled in, not {value!r:.60}")
    return filled


_READERS = {
    ".py": _from_python,
    ".toml": _from_toml,
    ".yaml": _from_yaml,
    ".yml": _from_yaml,
    ".json": _from_json,
}
