"""Well-known instruct models as GGUF files on the Hugging Face Hub, to choose from by what fits a machine.

Sizes are the hub's, rounded; `redraft models pull` states the exact ones, and the licence, before it fetches.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from redraft.lm import hub
from redraft.lm.machine import Memory

_GB = 10**9
_SWIFT_PER_CORE = 0.6 * _GB
"""Each token reads the whole file: with more than this a core, a reply is more often waited for than read."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One model, as it was known when this was written."""

    name: str
    size: int
    """Bytes, rounded."""
    per_token: int
    """Bytes of memory for each token of context: 2 numbers of 2 bytes x layers x key-value heads x head size."""
    licence: str

    @property
    def memory(self) -> int:
        """Bytes of memory to run it with the default slots, about."""
        return hub.memory_needed(self.size, self.per_token) or 0


MODELS = (
    Suggestion("Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf", 490_000_000, 12_288, "Apache-2.0"),
    Suggestion(
        "Qwen/Qwen2.5-1.5B-Instruct-GGUF/qwen2.5-1.5b-instruct-q4_k_m.gguf", 1_120_000_000, 28_672, "Apache-2.0"
    ),
    Suggestion(
        "ibm-granite/granite-3.3-2b-instruct-GGUF/granite-3.3-2b-instruct-Q4_K_M.gguf",
        1_550_000_000,
        81_920,
        "Apache-2.0",
    ),
    Suggestion(
        "unsloth/Qwen3-4B-Instruct-2507-GGUF/Qwen3-4B-Instruct-2507-Q4_K_M.gguf", 2_500_000_000, 147_456, "Apache-2.0"
    ),
    Suggestion(
        "Qwen/Qwen2.5-7B-Instruct-GGUF/qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf",
        4_680_000_000,
        57_344,
        "Apache-2.0",
    ),
    Suggestion(
        "Qwen/Qwen2.5-14B-Instruct-GGUF/qwen2.5-14b-instruct-q4_k_m-00001-of-00003.gguf",
        8_990_000_000,
        196_608,
        "Apache-2.0",
    ),
    Suggestion(
        "bartowski/Mistral-Small-24B-Instruct-2501-GGUF/Mistral-Small-24B-Instruct-2501-Q4_K_M.gguf",
        14_330_000_000,
        163_840,
        "Apache-2.0",
    ),
)


def verdicts(memory: Memory | None, cores: int) -> list[tuple[Suggestion, str]]:
    """Each model with "recommended", "fits", "slow", "too big" or, where the memory is not known, "?".

    Recommended is the largest that leaves half of the free memory to others and should answer swiftly on these cores.
    """
    if memory is None:
        return [(model, "?") for model in MODELS]
    swift = cores * _SWIFT_PER_CORE * (4 if sys.platform == "darwin" else 1)  # there the engine uses the GPU
    good = [model for model in MODELS if model.memory <= memory.free / 2 and model.size <= swift]
    best = max(good, key=lambda model: model.size, default=None)
    return [(model, "recommended" if model is best else _verdict(model, memory, swift)) for model in MODELS]


def _verdict(model: Suggestion, memory: Memory, swift: float) -> str:
    if model.memory > memory.free:
        return "too big"
    return "fits" if model.size <= swift else "fits, slow"
