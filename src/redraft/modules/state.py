"""A program's state as JSON, and back: instructions, descriptions, demos, settings and models' names, by attribute path.

Never code (checks, rewards, tools' functions), never keys: of a model its name alone, of sampling no `extra`. What is
loaded is looked through as a whole before anything of the program changes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from redraft import __version__
from redraft.errors import ConfigError, UsageError
from redraft.modules.base import Module
from redraft.modules.demos import Demo, as_demos
from redraft.modules.predict import ChainOfThought, Predict
from redraft.notation import render
from redraft.protocols import LM
from redraft.signature import Field, SignatureSpec, as_signature

FORMAT = "redraft program"
VERSION = 1
_KINDS = {kind.__name__: kind for kind in (Predict, ChainOfThought)}
_LEAST = {"N": 1, "rounds": 0, "fail_count": 0, "max_iters": 1, "max_output_chars": 1}


def dump(program: Module) -> dict[str, Any]:
    """The state as JSON values."""
    modules = {path: _dumped(module) for path, module in _stateful(program)}
    named = {"format": FORMAT, "version": VERSION, "redraft": __version__, "program": type(program).__name__}
    return {**named, "modules": modules}


def load_into(program: Module, state: Mapping[str, Any], *, source: str = "the state") -> None:
    """Give the program a state that `dump` made, or DSPy's `save`. Raises `ConfigError` that names every difference between
    the two; the program then is as it was.
    """
    inside = dict(_stateful(program))
    entries = _entries(state, inside, source)
    faults = [f"{_at(path)}: not in {source}" for path in inside if path not in entries]
    faults += [f"{_at(path)}: not in the program" for path in entries if path not in inside]
    puts: list[Callable[[], None]] = []
    for path, module in inside.items():
        if path in entries:
            try:
                puts += _puts(module, entries[path])
            except UsageError as error:
                faults.append(f"{_at(path)}: {error}")
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                faults.append(f"{_at(path)}: damaged ({type(error).__name__}: {error})")
    if faults:
        listed = "".join(f"\n- {fault}" for fault in faults)
        raise ConfigError(f"{source} does not fit {type(program).__name__}, which was left as it is:{listed}")
    for put in puts:
        put()


def save(program: Module, path: str | os.PathLike[str]) -> None:
    """Write the state to a file, which is whole at any moment: the old one or the new one. A link stays one."""
    file = Path(path)
    state = dump(program)
    try:
        whole = f"{json.dumps(state, ensure_ascii=False, indent=2, allow_nan=False)}\n".encode()
    except UnicodeEncodeError:  # half an emoji
        whole = f"{json.dumps(state, indent=2)}\n".encode()
    except ValueError as error:
        raise ConfigError(f"{file} was not written: a setting is no JSON ({error})") from error
    part = None
    try:
        target = file.resolve()
        if target.exists() and not target.is_file():
            raise ValueError("it is no file")
        part = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
        with part.open("xb") as out:
            if target.exists():  # demos are data: who may not read the old file may not read the new one
                shutil.copymode(target, part)
            out.write(whole)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    except (OSError, ValueError, RuntimeError) as error:  # no name for a file, or links in a circle
        raise ConfigError(f"{file} cannot be written: {error}") from error
    finally:
        if part is not None:
            with suppress(OSError):  # too long a name is one for this, too
                part.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The state in a file. Raises `ConfigError`."""
    file = Path(path)
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read as a saved program: {error}") from error
    if not isinstance(state, dict):
        raise ConfigError(f"{file} holds no saved program: it is no JSON object")
    return state


def load(path: str | os.PathLike[str], *, types: Mapping[str, Any] | None = None) -> Predict:
    """The Predict or ChainOfThought that `save` wrote to this file. `types` are your own classes in its signature, by name.

    Other programs are code, of which a file holds the state alone: `program = MyProgram(); program.load(path)`.
    """
    state = read(path)
    entries = _entries(state, {}, str(path))
    entry = entries.get("") or {}
    kind = _KINDS.get(str(entry.get("kind")))
    if len(entries) != 1 or kind is None or "signature" not in entry:
        what = state.get("program", "a program")
        raise ConfigError(
            f"{path} holds the state of {what}, which is code and in no file: make the program as before, then "
            "program.load(path). redraft.load is for a Predict or a ChainOfThought alone"
        )
    words, defaults = entry.get("instructions"), entry.get("defaults", {})
    if not isinstance(words, str) or not isinstance(defaults, Mapping):
        raise ConfigError(f"{path} is damaged: its instructions are no text, or its defaults no JSON object")
    spec = as_signature(entry["signature"], words, types=types)
    spec = SignatureSpec(
        [field._replace(default=defaults.get(field.name, ...)) for field in spec.inputs.values()],
        spec.outputs.values(),
        instructions=spec.instructions,
    )
    program = kind(spec.without_output("reasoning") if kind is ChainOfThought else spec)
    load_into(program, state, source=str(path))
    return program


def _stateful(program: Module) -> Iterator[tuple[str, Any]]:
    """The modules that have a state, by path; not those that judge or advise by redraft's own words."""
    inside = [] if program.alone else list(program.named_modules())
    for path, module in [("", program), *inside]:
        if getattr(type(module), "_saved", ()) and getattr(module, "role", "author") == "author":
            yield path, module


def _at(path: str) -> str:
    return path or "the program itself"


# One module's state


def _dumped(module: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": type(module).__name__}
    if isinstance(spec := getattr(module, "signature", None), SignatureSpec):
        fields = [*spec.inputs.values(), *spec.outputs.values()]
        entry |= {
            "signature": fields_of(spec),
            "instructions": spec.instructions,
            "descriptions": {field.name: field.desc for field in fields if field.desc},
            "defaults": {f.name: f.default for f in spec.inputs.values() if not f.required and _is_json(f.default)},
        }
    if (lm := getattr(module, "lm", None)) is not None:
        entry |= {"lm": lm} if isinstance(lm, str) else {"model": lm.name}
    entry["settings"] = {name: _setting(getattr(module, name)) for name in module._saved if hasattr(module, name)}
    if isinstance(module, Predict):
        entry["demos"] = [_demo(module.signature, demo) for demo in module.demos]
    return entry


def fields_of(spec: SignatureSpec) -> str:
    """The fields as a signature string, without defaults, which are no part of what a demo has to fit."""
    sides = [[field._replace(default=...) for field in side.values()] for side in (spec.inputs, spec.outputs)]
    return " -> ".join(map(render, sides))


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _setting(value: Any) -> Any:
    """A setting as JSON. `extra` is what a provider is sent besides, keys perhaps."""
    if isinstance(value, Mapping):
        return {name: json.loads(json.dumps(item, default=str)) for name, item in value.items() if name != "extra"}
    return value


def _demo(spec: SignatureSpec, demo: Demo) -> dict[str, Any]:
    shown = {
        "inputs": {name: deepcopy(demo[name]) for name in spec.inputs},
        "outputs": {name: deepcopy(demo[name]) for name in spec.outputs},
    }
    return {**shown, "came_from": demo.came_from} if demo.came_from else shown


def _puts(module: Any, entry: Mapping[str, Any]) -> list[Callable[[], None]]:
    """What gives the module this state, when all of it is known to fit. Raises `UsageError`."""
    new: dict[str, Any] = dict(entry.get("settings", {}))
    if unknown := [name for name in new if name not in module._saved or not hasattr(module, name)]:
        raise ConfigError(f"{entry.get('kind')} had {', '.join(unknown)}, which {type(module).__name__} has not")
    if isinstance(spec := getattr(module, "signature", None), SignatureSpec):
        new["signature"] = _described(spec, entry)
        if "sampling" in new:
            if "extra" in new["sampling"]:
                raise ConfigError(
                    "sampling holds extra, which is never saved: what a provider is sent besides is yours to set"
                )
            own = {name: module.sampling[name] for name in ("extra",) if name in module.sampling}
            new["sampling"] = {**new["sampling"], **own}  # a copy: the state is the caller's, and extra may hold a key
        if isinstance(entry.get("lm"), str) and not isinstance(module.lm, LM):
            new["lm"] = entry["lm"]
        new |= _checked(new)
    for name, said in (("system", new.get("system") or ""), ("instructions", entry.get("instructions", ""))):
        if not isinstance(said, str):
            raise ConfigError(f"{name}={said!r:.80}: a text is wanted")
    for name, least in _LEAST.items():
        if name in new and (type(new[name]) is not int or new[name] < least):
            raise ConfigError(f"{name}={new[name]!r}: a whole number, {least} or more, is wanted")
    if not isinstance(new.get("threshold"), int | float | None) or not math.isfinite(new.get("threshold") or 0):
        raise ConfigError(f"threshold={new['threshold']!r}: a finite number or null is wanted")
    puts: list[Callable[[], None]] = [partial(setattr, module, name, value) for name, value in new.items()]
    if isinstance(module, Predict):
        given = [
            Demo({**demo["inputs"], **demo["outputs"]}, came_from=demo.get("came_from", ""))
            for demo in entry.get("demos", ())
        ]
        puts.append(partial(setattr, module, "demos", as_demos(new["signature"], given)))
    return puts


def _described(spec: SignatureSpec, entry: Mapping[str, Any]) -> SignatureSpec:
    """The program's signature with the file's words. Raises `ConfigError` where its fields are others."""
    here, there = fields_of(spec), entry.get("signature")
    if here != there:
        raise ConfigError(f"its signature is {here!r}, the saved one {there!r}")
    descs: Mapping[str, str] = entry["descriptions"]

    def described(side: Mapping[str, Field]) -> list[Field]:
        return [field._replace(desc=str(descs.get(name, ""))) for name, field in side.items()]

    name = spec.name if spec.name != str(spec) else ""
    return SignatureSpec(
        described(spec.inputs), described(spec.outputs), instructions=str(entry["instructions"]), name=name
    )


def _checked(new: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a Predict has, too, as it takes them. Raises `InputError` as it does."""
    given = {name: new[name] for name in ("system", "temperature", "max_tokens", "reasks") if name in new}
    sampling = {**new.get("sampling", {})}
    made = Predict(new["signature"], lm=new.get("lm"), **given, **sampling)
    made.sampling |= {name: tuple(value) for name, value in made.sampling.items() if isinstance(value, list)}
    return {
        **{name: getattr(made, name) for name in given},
        **({"sampling": made.sampling} if "sampling" in new else {}),
    }


# What a file says


def _entries(state: Mapping[str, Any], inside: Mapping[str, Any], source: str) -> dict[str, Mapping[str, Any]]:
    """State by path. Raises `ConfigError` for what is no state of ours, nor DSPy's."""
    if not isinstance(state, Mapping):
        raise ConfigError(f"{source} is no saved program: it is {state!r:.40}, and no mapping")
    if state.get("format") != FORMAT:
        from redraft.modules.state_dspy import entries_of, is_dspy

        if is_dspy(state):
            return entries_of(state, inside, source)
        raise ConfigError(f'{source} is no saved program: it lacks "format": {FORMAT!r}')
    version = state.get("version")
    if type(version) is not int or version > VERSION:
        raise ConfigError(
            f"{source} has version {version!r} of the format, written by redraft {state.get('redraft', '?')}; this is redraft "
            f"{__version__}, which reads up to {VERSION}: update redraft"
        )
    modules = state.get("modules")
    if not isinstance(modules, Mapping) or not all(isinstance(entry, Mapping) for entry in modules.values()):
        raise ConfigError(f"{source} is damaged: its modules are no JSON object of objects")
    return dict(modules)
