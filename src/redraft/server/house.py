"""What all requests of one server share, and how it is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from redraft.protocols import Store
from redraft.registry import load
from redraft.server.gate import Gate
from redraft.server.keys import Keys
from redraft.server.metrics import Metrics
from redraft.server.presets import Preset
from redraft.server.shadow import Shadow, ShadowTerms
from redraft.server.upstreams import Upstream, Upstreams
from redraft.types import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How much the server takes on."""

    active: int = 1024
    """Requests answered at once."""
    waiting: int = 1024
    """Requests that wait for a place; one more is refused."""
    patience: float = 30.0
    """Seconds that one waits; and that a body that is being sent may say nothing."""
    body_bytes: int = 32 * 1024 * 1024
    ping_seconds: float = 10.0
    """A stream that has nothing to say says so this often."""
    retry_seconds: float = 10.0
    """The longest wait that an upstream may ask for (`Retry-After`) and get: for a longer one the client is told."""
    choices: int = 16
    """The largest `n`."""
    otel: bool = False
    """Each refined answer is traced by OpenTelemetry's global provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """What `create_app` makes a server of."""

    presets: Mapping[str, Preset] = field(default_factory=dict)
    upstreams: tuple[Upstream, ...] = ()
    keys: Keys = field(default_factory=Keys)
    shadow: ShadowTerms | None = None
    terms: Terms = field(default_factory=Terms)
    store: Store | None = None
    """Where runs are kept; None: as the settings say."""


class House:
    """One server's state, on one event loop."""

    def __init__(self, plans: Plans) -> None:
        self.presets = dict(plans.presets)
        self.keys, self.terms, self.store = plans.keys, plans.terms, plans.store
        self.gate = Gate(plans.terms.active, plans.terms.waiting, plans.terms.patience)
        self.upstreams = Upstreams(plans.upstreams)
        self.metrics = Metrics(self.gate)
        told = plans.shadow
        self.shadow = None if told is None else Shadow(told, self.presets[told.preset], plans.store)

    def listeners(self) -> list[Callable[[Event], None]]:
        """Who hears a run, besides the server itself."""
        return [load("redraft.integrations.otel:spans")()] if self.terms.otel else []

    async def close(self) -> None:
        """Let go of everything."""
        if self.shadow is not None:
            await self.shadow.close()
        await self.upstreams.close()
