"""Quality against cost, as one small SVG: a point a strategy, its interval, its name. No other file is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from redraft.evaluate.standing import Standing

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 40, 52
_TICKS = 5


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        return [self.low + (self.high - self.low) * i / (_TICKS - 1) for i in range(_TICKS)]


def svg(standings: Sequence[Standing], title: str = "quality against cost") -> str:
    """Score with its 95 % interval over dollars an item where every price is known and not 0, else over tokens an item.
    Empty if nothing has a score.
    """
    shown = [s for s in standings if s.score is not None]
    if not shown:
        return ""
    priced = all(not s.usage.unpriced for s in shown) and any(s.usage.cost for s in shown)
    costs = [(s.usage.cost if priced else s.usage.tokens) / max(1, s.items) for s in shown]
    x = _Scale(0.0, max(costs) * 1.15 or 1.0, LEFT, WIDTH - RIGHT)
    y = _Scale(*_range(shown), HEIGHT - BOTTOM, TOP)
    unit = "dollars an item" if priced else "tokens an item"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" fill="#1f2328">{escape(title)}</text>',
        *_axes(x, y, unit),
        *_points(shown, costs, x, y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _range(shown: Sequence[Standing]) -> tuple[float, float]:
    """All intervals fit; scores that are shares have the whole scale."""
    lows = [min(s.score or 0.0, s.interval.low if s.interval else s.score or 0.0) for s in shown]
    highs = [max(s.score or 0.0, s.interval.high if s.interval else s.score or 0.0) for s in shown]
    low, high = min(0.0, *lows), max(1.0, *highs)
    return low, high


def _axes(x: _Scale, y: _Scale, unit: str) -> list[str]:
    grid = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#d0d7de"/>'
        f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" font-size="11" text-anchor="end" fill="#59636e">{v:.2f}</text>'
        for v in y.ticks
    ]
    below = [
        f'<text x="{x(v):.1f}" y="{HEIGHT - BOTTOM + 18}" font-size="11" text-anchor="middle" fill="#59636e">'
        f"{_short(v)}</text>"
        for v in x.ticks
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    names = [
        f'<text x="{middle:.0f}" y="{HEIGHT - 12}" font-size="12" text-anchor="middle" fill="#1f2328">{unit}</text>',
        (
            f'<text x="16" y="{(TOP + HEIGHT - BOTTOM) / 2:.0f}" font-size="12" text-anchor="middle" fill="#1f2328" '
            f'transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2:.0f})">score, 95% interval</text>'
        ),
    ]
    return [*grid, *below, *names]


def _points(shown: Sequence[Standing], costs: Sequence[float], x: _Scale, y: _Scale) -> list[str]:
    parts = []
    taken: list[tuple[float, float]] = []
    for s, cost in zip(shown, costs, strict=True):
        at, up = x(cost), y(s.score or 0.0)
        colour = "#8c959f" if s.baseline else "#0969da"
        if s.interval is not None:
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(s.interval.low):.1f}" y2="{y(s.interval.high):.1f}" '
                f'stroke="{colour}" stroke-width="1.5"/>'
            )
        parts.append(f'<circle cx="{at:.1f}" cy="{up:.1f}" r="5" fill="{colour}"/>')
        last = at > WIDTH * 0.7
        line = up - 8
        while any(abs(line - other) < 13 and abs(at - there) < 170 for there, other in taken):
            line += 13
        taken.append((at, line))
        anchor, side = ("end", -9) if last else ("start", 9)
        parts.append(
            f'<text x="{at + side:.1f}" y="{line:.1f}" font-size="12" text-anchor="{anchor}" fill="#1f2328">'
            f"{escape(s.name)}</text>"
        )
    return parts


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"
