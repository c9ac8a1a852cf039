"""Tools: functions that a model may call. Their schema comes from type hints through pydantic, which also reads the
arguments; what is wrong with a call is told to the model, never raised.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from redraft.coerce import loosen, shorten
from redraft.errors import InputError, ParseError
from redraft.modules.base import Module
from redraft.registry import wrapped
from redraft.schemas import faults, validator
from redraft.signature import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_EXTRA = inspect.Parameter.VAR_KEYWORD
_ANYTHING = (_EXTRA, inspect.Parameter.VAR_POSITIONAL)
_SHOWN = 3  # faults named in an observation: more only confuse


class _Argument(NamedTuple):
    """One parameter of a tool."""

    name: str
    type: Any
    kind: Any = inspect.Parameter.KEYWORD_ONLY
    default: Any = inspect.Parameter.empty
    desc: str = ""


class Tool:
    """A function that a model may call: `Tool(fn, name=, description=, parameters=)`, or just the function.

    `fn` is a `def` (run in a worker thread), an `async def`, a method, a partial, any callable, a Module or strategy, or a
    tool of DSPy, LangChain or pydantic-ai. Name and description are the function's own (its docstring, as it is), the parameters' JSON schema comes from its type hints;
    `Annotated[str, Field(description="...")]` describes one. With a JSON schema as `parameters` the arguments are held
    to that, and passed by name. `strict` goes into the wire form as it is. Raises `InputError` for what cannot be
    described to a model.
    """

    def __init__(
        self,
        fn: Any,
        *,
        name: str = "",
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
    ) -> None:
        if (inner := _in_their_tool(fn)) is not None:
            told = (getattr(fn, key, None) for key in ("desc", "description"))
            description = description or next((text for text in told if isinstance(text, str)), "")
            fn, name = inner, name or fn.name
        name = _named(fn, name)
        fn = wrapped(fn)
        if not callable(fn) and not hasattr(fn, "acall"):
            raise InputError(f"{fn!r} is no tool: give a function, or Tool(fn, name=..., description=...)")
        self.fn = fn
        self.name = name
        self.description = description or _described(fn)
        self.strict = strict
        self.parameters: Mapping[str, Any]
        """The JSON schema of its arguments."""
        if parameters is None:
            self._arguments = _arguments_of(fn, self.name)
            self._model, self.parameters = _model(self.name, self._arguments)
        else:
            self._arguments = []
            self._held = validator(parameters, f"the parameters of the tool {self.name!r}")
            self.parameters = parameters

    @property
    def wire(self) -> dict[str, Any]:
        """The definition as a request carries it."""
        function: dict[str, Any] = {"name": self.name, "description": self.description, "parameters": self.parameters}
        if self.strict is not None:
            function["strict"] = self.strict
        return {"type": "function", "function": function}

    def read(self, arguments: Any) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as a model gave them, read leniently, by place and by name. Raises `ParseError` that says what is wrong."""
        if not isinstance(arguments, Mapping):
            names = list(self.parameters.get("properties", ()))
            if len(names) != 1 or arguments is None:
                raise ParseError(f"the arguments must be a JSON object, got {shorten(arguments)}{self._wanted()}")
            arguments = {names[0]: arguments}
        if not hasattr(self, "_held"):
            return self._placed(self._validated(arguments))
        if wrong := faults(self._held, arguments):
            raise ParseError(_told([f"{e.json_path}: {e.message}" for e in wrong]) + self._wanted())
        return [], dict(arguments)

    def _wanted(self) -> str:
        needed = self.parameters.get("required", ())
        names = [name + (" (required)" if name in needed else "") for name in self.parameters.get("properties", ())]
        return f". {self.name} takes {', '.join(names) or 'no arguments'}"

    def _validated(self, arguments: Mapping[str, Any]) -> BaseModel:
        from pydantic import ValidationError

        try:
            return self._model.model_validate(dict(arguments))
        except ValidationError:
            types = {a.name: a.type for a in self._arguments}
            bent = {k: loosen(types[k], v) if k in types else v for k, v in arguments.items()}
        try:
            return self._model.model_validate(bent)
        except ValidationError as error:
            known = list(self.parameters.get("properties", ()))
            wrong = []
            for fault in error.errors(include_url=False, include_context=False, include_input=False):
                place = ".".join(map(str, fault["loc"]))
                unknown = fault["type"] == "extra_forbidden"
                said = f"unknown argument{did_you_mean(place, known)}" if unknown else fault["msg"]
                wrong.append(f"{place}: {said}")
            raise ParseError(_told(wrong) + self._wanted()) from None

    def _placed(self, model: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        """Only what was given: the function's own defaults hold for the rest."""
        placed: list[Any] = []
        named: dict[str, Any] = dict(model.model_extra or {})
        behind = any(
            a.kind is inspect.Parameter.VAR_POSITIONAL and f"p{i}" in model.model_fields_set
            for i, a in enumerate(self._arguments)
        )
        for i, argument in enumerate(self._arguments):
            value, given = getattr(model, f"p{i}", None), f"p{i}" in model.model_fields_set
            if argument.kind is inspect.Parameter.VAR_POSITIONAL:
                placed += value or () if given else ()
            elif argument.kind is inspect.Parameter.POSITIONAL_ONLY or (
                behind and argument.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            ):
                placed.append(value if given else argument.default)
            elif given and argument.kind is not _EXTRA:
                named[argument.name] = value
        return placed, named

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def as_tools(things: Iterable[Any]) -> dict[str, Tool]:
    """Tools by name. Raises `InputError` for what is none, and for two of one name."""
    tools: dict[str, Tool] = {}
    for thing in [things] if callable(things) else things:
        if isinstance(thing, Mapping):
            raise InputError(
                "a tool's definition says what to call it, not what it does: give the function with it, as in "
                'Tool(fn, **definition["function"])'
            )
        tool = thing if isinstance(thing, Tool) else Tool(thing)
        if tool.name in tools:
            raise InputError(f"two tools are called {tool.name!r}: rename one with Tool(fn, name=...)")
        tools[tool.name] = tool
    return tools


def wire_tools(things: Iterable[Any]) -> tuple[Mapping[str, Any], ...]:
    """Tools in the form that a request carries: definitions as they are, functions and `Tool`s by their definition."""
    listed = [things] if isinstance(things, Mapping) or callable(things) else things
    return tuple(t if isinstance(t, Mapping) else (t if isinstance(t, Tool) else Tool(t)).wire for t in listed)


def _told(wrong: list[str]) -> str:
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(wrong[:_SHOWN]) + more


# from a function


def _named(fn: Any, name: str) -> str:
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    found = name or getattr(inner, "__name__", "") or type(inner).__name__
    if found == "<lambda>":
        raise InputError("a lambda has no name that a model could call: give one, Tool(fn, name=..., description=...)")
    if name and not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a tool: use up to 64 letters, digits, _ and -")
    return re.sub(r"[^a-zA-Z0-9_-]", "_", found)[:64]


def _described(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    entry = _entry(fn)
    if (signature := getattr(entry, "signature", None)) is not None and hasattr(entry, "acall"):
        return str(signature.instructions or signature)
    if isinstance(fn, Module) and inspect.ismethod(entry):
        return inspect.cleandoc(entry.__doc__ or type(entry.__self__).__doc__ or "")
    if inspect.isroutine(entry) or inspect.isclass(entry):
        return inspect.getdoc(entry) or ""
    return inspect.cleandoc(type(fn).__call__.__doc__ or type(fn).__doc__ or "")


_THEIRS = ("dspy", "langchain_core", "pydantic_ai")


def _in_their_tool(fn: Any) -> Any:
    """The function in a tool of another framework."""
    if not any(base.__module__.partition(".")[0] in _THEIRS for base in type(fn).__mro__) or not hasattr(fn, "name"):
        return None
    return next((f for key in ("coroutine", "func", "function") if callable(f := getattr(fn, key, None))), None)


def _entry(fn: Any) -> Any:
    """What says how it is called: a module by its signature or its `forward`, a strategy by what it improves."""
    while isinstance(fn, Module) and getattr(fn, "signature", None) is None:
        kind = type(fn)
        if kind.aforward is not Module.aforward:
            return fn.aforward
        if kind.forward is not Module.forward or not hasattr(fn, "module"):
            return fn.forward
        fn = fn.module
    return fn


def _arguments_of(tool: Any, name: str) -> list[_Argument]:
    fn = _entry(tool)
    signature = getattr(fn, "signature", None)
    if signature is not None and hasattr(fn, "acall"):
        kept = inspect.Parameter.empty
        fields = signature.inputs.values()
        return [_Argument(f.name, f.type, default=kept if f.required else f.default, desc=f.desc) for f in fields]
    bound: set[str] = set()
    inner = fn
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = inner.func
    try:
        parameters = inspect.signature(fn).parameters.values()
        if isinstance(tool, Module) and parameters and all(p.kind in _ANYTHING for p in parameters):
            raise ValueError("its inputs have no names")
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the tool {name!r} does not say what it takes: give its JSON schema, Tool(fn, parameters=...)"
        ) from error
    hints = _hints(inner, name)
    return [
        _Argument(p.name, hints.get(p.name, _own_hint(p)), p.kind, p.default) for p in parameters if p.name not in bound
    ]


def _own_hint(parameter: inspect.Parameter) -> Any:
    hint = parameter.annotation
    return Any if hint is inspect.Parameter.empty or isinstance(hint, str) else hint


def _hints(fn: Any, name: str) -> dict[str, Any]:
    target = fn if inspect.isroutine(fn) else fn.__init__ if inspect.isclass(fn) else type(fn).__call__
    target = inspect.unwrap(target)
    try:
        try:
            return get_type_hints(target, include_extras=True)
        except NameError:  # a tool made inside a function may use that function's types in its annotations
            return get_type_hints(target, localns=_names_around(), include_extras=True)
    except (NameError, AttributeError, SyntaxError) as error:
        raise InputError(
            f"a type of the tool {name!r} cannot be read: {error}; define or import it above the function"
        ) from error
    except TypeError:  # compiled functions have no hints
        return {}


def _names_around() -> dict[str, Any]:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("redraft."):
        frame = frame.f_back
    return dict(frame.f_locals)


def _model(name: str, arguments: list[_Argument]) -> tuple[type[BaseModel], dict[str, Any]]:
    """A pydantic model of the arguments, and its schema. Its fields have names of their own: a parameter may be called `schema` or `_x`."""
    from pydantic import ConfigDict, Field, PydanticUserError, create_model

    fields: dict[str, Any] = {}
    extra = any(a.kind is _EXTRA for a in arguments)
    for i, argument in enumerate(arguments):
        options: dict[str, Any] = {"alias": argument.name}
        if argument.desc:
            options["description"] = argument.desc
        if argument.kind is inspect.Parameter.VAR_POSITIONAL:
            fields[f"p{i}"] = (list[argument.type], Field(default=[], **options))  # type: ignore[name-defined]
        elif argument.default is not inspect.Parameter.empty:
            fields[f"p{i}"] = (argument.type, Field(default=argument.default, **options))
        elif argument.kind is not _EXTRA:
            fields[f"p{i}"] = (argument.type, Field(**options))
    config = ConfigDict(extra="allow" if extra else "forbid", arbitrary_types_allowed=True)
    try:
        model: type[BaseModel] = create_model(name, __config__=config, **fields)
        return model, _schema(model)
    except (PydanticUserError, TypeError) as error:
        raise InputError(
            f"the tool {name!r} takes what has no JSON schema: {str(error).splitlines()[0]} Hide it from the model with "
            "functools.partial, or give parameters="
        ) from error


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Without titles, which say nothing, and silent about defaults that have no JSON form."""
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own attribute

        def field_title_should_be_set(self, schema: Any) -> bool:
            del schema
            return False

    schema = model.model_json_schema(schema_generator=Quiet)
    schema.pop("title", None)
    return {"type": "object", "properties": {}, **schema}
