"""Signatures: what goes into a module and what comes out, by name, type and description.

    "question -> answer: int"                          one line; types default to str
    class Review(Signature):                           a class; the docstring is the task
        \"\"\"Write a short review.\"\"\"
        topic: str = InputField(desc="what is reviewed")
        review: str = OutputField()

Both become one frozen value, a `SignatureSpec`; `as_signature` takes every form. pydantic is imported on first use of
an output that is not a `str`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple, NoReturn, get_type_hints

from redraft.errors import InputError, SignatureError

_FORMS = """write one of
    "question -> answer: int"
    class Review(Signature):
        topic: str = InputField()
        review: str = OutputField()"""


class Field(NamedTuple):
    """One input or output. `default` is `...` where there is none."""

    name: str
    type: Any = str
    desc: str = ""
    default: Any = ...

    @property
    def required(self) -> bool:
        """True if a value must be given."""
        return self.default is ...


class _Marker(NamedTuple):
    """What `InputField` and `OutputField` leave in a class body until the class is read."""

    output: bool
    desc: str
    default: Any


def InputField(*, desc: str = "", default: Any = ...) -> Any:  # noqa: N802  # DSPy's name
    """Mark an attribute of a `Signature` class as an input; without a default it is required."""
    return _Marker(output=False, desc=desc, default=default)


def OutputField(*, desc: str = "") -> Any:  # noqa: N802  # DSPy's name
    """Mark an attribute of a `Signature` class as an output."""
    return _Marker(output=True, desc=desc, default=...)


class SignatureSpec:
    """A signature in its normal form: a value that does not change. Build one with `as_signature`.

    `plain` is True if there is one output and it is a `str`: then the text of a reply is that field.
    """

    __slots__ = ("_cache", "_hash", "_required", "inputs", "instructions", "name", "outputs", "plain")
    name: str
    """The class's name, or the signature as text."""
    instructions: str
    inputs: Mapping[str, Field]
    outputs: Mapping[str, Field]
    plain: bool
    _required: tuple[str, ...]
    _hash: int
    _cache: dict[str, Any]  # what is derived once: the schema, the type adapters, the wire's format text

    def __init__(
        self, inputs: Iterable[Field], outputs: Iterable[Field], *, instructions: str = "", name: str = ""
    ) -> None:
        ins, outs = tuple(inputs), tuple(outputs)
        _check_names(ins, outs)
        put = object.__setattr__
        put(self, "inputs", MappingProxyType({f.name: f for f in ins}))
        put(self, "outputs", MappingProxyType({f.name: f for f in outs}))
        put(self, "instructions", instructions)
        put(self, "plain", len(outs) == 1 and outs[0].type is str)
        put(self, "_required", tuple(f.name for f in ins if f.required))
        put(self, "_cache", {})
        put(self, "name", name or str(self))
        put(self, "_hash", hash((self.name, instructions, tuple(self.inputs), tuple(self.outputs))))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a signature does not change; with_{name}(...) and its kin return a new one")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SignatureSpec) and self._parts() == other._parts())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, self._parts())

    def __repr__(self) -> str:
        return f"<Signature {self.name}: {self}>" if self.name != str(self) else f"<Signature {self}>"

    def __str__(self) -> str:
        text: str | None = self._cache.get("text")
        if text is None:
            from redraft.notation import render

            text = f"{render(self.inputs.values())} -> {render(self.outputs.values())}"
            self._cache["text"] = text
        return text

    def _parts(self) -> tuple[Any, ...]:
        return (tuple(self.inputs.values()), tuple(self.outputs.values()), self.instructions, self.name)

    def bind(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs in order, with defaults filled in. Raises `InputError` for missing, unknown or all-empty ones."""
        bound: dict[str, Any] = {}
        missing = False
        for name, field in self.inputs.items():
            if name in inputs:
                bound[name] = inputs[name]
            elif field.default is ...:
                missing = True
            else:
                default = field.default
                # a caller who appends to a default list must not change the signature
                bound[name] = default.copy() if isinstance(default, list | dict | set) else default
        if missing or len(inputs) > len(bound) or not inputs.keys() <= bound.keys():
            _wrong_inputs(self, inputs)
        required = self._required
        if required and all(_is_blank(bound[n]) for n in required):
            names = " and ".join(map(repr, required))
            raise InputError(
                f"nothing to work on: {names} {'is' if len(required) == 1 else 'are all'} empty; pass text"
            )
        return bound

    def with_output(self, name: str, type: Any = str, desc: str = "", *, first: bool = True) -> SignatureSpec:
        """A new signature with one more output, in front of the others or after them."""
        new, old = (Field(name, type, desc),), tuple(self.outputs.values())
        return self._but(outputs=new + old if first else old + new)

    def with_input(self, name: str, type: Any = str, desc: str = "", default: Any = ...) -> SignatureSpec:
        """A new signature with one more input, after the others."""
        return self._but(inputs=(*self.inputs.values(), Field(name, type, desc, default)))

    def with_instructions(self, text: str) -> SignatureSpec:
        """A new signature with other instructions."""
        return self._but(instructions=text)

    def without_output(self, name: str) -> SignatureSpec:
        """A new signature that lacks one output; at least one must remain."""
        return self._but(outputs=tuple(f for f in self.outputs.values() if f.name != name))

    def _but(self, **changes: Any) -> SignatureSpec:
        inputs, outputs, instructions, name = self._parts()
        kept = "" if name == str(self) else name  # a name that is only the text follows the fields
        parts = {"inputs": inputs, "outputs": outputs, "instructions": instructions, "name": kept}
        return SignatureSpec(**{**parts, **changes})

    def _described(self, descriptions: Mapping[str, str]) -> SignatureSpec:
        known = [*self.inputs, *self.outputs]
        for name in descriptions:
            if name not in known:
                hint = did_you_mean(name, known)
                raise SignatureError(f"a description for {name!r}, but the fields are: {', '.join(known)}{hint}")
        described = [
            tuple(f._replace(desc=descriptions.get(f.name, f.desc)) for f in side.values())
            for side in (self.inputs, self.outputs)
        ]
        return self._but(inputs=described[0], outputs=described[1])

    def json_schema(self) -> dict[str, Any]:
        """The outputs as the JSON schema of one object, the same dict each time: do not change it.

        All fields are required and nothing else is allowed, inside nested objects too, so that strict modes take it.
        """
        found: dict[str, Any] | None = self._cache.get("schema")
        if found is None:
            from redraft.coerce import json_schema

            found = self._cache["schema"] = json_schema(self)
        return found

    def coerce(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs, read leniently from text or JSON values: "0.8" is a float, bulleted lines are a list.

        A value that does not fit its type, or a missing one, is a `ParseError` that names every such field: nothing is
        replaced by a default. Keys that are no output are left out.
        """
        from redraft.coerce import coerce

        return coerce(self, raw)


def _is_blank(value: Any) -> bool:
    """True for a text without a character that shows; `strip` would copy a long one."""
    return isinstance(value, str) and (not value or value.isspace())


def _rebuild(inputs: tuple[Field, ...], outputs: tuple[Field, ...], instructions: str, name: str) -> SignatureSpec:
    return SignatureSpec(inputs, outputs, instructions=instructions, name=name)


class Signature:
    """Subclass it to declare a signature. The class only declares; `as_signature` gives its value.

    It has no public attribute but `parse`, so that fields may be called `name`, `inputs` or `instructions`.
    """

    _spec: ClassVar[SignatureSpec]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # a class made inside a function may use that function's types in its annotations
        cls._spec = _read_class(cls, sys._getframe(1).f_locals)

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """`Signature("question -> answer", "instructions")` reads a string, as in DSPy; a subclass has no instances."""
        if cls is Signature and args and isinstance(args[0], str):
            return as_signature(*args, **options)
        raise SignatureError(
            f"{cls.__name__} declares fields and has no instances: pass the class itself, or use"
            ' Signature.parse("question -> answer")'
        )

    @staticmethod
    def parse(
        text: str,
        instructions: str = "",
        *,
        descriptions: Mapping[str, str] | None = None,
        types: Mapping[str, Any] | None = None,
    ) -> SignatureSpec:
        """Read a signature string. `types` maps names to your own classes; `descriptions` maps fields to a line each.

        Raises `SignatureError` that points at the place.
        """
        return as_signature(text, instructions, descriptions=descriptions, types=types)


def as_signature(
    spec: str | type[Signature] | SignatureSpec,
    instructions: str = "",
    *,
    descriptions: Mapping[str, str] | None = None,
    types: Mapping[str, Any] | None = None,
) -> SignatureSpec:
    """The normal form of a string, a `Signature` class or a value; instructions and descriptions replace its own."""
    if isinstance(spec, str):
        value = _from_text(spec) if types is None else _from_text_with(spec, types)
    elif isinstance(spec, SignatureSpec):
        value = spec
    elif isinstance(spec, type) and issubclass(spec, Signature) and spec is not Signature:
        value = spec._spec
    else:
        raise SignatureError(f"{spec!r} is no signature: {_FORMS}")
    if descriptions:
        value = value._described(descriptions)
    return value.with_instructions(instructions) if instructions else value


@lru_cache(maxsize=1024)
def _from_text(text: str) -> SignatureSpec:
    return _from_text_with(text, {})


def _from_text_with(text: str, types: Mapping[str, Any]) -> SignatureSpec:
    from redraft.notation import read

    inputs, outputs = read(text, types)
    return SignatureSpec((Field(*f) for f in inputs), (Field(*f) for f in outputs))


def _read_class(cls: type[Signature], namespace: Mapping[str, Any]) -> SignatureSpec:
    inputs: dict[str, Field] = {}
    outputs: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        if isinstance(inherited := base.__dict__.get("_spec"), SignatureSpec):
            inputs |= inherited.inputs
            outputs |= inherited.outputs
    marked = {name: value for name, value in cls.__dict__.items() if isinstance(value, _Marker)}
    hints = _hints(cls, marked, namespace)
    for name, marker in marked.items():
        inputs.pop(name, None)  # a subclass may turn an input into an output and back
        outputs.pop(name, None)
        side = outputs if marker.output else inputs
        side[name] = Field(name, hints.get(name, str), marker.desc, marker.default)
    for side, marker_name in ((inputs, "InputField"), (outputs, "OutputField")):
        if not side:
            raise SignatureError(f"{cls.__name__} has no {marker_name}: {_FORMS}")
    from inspect import cleandoc

    # not inspect.getdoc: that would fall back to the docstring of Signature itself
    return SignatureSpec(
        inputs.values(), outputs.values(), instructions=cleandoc(_own_doc(cls)).strip(), name=cls.__name__
    )


def _own_doc(cls: type) -> str:
    return next((c.__doc__ for c in cls.__mro__ if c.__doc__ and c is not Signature and c is not object), "")


def _hints(cls: type, marked: Mapping[str, _Marker], namespace: Mapping[str, Any]) -> dict[str, Any]:
    from inspect import get_annotations

    own = get_annotations(cls)
    for name in own.keys() - marked.keys():
        if not name.startswith("_") and "ClassVar" not in str(own[name]):
            raise SignatureError(f"{cls.__name__}.{name} must be = InputField(...) or = OutputField(...)")
    own = {name: own[name] for name in marked if name in own}
    module = getattr(sys.modules.get(cls.__module__), "__dict__", {})
    try:
        hints = get_type_hints(SimpleNamespace(__annotations__=own), dict(module), dict(namespace), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise SignatureError(
            f"an annotation of {cls.__name__} cannot be read: {error}; define or import the type above the class"
        ) from error
    for name, hint in hints.items():
        if isinstance(hint, _Marker):
            raise SignatureError(
                f"{cls.__name__}.{name}: the field hides the type of the same name; annotate it through its module,"
                " as in `date: datetime.date`"
            )
    return hints


def _check_names(inputs: tuple[Field, ...], outputs: tuple[Field, ...]) -> None:
    from keyword import iskeyword

    if not inputs or not outputs:
        raise SignatureError(f"a signature needs at least one {'output' if inputs else 'input'}: {_FORMS}")
    seen: dict[str, str] = {}
    for name in (f.name for f in inputs + outputs):
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            raise SignatureError(f"{name!r} cannot name a field: use letters, digits and _, as in `short_answer`")
        twin = seen.setdefault(name.casefold(), "")
        if twin == name:
            raise SignatureError(f"the field {name!r} is there twice; give each input and output its own name")
        if twin:
            raise SignatureError(
                f"the fields {twin!r} and {name!r} differ only in case: models mix them up; rename one"
            )
        seen[name.casefold()] = name


def _wrong_inputs(spec: SignatureSpec, inputs: Mapping[str, Any]) -> NoReturn:
    missing = [name for name in spec._required if name not in inputs]
    unknown = [name for name in inputs if name not in spec.inputs]
    parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
    if unknown:
        hints = (f"{name!r}{did_you_mean(name, list(spec.inputs))}" for name in unknown)
        parts.append(f"unknown {', '.join(hints)}")
    expected = ", ".join(f.name if f.required else f"{f.name} (optional)" for f in spec.inputs.values())
    raise InputError(f"inputs of {spec.name}: {'; '.join(parts)}. Expected: {expected}")


def did_you_mean(name: object, known: list[str]) -> str:
    """` (did you mean 'x'?)` where a known name is close, else nothing."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
