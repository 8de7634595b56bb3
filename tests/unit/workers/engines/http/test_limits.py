"""Slots and minutes, without a server."""

from __future__ import annotations

import asyncio
import time

import pytest

from workers.engines.http.limits import Minute, Slots


def test_trouble_halves_the_slots_once_a_round_and_success_adds_them_again() -> None:
    slots = Slots(64)
    began = time.monotonic()
    for _ in range(64):
        slots.went_badly(began)
    assert slots.limit == 32
    for _ in range(10):
        slots.went_badly(time.monotonic())
    assert slots.limit == 1
    for _ in range(10_000):
        slots.went_well()
    assert slots.limit == 64


def test_slots_are_never_more_than_the_limit_while_it_moves() -> None:
    async def run() -> int:
        slots, busy, most = Slots(8), 0, 0

        async def call(number: int) -> None:
            nonlocal busy, most
            async with slots.one():
                busy += 1
                if number > 20:  # those that began before the halving may still be there
                    most = max(most, busy)
                if number == 8:
                    slots.went_badly(time.monotonic())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                busy -= 1

        await asyncio.gather(*(call(number) for number in range(100)))
        assert slots._busy == 0
        return most

    assert asyncio.run(run()) == 4


@pytest.mark.parametrize("handed_over", [False, True])
def test_who_is_cancelled_while_waiting_loses_no_slot(handed_over: bool) -> None:
    async def run() -> None:
        slots = Slots(1)

        async def call(hold: asyncio.Event) -> None:
            async with slots.one():
                await hold.wait()

        first, second = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(call(first)), asyncio.create_task(call(second))]
        await asyncio.sleep(0)
        if handed_over:
            slots._free()  # as if the first had ended just now
            slots._busy += 1
        tasks[1].cancel()
        first.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(5), slots.one():
            pass

    asyncio.run(run())


def test_a_minute_holds_no_more_than_its_most_whenever_it_is_looked_at() -> None:
    async def run() -> list[float]:
        minute, times = Minute(5, seconds=0.2), []
        for _ in range(12):
            times.append((await minute.take(1)).at)
        return times

    times = asyncio.run(run())
    assert all(later - earlier >= 0.2 for earlier, later in zip(times, times[5:], strict=False))


def test_what_is_larger_than_a_minute_goes_alone() -> None:
    async def run() -> tuple[float, float]:
        minute = Minute(5, seconds=0.2)
        large, small = await minute.take(100), await minute.take(1)
        return large.at, small.at

    large, small = asyncio.run(run())
    assert small - large >= 0.2
