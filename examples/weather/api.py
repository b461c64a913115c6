"""A small weather API on this machine, for the schemas beside it. It makes its numbers up.

    async with weather_api() as root:
        ...  # http://127.0.0.1:PORT/v1

`python api.py` serves it until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import date, timedelta

from aiohttp import web

KEY = "key-of-the-weather-demo"
CITIES = {"berlin": ("Berlin", 19), "lisbon": ("Lisbon", 24), "oslo": ("Oslo", 12)}
STATIONS = {"be-1": (34, 18.5), "li-1": (2, 22.0), "os-1": (94, None)}
FIRST_DAY = date(2026, 6, 1)


async def forecast(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        return web.json_response({"error": "unknown key"}, status=401)
    name, warm = CITIES[request.match_info["city"]]
    units = request.query.get("units", "metric")
    days = [
        {
            "date": (FIRST_DAY + timedelta(number)).isoformat(),
            "high": warm + number if units == "metric" else (warm + number) * 9 / 5 + 32,
            "low": warm - 8 if units == "metric" else (warm - 8) * 9 / 5 + 32,
            "rain": None if number > 4 else 10 * number,
        }
        for number in range(int(request.query["days"]))
    ]
    return web.json_response({"city": name, "units": units, "days": days})


async def station(request: web.Request) -> web.Response:
    found = STATIONS.get(request.match_info["id"])
    if found is None:
        return web.json_response({"error": "no such station"}, status=404)
    height, temperature = found
    body = {"id": request.match_info["id"], "height": height, "temperature": temperature}
    return web.json_response(body)


async def reading(request: web.Request) -> web.Response:
    told = await request.json()
    return web.Response(
        text=f"{request.match_info['id']}: {told['temperature']} from {told['source']}"
    )


@contextlib.asynccontextmanager
async def weather_api(port: int = 0) -> AsyncIterator[str]:
    """Serve on a port of the loopback interface, a free one if none is given; gives the root."""
    app = web.Application()
    app.router.add_get("/v1/forecast/{city}", forecast)
    app.router.add_get("/v1/stations/{id}", station)
    app.router.add_post("/v1/stations/{id}/readings", reading)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def main() -> None:
    async with weather_api(8123) as root:
        print(f"the weather is at {root}, its key is {KEY}")
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
