"""Signatures as text: reads `"context, question -> answer: str, score: float"` and writes types the same way.

Types are looked up in a fixed table and the caller's own mapping; nothing in the text is ever run.
"""

from __future__ import annotations

import ast
import types as pytypes
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from keyword import iskeyword
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

from redraft.errors import SignatureError

_EXAMPLE = 'Right: "context, question -> answer: str, score: float"'
_LONGEST = 20_000

_PLAIN: dict[str, Any] = {t.__name__: t for t in (str, int, float, bool, list, dict, tuple, set, frozenset)} | {
    "Any": Any,
    "None": None,
}
_LATE = {
    "date": "datetime.date",
    "datetime": "datetime.datetime",
    "time": "datetime.time",
    "timedelta": "datetime.timedelta",
    "Decimal": "decimal.Decimal",
    "UUID": "uuid.UUID",
}
_DOTTED = frozenset(_LATE.values())
_ALIAS = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "FrozenSet": "frozenset"}
_ARITY = {"list": 1, "set": 1, "frozenset": 1, "dict": 2}
_SPECIAL = ("Literal", "Optional", "Union")
_KNOWN = (
    "str, int, float, bool, list[...], dict[..., ...], tuple[...], set[...], Literal['a', 'b'], Optional[...], a | b, Any,"
    " date, datetime, time, timedelta, Decimal, UUID"
)


class Entry(NamedTuple):
    """One field as written; the same four as a `Field`."""

    name: str
    type: Any
    desc: str
    default: Any


def read(text: str, types: Mapping[str, Any]) -> tuple[list[Entry], list[Entry]]:
    """The inputs and the outputs that a signature string declares. Raises `SignatureError` and nothing else."""
    return _Reader(text, types).read()


class _Reader:
    """Reads one string; holds it so that every error can point at its place."""

    def __init__(self, text: str, types: Mapping[str, Any]) -> None:
        # one character for one, so that places stay true and a signature may span lines
        self.text = "".join(" " if c.isspace() else c for c in text)
        self.types = types

    def read(self) -> tuple[list[Entry], list[Entry]]:
        if len(self.text) > _LONGEST:
            raise SignatureError(f"a signature of {len(self.text)} characters; at most {_LONGEST} are read. {_EXAMPLE}")
        marks = list(self._marks())
        arrows = [at for mark, at in marks if mark == "->"]
        if not arrows:
            wrong = next((w for w in ("=>", "→", ">", "-") if w in self.text), "")
            self._fail("no '->' between inputs and outputs", self.text.find(wrong) if wrong else 0, len(wrong))
        if len(arrows) > 1:
            self._fail("a second '->'; there is one, between inputs and outputs", arrows[1], 2)
        seen: dict[str, str] = {}
        inputs = self._side(0, arrows[0], marks, seen, "input")
        outputs = self._side(arrows[0] + 2, len(self.text), marks, seen, "output")
        return inputs, outputs

    def _marks(self) -> Iterator[tuple[str, int]]:
        """The `->`, `,`, `:` and `=` outside of quotes and brackets, with their places."""
        text, opened, i = self.text, list[int](), 0
        while i < len(text):
            c = text[i]
            if c in "'\"":
                i = self._end_of_quote(i)
            elif c in "([{":
                opened.append(i)
            elif c in ")]}":
                if not opened:
                    self._fail(f"{c!r} closes nothing", i, 1)
                opened.pop()
            elif not opened and text.startswith("->", i):
                yield "->", i
                i += 1
            elif not opened and c in ",:=":
                yield c, i
            i += 1
        if opened:
            self._fail(f"{text[opened[-1]]!r} is not closed", opened[-1], 1)

    def _end_of_quote(self, start: int) -> int:
        i = start + 1
        while i < len(self.text):
            if self.text[i] == "\\":
                i += 1
            elif self.text[i] == self.text[start]:
                return i
            i += 1
        return self._fail("a quote that is not closed", start, 1)

    def _side(self, start: int, end: int, marks: list[tuple[str, int]], seen: dict[str, str], what: str) -> list[Entry]:
        if not self.text[start:end].strip():
            self._fail(f"no {what}: name at least one", min(start, len(self.text) - 1), max(1, end - start))
        cuts = [at for mark, at in marks if mark == "," and start <= at < end]
        fields = []
        for left, right in zip([start, *(c + 1 for c in cuts)], [*cuts, end], strict=True):
            inner = [(mark, at) for mark, at in marks if left <= at < right and mark in ":="]
            fields.append(self._field(left, right, inner, seen, what))
        return fields

    def _field(self, start: int, end: int, marks: list[tuple[str, int]], seen: dict[str, str], what: str) -> Entry:
        colon = next((at for mark, at in marks if mark == ":"), None)
        equals = next((at for mark, at in marks if mark == "="), None)
        if equals is not None and colon is not None and equals < colon:
            self._fail("the type goes before the default, as in tone: str = 'dry'", equals, colon - equals + 1)
        if equals is not None and what == "output":
            self._fail("an output has no default: the model writes it", equals, end - equals)
        name_end = min(at for at in (colon, equals, end) if at is not None)
        name = self._name(start, name_end, seen, what)
        type_end = end if equals is None else equals
        type_ = str if colon is None else self._type(colon + 1, type_end, name)
        default = ... if equals is None else self._default(equals + 1, end, name, type_)
        return Entry(name, type_, "", default)

    def _name(self, start: int, end: int, seen: dict[str, str], what: str) -> str:
        name = self.text[start:end].strip()
        at, width = self._place(start, end)
        if not name:
            self._fail(f"an {what} without a name (a comma too many?)", at, width)
        if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
            self._fail(f"{name!r} cannot name a field: use letters, digits and _, as in short_answer", at, width)
        twin = seen.setdefault(name.casefold(), "")
        if twin == name:
            self._fail(f"the field {name!r} is there twice; give each input and output its own name", at, width)
        if twin:
            self._fail(f"{twin!r} and {name!r} differ only in case: models mix them up; rename one", at, width)
        seen[name.casefold()] = name
        return name

    def _type(self, start: int, end: int, field: str) -> Any:
        text = self.text[start:end].strip()
        at, width = self._place(start, end)
        if not text:
            self._fail(f"no type after '{field}:'; leave the colon away for a str", at, width)
        try:
            return self._resolve(ast.parse(text, mode="eval").body, at, field)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._fail(f"the type of {field!r} cannot be read", at, width)

    def _resolve(self, node: ast.expr, at: int, field: str) -> Any:
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Name() | ast.Attribute():
                return self._named(ast.unparse(node), node, at, field)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return _union(self._resolve(left, at, field), self._resolve(right, at, field))
            case ast.Subscript(value=ast.Name() | ast.Attribute(), slice=inner):
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return self._generic(ast.unparse(node.value).removeprefix("typing."), items, node, at, field)
        return self._fail(f"{ast.unparse(node)} is no type for {field!r}", *self._spot(node, at), types=True)

    def _named(self, name: str, node: ast.expr, at: int, field: str) -> Any:
        short = name.removeprefix("typing.")
        if name in self.types:
            return self.types[name]
        if (short := _ALIAS.get(short, short)) in _PLAIN:
            return _PLAIN[short]
        if path := _LATE.get(name) or (name if name in _DOTTED else None):
            module, _, attribute = path.rpartition(".")
            return getattr(import_module(module), attribute)
        if short in _SPECIAL:
            self._fail(f"{name} needs its choices, as in Literal['a', 'b'] or Optional[int]", *self._spot(node, at))
        from difflib import get_close_matches

        close = get_close_matches(name, [*_PLAIN, *_LATE, *_SPECIAL, *map(str, self.types)], 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return self._fail(f"unknown type {name!r} for {field!r}{hint}", *self._spot(node, at), types=True)

    def _generic(self, name: str, items: list[ast.expr], node: ast.expr, at: int, field: str) -> Any:
        name = _ALIAS.get(name, name)
        if name == "Literal" and items:
            return Literal[tuple(self._choice(item, at, field) for item in items)]
        if name == "tuple" and len(items) == 2 and isinstance(items[1], ast.Constant) and items[1].value is ...:
            return _PLAIN["tuple"][self._resolve(items[0], at, field), ...]
        if name in self.types or (name not in _ARITY and name not in ("tuple", "Optional", "Union")) or not items:
            self._fail(f"{name}[...] is no type that is known here, for {field!r}", *self._spot(node, at), types=True)
        wanted = 1 if name == "Optional" else _ARITY.get(name, len(items))
        if len(items) != wanted:
            self._fail(f"{name}[...] takes {wanted} type(s), got {len(items)}, for {field!r}", *self._spot(node, at))
        inner = tuple(self._resolve(item, at, field) for item in items)
        if name in ("Optional", "Union"):
            return _union(*inner, *([None] if name == "Optional" else []))
        return _PLAIN[name][inner if len(inner) > 1 or name == "tuple" else inner[0]]

    def _choice(self, node: ast.expr, at: int, field: str) -> Any:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            value = ...
        if value is not None and not isinstance(value, str | int | bool):
            what = f"{ast.unparse(node)} is no choice for {field!r}: quote text, as in Literal['a', 'b']"
            self._fail(what, *self._spot(node, at))
        return value

    def _default(self, start: int, end: int, field: str, type_: Any) -> Any:
        text = self.text[start:end].strip()
        at, width = self._place(start, end)
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            self._fail(f"the default of {field!r} is no literal: quote text, as in {field}: str = 'dry'", at, width)
        if type_ is str and not isinstance(value, str):
            typed = f"{field}: {type(value).__name__} = {text}"
            self._fail(f"{field!r} is a str, its default {text} is not; write {typed}", at, width)
        return value

    def _place(self, start: int, end: int) -> tuple[int, int]:
        part = self.text[start:end]
        return start + len(part) - len(part.lstrip()), max(1, len(part.strip()))

    def _spot(self, node: ast.expr, at: int) -> tuple[int, int]:
        # ast counts UTF-8 bytes
        line = self.text[at:].encode("utf-8", "replace")
        before = len(line[: node.col_offset].decode("utf-8", "replace"))
        width = len(line[node.col_offset : node.end_col_offset].decode("utf-8", "replace"))
        return at + before, width

    def _fail(self, what: str, at: int, width: int, *, types: bool = False) -> NoReturn:
        left = max(0, at - 60)
        shown = self.text[left : at + 60]
        own = f" and your own: {', '.join(map(str, self.types))}" if self.types else ""
        known = f'Known types: {_KNOWN}{own}. Your own class: types={{"Person": Person}}' if types else _EXAMPLE
        marker = " " * (at - left) + "^" * max(1, min(width, len(shown) - (at - left)))
        raise SignatureError(f"{what}\n    {shown}\n    {marker}\n{known}")


def _union(*members: Any) -> Any:
    return Union[members]  # noqa: UP007  # `|` fails for None | None


def render(fields: Iterable[Any]) -> str:
    """Fields as a signature string writes them; a `str` without a default is only its name."""
    return ", ".join(
        f.name
        + ("" if f.type is str and f.default is ... else f": {type_name(f.type)}")
        + ("" if f.default is ... else f" = {f.default!r}")
        for f in fields
    )


def type_name(type_: Any) -> str:
    """A type as a signature string writes it."""
    origin, args = get_origin(type_), get_args(type_)
    if type_ is None or type_ is type(None):
        return "None"
    if origin is Union or origin is pytypes.UnionType:
        return " | ".join(map(type_name, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if hasattr(type_, "__metadata__"):  # Annotated
        return type_name(args[0])
    if origin is not None and args:
        return f"{type_name(origin)}[{', '.join('...' if a is ... else type_name(a) for a in args)}]"
    return str(getattr(type_, "__name__", None) or type_).removeprefix("typing.")
