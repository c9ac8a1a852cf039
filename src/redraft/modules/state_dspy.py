"""What DSPy's `program.save("x.json")` wrote, for a program of ours: instructions, descriptions and demos.

Its modules bear their attribute paths; a ChainOfThought has a `predict` inside. Models and settings are left to the
program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redraft.config import say_once
from redraft.errors import ConfigError
from redraft.modules.predict import Predict
from redraft.modules.state import fields_of
from redraft.result import count

_UNSAID = re.compile(r"Given the fields? .*, produce the fields? .*\.", re.DOTALL)
"""The instructions that DSPy makes up where a program has none."""


def is_dspy(state: Mapping[str, Any]) -> bool:
    """True for DSPy's form."""
    return bool(_saved(state)) or "dependency_versions" in (state.get("metadata") or {})


def entries_of(state: Mapping[str, Any], inside: Mapping[str, Any], source: str) -> dict[str, Mapping[str, Any]]:
    """Its entries in our form, for the predictors of a program, by path."""
    entries: dict[str, Mapping[str, Any]] = {}
    for name, saved in _saved(state).items():
        path = name if name in inside else name.removesuffix("predict").removesuffix(".")
        module = inside.get(path)
        try:
            entries[path] = _entry(module, saved, path, source) if isinstance(module, Predict) else {}
        except (TypeError, AttributeError, KeyError) as error:
            raise ConfigError(f"{source}: {name} is damaged ({type(error).__name__}: {error})") from error
    rest: dict[str, Mapping[str, Any]] = {
        path: {} for path, module in inside.items() if not isinstance(module, Predict)
    }
    return {**rest, **entries}


def _saved(state: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    named = {"": state, **state}
    return {k: v for k, v in named.items() if isinstance(v, Mapping) and {"demos", "signature"} <= v.keys()}


def _entry(module: Predict, saved: Mapping[str, Any], path: str, source: str) -> dict[str, Any]:
    spec = module.signature
    fields = [*spec.inputs.values(), *spec.outputs.values()]
    said = [str(field.get("description", "")) for field in saved["signature"].get("fields", ())]
    unsaid = [f"${{{field.name}}}" for field in fields]
    if len(said) != len(fields) or any(s.startswith("${") and s != u for s, u in zip(said, unsaid, strict=True)):
        raise ConfigError(
            f"{source}: the fields of {path or 'the program'} are {', '.join(said)}, ours {', '.join(unsaid)}"
        )
    words = str(saved["signature"].get("instructions") or "")
    whole = [
        demo for demo in saved["demos"] if all(f.name in demo for f in fields if f.name in spec.outputs or f.required)
    ]
    if left := len(saved["demos"]) - len(whole):
        which = f"{count(left, 'demo')} of {path or 'the program'}"
        say_once(f"redraft: {source}: left out {which}, for want of some fields")
    return {
        "kind": "Predict",
        "signature": fields_of(spec),
        "instructions": spec.instructions if _UNSAID.fullmatch(words) else words,
        "descriptions": {f.name: s for f, s, u in zip(fields, said, unsaid, strict=True) if s != u},
        "settings": {},
        "demos": [{"inputs": _some(demo, spec.inputs), "outputs": _some(demo, spec.outputs)} for demo in whole],
    }


def _some(demo: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: demo[name] for name in names if name in demo}
