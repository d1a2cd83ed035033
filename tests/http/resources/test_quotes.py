"""Quotes over HTTP."""

from fractions import Fraction

import pytest

from tests.http.world import BERLIN, Client, World, data_of, error_of

QUOTE = "/api/v1/pricing/quote"
HERE = "lat=52.52&lng=13.405&durationSeconds=600"


async def test_a_quote_can_be_computed_again_from_itself(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    silent = data_of(await consumer.key.get(f"{QUOTE}?{HERE}"))
    assert silent["availableOperators"] == 0  # ONLINE, but its device was never seen
    data_of(await operator.beat())
    quote = data_of(await consumer.key.get(f"{QUOTE}?{HERE}"))
    assert (quote["lat"], quote["lng"], quote["durationSeconds"]) == (52.52, 13.405, 600)
    assert quote["availableOperators"] == 1
    product = Fraction(int(quote["baseRatePerSecondMicroUsdc"]))
    for factor in ("supplyFactor", "demandFactor", "corridorMultiplier"):
        product *= Fraction(str(quote[factor]))
    rate = int(product + Fraction(1, 2))
    assert quote["ratePerSecondMicroUsdc"] == str(rate)
    assert quote["estimatedTotalMicroUsdc"] == str(rate * 600)


async def test_where_the_only_operator_films_for_the_caller_the_quote_names_that_session(world: World) -> None:
    consumer, other, operator = (
        await world.party("CONSUMER"),
        await world.party("CONSUMER"),
        await world.party("SUPPLIER"),
    )
    await operator.go_online(coverageLat=52.52, coverageLng=13.405, coverageRadiusMeters=2_000)
    data_of(await operator.beat())
    assert data_of(await consumer.key.get(f"{QUOTE}?{HERE}"))["ownSessionId"] is None
    running = await world.live(consumer, operator)

    async def seen(client: Client, place: str = HERE) -> tuple[int, str | None]:
        quote = data_of(await client.get(f"{QUOTE}?{place}"))
        return quote["availableOperators"], quote["ownSessionId"]

    assert await seen(consumer.key) == (0, running["id"])
    assert await seen(other.key) == (0, None), "the session of somebody else is nobody's business"
    assert await seen(consumer.key, "lat=48.1&lng=11.5&durationSeconds=600") == (0, None)
    data_of(await consumer.key.post(f"/api/v1/sessions/{running['id']}/end"))
    assert (await seen(consumer.key))[1] is None


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("lng=13&durationSeconds=600", "pricing:lat"),
        ("lat=52&durationSeconds=600", "pricing:lng"),
        ("lat=52&lng=13", "pricing:durationSeconds"),
        ("lat=90.01&lng=13&durationSeconds=600", "pricing:lat"),
        ("lat=1e3&lng=13&durationSeconds=600", "pricing:lat"),
        ("lat=NaN&lng=13&durationSeconds=600", "pricing:lat"),
        ("lat=52&lng=-181&durationSeconds=600", "pricing:lng"),
        ("lat=52&lng=%20&durationSeconds=600", "pricing:lng"),
        ("lat=52&lng=13&lng=14&durationSeconds=600", "pricing:lng"),
        ("lat=52&lng=13&durationSeconds=0", "pricing:durationSeconds"),
        ("lat=52&lng=13&durationSeconds=14401", "pricing:durationSeconds"),
        ("lat=52&lng=13&durationSeconds=1.5", "pricing:durationSeconds"),
        ("lat=52&lng=13&durationSeconds=%2B5", "pricing:durationSeconds"),
    ],
)
async def test_a_wrong_parameter_is_named(world: World, query: str, detail: str) -> None:
    consumer = await world.party("CONSUMER")
    assert error_of(await consumer.key.get(f"{QUOTE}?{query}")) == (400, "INVALID_INPUT", detail)


async def test_a_quote_serves_its_owner_once_nearby_and_in_time(world: World) -> None:
    consumer, other = await world.party("CONSUMER"), await world.party("CONSUMER")

    async def quoted() -> str:
        return str(data_of(await consumer.key.get(f"{QUOTE}?{HERE}"))["quoteId"])

    async def refusal(quote_id: str, **fields: object) -> tuple[int, str, str | None]:
        body = BERLIN | {"quoteId": quote_id} | fields
        return error_of(await consumer.key.post("/api/v1/sessions", body))

    quote = await quoted()
    theirs = await other.key.post("/api/v1/sessions", BERLIN | {"quoteId": quote})
    assert error_of(theirs) == (404, "NOT_FOUND", "pricing:quote")
    assert await refusal("00000000-0000-4000-8000-000000000000") == (404, "NOT_FOUND", "pricing:quote")
    mismatch = (400, "INVALID_INPUT", "pricing:quoteMismatch")
    assert await refusal(quote, lat=52.53) == mismatch
    assert await refusal(quote, maxDurationSeconds=601) == mismatch
    body = BERLIN | {"quoteId": quote, "lat": 52.53, "maxDurationSeconds": 601}
    said = (await consumer.key.post("/api/v1/sessions", body)).json()["hint"]
    asked = f"this request is for 601 s at 52.530000, {BERLIN['lng']:.6f}"
    assert said == f"The quote is for 600 s at {BERLIN['lat']:.6f}, {BERLIN['lng']:.6f}; {asked}"
    session = await world.request(consumer, quoteId=quote.upper(), lat=52.5201)
    assert await refusal(quote) == (409, "INVALID_STATE", "pricing:quoteConsumed")
    again = await consumer.key.post("/api/v1/sessions", BERLIN | {"quoteId": quote})
    assert again.json()["hint"] == f"The quote has been used, for session {session['id']}"
    late = await quoted()
    world.clock.advance(121)
    assert await refusal(late) == (409, "INVALID_STATE", "pricing:quoteExpired")
