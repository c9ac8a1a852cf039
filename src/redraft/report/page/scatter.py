"""Where the marks of quality against cost stand; a template draws them as SVG, with the table of strategies beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 18, 48
_TICKS = 5
_LINE, _NEAR = 15, 190


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value with its interval, and what it cost."""

    anchor: str
    name: str
    soft: bool
    """A baseline: drawn hollow."""
    at: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """Where a point stands."""

    point: Point
    x: float
    y: float
    top: float
    bottom: float
    label: tuple[float, float]
    left: bool
    """The label stands to the left of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """The whole plot."""

    dots: tuple[Dot, ...]
    across: tuple[tuple[float, str], ...]
    """(x, what stands below it)."""
    up: tuple[tuple[float, str], ...]
    """(y, what stands beside it)."""
    unit: str
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    floor: float = HEIGHT - _BOTTOM
    width: float = WIDTH
    height: float = HEIGHT

    @property
    def text(self) -> str:
        """The plot in words, for those who do not see it."""
        said = (f"{d.point.name} {d.point.value:.2f} at {amount(d.point.at)}" for d in self.dots)
        return f"{'; '.join(said)} {self.unit}"


def scatter_of(points: Sequence[Point], unit: str) -> Scatter | None:
    """The plot; None without points. Shares have the whole scale from 0 to 1."""
    if not points:
        return None
    most = max(p.at for p in points) * 1.15 or 1.0
    low, high = min(0.0, *(p.low for p in points)), max(1.0, *(p.high for p in points))

    def x(value: float) -> float:
        return round(_LEFT + value / most * (WIDTH - _RIGHT - _LEFT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _BOTTOM - _TOP), 1)

    steps = [i / (_TICKS - 1) for i in range(_TICKS)]
    dots, taken = list[Dot](), list[tuple[float, float]]()
    for p in sorted(points, key=lambda p: -p.value):
        at, line = x(p.at), y(p.value) + 4
        while any(abs(line - other) < _LINE and abs(at - there) < _NEAR for there, other in taken):
            line += _LINE
        taken.append((at, line))
        left = at > WIDTH * 0.7
        label = (at - 11 if left else at + 11, round(line, 1))
        dots.append(Dot(point=p, x=at, y=y(p.value), top=y(p.high), bottom=y(p.low), label=label, left=left))
    return Scatter(
        dots=tuple(dots),
        across=tuple((x(most * s), amount(most * s)) for s in steps),
        up=tuple((y(low + (high - low) * s), f"{low + (high - low) * s:.2f}") for s in steps),
        unit=unit,
    )


def amount(value: float) -> str:
    """`1,234`, `0.0012`: three places that say something."""
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"
