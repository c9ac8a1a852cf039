"""Which family a model is of. Judges prefer texts of their own kind (Panickssery et al. 2404.13076)."""

from __future__ import annotations

import re


def family(lm_name: str) -> str:
    """The family of `provider/model`: "gpt", "claude", "llama"; for an unknown one its name before the first digit."""
    name = lm_name.strip().lower().removesuffix(".gguf").rpartition("/")[2]
    found = [(match.start(), kin) for kin, pattern in _FAMILIES.items() if (match := pattern.search(name))]
    if found:
        return min(found)[1]
    return re.split(r"\d", name.partition(":")[0])[0].strip("-_. ") or name


def _words(*names: str) -> re.Pattern[str]:
    return re.compile("|".join(names))


_FAMILIES = {
    "claude": _words("claude"),
    "command": _words("command-?[ar]", "aya"),
    "deepseek": _words("deepseek"),
    "falcon": _words("falcon"),
    "gemini": _words("gemini", "gemma"),
    "glm": _words("glm"),
    "gpt": _words("gpt", r"(?<![a-z])o[134](?![a-z0-9])", "davinci"),
    "granite": _words("granite"),
    "grok": _words("grok"),
    "kimi": _words("kimi", "moonshot"),
    "llama": _words("llama"),
    "mistral": _words("mistral", "mixtral", r"(?:mini|code|magi|dev)stral", "pixtral"),
    "nova": _words(r"(?<![a-z])nova(?![a-z])"),
    "olmo": _words("olmo"),
    "phi": _words(r"(?<![a-z])phi(?![a-z])"),
    "qwen": _words("qwen", "qwq", "qvq"),
    "smollm": _words("smollm"),
    "yi": _words(r"(?<![a-z])yi(?![a-z])"),
}
"""By the words in a name; of several words the first counts."""
