"""A learned signal: heads on a frozen model's hidden state that say when to go back, how far, and how differently to go on.

This is not PASR (docs/pasr.md): the model is not trained and writes no tags; what is learned is a few thousand numbers beside it.
Needs the extra `torch`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redraft.errors import ConfigError, InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Go back `distance` tokens, as far as there are that many, and write on at `temperature`."""

    distance: int
    temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which model a policy belongs to; the same weights in another precision are another model, whose hidden states differ."""

    kind: str
    hidden_size: int
    layers: int
    vocabulary: int
    dtype: str
    weights: str
    """Digest of a part of the weights: of the first rows of the embedding, and of the last norm."""

    @classmethod
    def of(cls, model: Any) -> Identity:
        """A transformers model's."""
        config = model.config.get_text_config()
        table = model.get_input_embeddings().weight.detach()
        parts = [table[:64], *[p.detach() for name, p in model.named_parameters() if name.endswith("norm.weight")][-1:]]
        seen = hashlib.sha256()
        for part in parts:
            seen.update(part.float().cpu().contiguous().numpy().tobytes())
        return cls(
            kind=str(config.model_type),
            hidden_size=int(config.hidden_size),
            layers=int(config.num_hidden_layers),
            vocabulary=int(table.shape[0]),
            dtype=str(table.dtype),
            weights=seen.hexdigest()[:16],
        )


class RefinementPolicy:
    """Trigger (a logit), distance and intensity (categories) from the hidden state of one place: linear heads on that state with
    its mean taken out and its spread made 1.

    `layer` counts as in transformers' `hidden_states` (0: the embedding, -1: the last one). `distances` are in tokens,
    `temperatures` are the intensities.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        layer: int = -1,
        distances: Sequence[int] = (1, 2, 4, 8, 16),
        temperatures: Sequence[float] = (0.7, 0.8, 0.9),
    ) -> None:
        torch = _torch()
        if not distances or min(distances) < 1 or not temperatures or min(temperatures) <= 0:
            raise InputError(
                f"distances={distances!r}, temperatures={temperatures!r}: give tokens from 1 up, and above 0"
            )
        if not -identity.layers - 1 <= layer <= identity.layers:
            raise InputError(f"layer={layer!r}: the model has {identity.layers}, and 0 is its embedding")
        self.identity, self.layer = identity, layer
        self.distances, self.temperatures = tuple(distances), tuple(temperatures)
        size = identity.hidden_size
        self.norm = torch.nn.LayerNorm(size, elementwise_affine=False)
        self.heads = torch.nn.ModuleDict(
            {
                "trigger": torch.nn.Linear(size, 1),
                "distance": torch.nn.Linear(size, len(distances)),
                "intensity": torch.nn.Linear(size, len(temperatures)),
            }
        )

    @classmethod
    def on(cls, model: Any, **options: Any) -> RefinementPolicy:
        """A new policy for a transformers model."""
        return cls(Identity.of(model), **options)

    def parameters(self) -> Iterator[Any]:
        """What is trained."""
        found: Iterator[Any] = self.heads.parameters()
        return found

    def __call__(self, hidden: Any) -> dict[str, Any]:
        """Logits for states (places x hidden size): `trigger` (places), `distance` and `intensity` (places x categories)."""
        state = self.norm(hidden.float())
        logits = {name: head(state) for name, head in self.heads.items()}
        return {**logits, "trigger": logits["trigger"].squeeze(-1)}

    def probability(self, hidden: Any) -> Any:
        """The probability of a trigger at each place."""
        return _torch().sigmoid(self(hidden)["trigger"])

    def move(self, hidden: Any, threshold: float = 0.5) -> Move | None:
        """What to do at one place (a state of `hidden size` numbers): the likeliest move, where a trigger is likelier than
        `threshold`.
        """
        torch = _torch()
        with torch.no_grad():
            logits = self(hidden[None])
            if float(torch.sigmoid(logits["trigger"][0])) <= threshold:
                return None
            distance, intensity = (int(logits[name][0].argmax()) for name in ("distance", "intensity"))
        return Move(distance=self.distances[distance], temperature=self.temperatures[intensity])

    def sampled(self, hidden: Any) -> tuple[Any, Any]:
        """An action drawn for each place, with its log-probability. An action is (places x 3): trigger 0 or 1, and the indices
        of distance and intensity, whose probability counts only where it triggers.
        """
        torch = _torch()
        logits = self(hidden)
        trigger = torch.distributions.Bernoulli(logits=logits["trigger"])
        kinds = [torch.distributions.Categorical(logits=logits[name]) for name in ("distance", "intensity")]
        drawn = trigger.sample()
        choices = [kind.sample() for kind in kinds]
        logprob = trigger.log_prob(drawn)
        for kind, choice in zip(kinds, choices, strict=True):
            logprob = logprob + drawn * kind.log_prob(choice)
        return torch.stack([drawn.long(), *choices], dim=-1), logprob

    def save(self, path: str | Path) -> None:
        """Write it as safetensors, with what it belongs to."""
        from safetensors.torch import save_file

        told = {
            "identity": asdict(self.identity),
            "layer": self.layer,
            "distances": self.distances,
            "temperatures": self.temperatures,
        }
        tensors = {name: value.detach().contiguous() for name, value in self.heads.state_dict().items()}
        save_file(tensors, str(path), metadata={"redraft.policy": json.dumps(told)})

    @classmethod
    def load(cls, path: str | Path, model: Any) -> RefinementPolicy:
        """Read one for this model. Raises `ConfigError` for a policy of another model, and for a file that is none."""
        _torch()
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="pt") as file:
                told = json.loads((file.metadata() or {})["redraft.policy"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise ConfigError(f"{path} is no refinement policy: {error!r}") from error
        own, other = asdict(Identity.of(model)), told.pop("identity")
        if differing := [
            f"{name} {other.get(name)} there, {value} here" for name, value in own.items() if other.get(name) != value
        ]:
            raise ConfigError(f"{path} was trained on another model: {'; '.join(differing)}. Train one for this model")
        policy = cls(Identity(**other), **told)
        policy.heads.load_state_dict(tensors)
        return policy


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f"a refinement policy needs the extra `torch`: pip install 'redraft[torch]' ({error})"
        ) from error
    return torch
