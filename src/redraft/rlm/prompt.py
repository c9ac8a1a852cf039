"""What the model is told: the rules, the inputs' metadata, the turns so far. What stays the same comes first, and what was
said once is said again in the same words, so that prefix caches pay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redraft.modules.calls import cut
from redraft.modules.toolbox import Tool
from redraft.modules.wire import listed
from redraft.notation import type_name
from redraft.rlm.variables import Variable
from redraft.signature import Field, SignatureSpec
from redraft.types import Message

_OLD_CODE, _OLD_OUTPUT = 240, 160
"""Characters that are shown of an old turn."""

RULES = """You answer by writing Python for a REPL in which the inputs are variables. You see only what the code prints.

Each reply is a short thought and one ```python block. The block is run, and its output is shown to you (at most {most:,} characters). Variables and definitions stay for the next block; the value of a last expression is shown.

Look at a little of the data first. Let code do what code can: search, count, parse, join. For what has to be read and understood, ask a language model about pieces of the text: few large prompts rather than many small ones, in one batch. Check what you found, then call SUBMIT.

Functions:
{functions}"""

QUERIES = """- llm_query(prompt, schema=None): a language model's reply to the prompt, as str. It sees nothing but the prompt: write the text into it (at most {longest:,} characters). With schema (a JSON schema, or such as {{"label": "str", "score": "float"}}), the parsed value.
- llm_query_batched(prompts, schema=None): many at the same time; a list in the same order. One that failed is a str that begins with "[ERROR]", one without text begins with "[EMPTY REPLY]"."""

DEEPER = """- rlm_query(prompt, data=None): like llm_query, for work that is too large for one prompt: the model gets `data` as a variable in a REPL of its own. Costs several sub-calls."""

HELPERS = """- peek(text, start=0, n=500), grep(pattern, text, window=80, limit=50): a part of a text to print; the matches, as dicts with position, line, match, text.
- chunk(text, n, overlap=0, by="line"): pieces of at most n characters. llm_map(ask, chunks, schema=None): llm_query_batched with one prompt a chunk; ask is a text with {chunk} in it, or a function."""
"""What redraft's own sandboxes put beside the functions of the host (sandbox/prelude.py)."""

LAST = "This is the last turn: call SUBMIT now, with the best answer that you have."
FALLBACK = "No more code is run. Give the answer now, from what was shown above."
NOTHING = "(no output: print what you want to see)"


def system(
    functions: Sequence[str], tools: Mapping[str, Tool], *, dialect: str, helpers: str, most: int, extra: str
) -> str:
    """The rules: the same for every call of a module."""
    lines = [*functions, *helpers.strip().splitlines()]
    for tool in tools.values():
        about = " ".join(tool.description.split())
        lines.append(f"- {_call_of(tool)}: {about or 'a function of the user'}")
    rules = RULES.format(most=most, functions="\n".join(lines))
    return "\n\n".join(filter(None, (extra, rules, dialect.strip())))


def _call_of(tool: Tool) -> str:
    needed = tool.parameters.get("required", ())
    properties = tool.parameters.get("properties", {})
    parts = []
    for name, part in properties.items():
        kind = part.get("type") if isinstance(part, Mapping) else None
        said = f"{name}: {_PYTHON[kind]}" if isinstance(kind, str) and kind in _PYTHON else name
        parts.append(said if name in needed else f"{said}=...")
    return f"{tool.name}({', '.join(parts)})"


_PYTHON = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


def task(
    signature: SignatureSpec, variables: Mapping[str, Variable], *, requirements: Sequence[str], hint: str, budget: str
) -> str:
    """What is asked for in this call."""
    inputs = [f"- {name}{_described(signature.inputs[name])}: {v.about}" for name, v in variables.items()]
    outputs = [f"- {field.name}: {_type(signature, field)}" for field in signature.outputs.values()]
    call = f"SUBMIT({', '.join(f'{name}=...' for name in signature.outputs)})"
    parts = [
        signature.instructions or f"From the inputs, find: {', '.join(signature.outputs)}.",
        "\n".join(["Inputs:", *inputs]),
        "\n".join([f"When you have checked the answer, call {call}, with", *outputs]),
        listed(requirements) if requirements else "",
        hint,
        budget,
    ]
    return "\n\n".join(filter(None, parts))


def _described(field: Field) -> str:
    return f" ({field.desc})" if field.desc else ""


def _type(signature: SignatureSpec, field: Field) -> str:
    """A type as Python writes it; a class of the user's by its schema."""
    said = type_name(field.type)
    if field.type is not str:
        schema = signature.json_schema()
        part = {k: v for k, v in schema["properties"][field.name].items() if k != "description"}
        if "$ref" in json.dumps(part) or "properties" in part:
            said = f"JSON that follows {json.dumps({**part, '$defs': schema.get('$defs', {})}, ensure_ascii=False)}"
    return f"{said}, {field.desc}" if field.desc else said


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply and what came of it, as the next prompts show them."""

    message: Message
    observation: str
    code: str
    output: str


class History:
    """The turns so far. Those that do not fit into `most` characters are told in brief, the older half at a time, so that
    the prompt's beginning changes seldom.
    """

    def __init__(self, most: int, name: str) -> None:
        self.most, self.name = most, name
        self.turns: list[Turn] = []
        self.brief = 0
        """How many of the oldest turns are told in brief."""

    def add(self, turn: Turn) -> None:
        """One more."""
        self.turns.append(turn)
        if self._size(self.brief) > self.most:
            self._shorten(self.most // 2)

    def squeeze(self) -> bool:
        """Make room because the prompt was too long for the model; False if there is nothing left to leave out."""
        if self.brief >= len(self.turns) - 1:
            return False
        self._shorten(self._size(self.brief) // 2)
        return True

    def _shorten(self, most: int) -> None:
        while self.brief < len(self.turns) - 1 and self._size(self.brief) > most:
            self.brief += 1

    def _size(self, start: int) -> int:
        return sum(len(str(t.message.get("content"))) + len(t.observation) for t in self.turns[start:])

    def whole(self) -> list[dict[str, str]]:
        """All turns, for the variable."""
        return [{"code": turn.code, "output": turn.output} for turn in self.turns]

    def messages(self, first: str) -> list[Message]:
        """The task, what is told in brief of old turns, and the others as they were."""
        told = [first]
        if self.brief:
            lines = [f"Turns 1 to {self.brief}, in brief (in full: the variable `{self.name}`, a list of dicts):"]
            for at, turn in enumerate(self.turns[: self.brief], 1):
                lines.append(f"{at}. {_inline(turn.code, _OLD_CODE)}\n   -> {_inline(turn.output, _OLD_OUTPUT)}")
            told.append(cut("\n".join(lines), self.most // 2))
        messages: list[Message] = [{"role": "user", "content": "\n\n".join(told)}]
        for turn in self.turns[self.brief :]:
            messages += [turn.message, {"role": "user", "content": turn.observation}]
        return messages


def _inline(text: str, most: int) -> str:
    text = " ".join(text.split()) if len(text) > most else text.strip().replace("\n", "\n   ")
    return cut(text, most).replace("\n", " ") if len(text) > most else text


def observation(output: str, status: str) -> str:
    """What the model is shown of a cell, or told of a reply without one."""
    return f"Output:\n{(output.strip() and output.rstrip()) or NOTHING}\n\n{status}"
