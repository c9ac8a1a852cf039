"""A preset's request, answered whole or as a stream: headers at once, pings and progress while it is refined, the accepted
text when there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from redraft.errors import RedraftError
from redraft.journal import new_run_id
from redraft.server.asked import PREFIX, Options
from redraft.server.exchange import Exchange, raw
from redraft.server.house import House
from redraft.server.posted import Posted
from redraft.server.presets import Plan, Preset
from redraft.server.refining import Refined, Refining, refuse_what_is_lacking, refuse_while_shut
from redraft.server.refusal import Refusal, refusal_of
from redraft.server.wires.base import PING, Stream
from redraft.sync import seen

_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}


async def answer(house: House, posted: Posted, preset: Preset) -> int:
    """Refine and answer; returns the status, which a stream can only tell in an event. Raises `RedraftError`, `Refusal`."""
    exchange, wire = posted.exchange, posted.wire
    asked = wire.read(posted.body, Options.read(posted.body.get("redraft"), exchange.headers))
    if asked.request.n > house.terms.choices:
        told = f"n={asked.request.n} is more than the {house.terms.choices} choices that this server refines at once"
        raise Refusal(400, told, code="invalid_request", param="n")
    plans = [Plan.of(preset, asked) for _ in range(asked.request.n)]
    refuse_what_is_lacking(asked, plans[0])
    patience = house.terms.retry_seconds
    refuse_while_shut(plans[0], patience)
    news: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
    tell = news.put_nowait if asked.stream and asked.options.progress else None
    around = posted.key.meter if posted.key is not None else None
    refining = Refining(
        asked,
        plans,
        run_id=new_run_id(),
        store=house.store,
        around=around,
        tell=tell,
        patience=patience,
        listeners=house.listeners(),
    )
    try:
        if asked.stream:
            stream = wire.stream(asked, refining.run.run_id)
            return await _streamed(house, exchange, refining, stream, news)
        refined = await refining.answer()
        house.metrics.refined(preset.id, refined.answer, refined.results)
        await exchange.json(200, wire.whole(refined.answer, asked), refined.answer.headers)
        return 200
    finally:
        house.metrics.spent(preset.id, refining.run)


async def _streamed(
    house: House, exchange: Exchange, refining: Refining, stream: Stream, news: asyncio.Queue[Mapping[str, Any]]
) -> int:
    told = {f"{PREFIX}run-id": refining.run.run_id, f"{PREFIX}strategy": refining.plan.name}
    await exchange.start(200, raw({**_STREAM, **told}))
    await exchange.write(b"".join([PING, *stream.begin()]))
    work = asyncio.ensure_future(refining.answer())
    try:
        await _while_refined(exchange, work, stream, news, house.terms.ping_seconds)
        refined = await work
    except (RedraftError, Refusal) as error:
        refusal = refusal_of(error)
        await exchange.end(b"".join(stream.failed(refusal)))
        return refusal.status
    finally:
        if not work.done():
            work.add_done_callback(seen)
            work.cancel()
            await asyncio.wait({work}, timeout=0.3)
    house.metrics.refined(refining.asked.preset, refined.answer, refined.results)
    for event in stream.answer(refined.answer):
        await exchange.write(event)
    await exchange.end()
    return 200


async def _while_refined(
    exchange: Exchange,
    work: asyncio.Future[Refined],
    stream: Stream,
    news: asyncio.Queue[Mapping[str, Any]],
    seconds: float,
) -> None:
    """Pings, and progress where it is asked for, until the work is done."""
    getting = asyncio.ensure_future(news.get())
    try:
        while True:
            both: set[asyncio.Future[Any]] = {work, getting}
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                await exchange.write(stream.progress(getting.result()))
                getting = asyncio.ensure_future(news.get())
            elif work.done():
                return
            else:
                await exchange.write(PING)
    finally:
        getting.cancel()


def unknown_preset(house: House, model: str) -> Refusal:
    """For a virtual model that is none: never another one instead."""
    there = ", ".join(house.presets) or "none; [presets.NAME] in redraft.toml makes one"
    told = f"there is no model {model!r:.80}; the virtual models are: {there}"
    return Refusal(404, told, code="model_not_found", param="model")
