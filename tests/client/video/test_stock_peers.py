"""The names of aioice that are replaced for stock peers."""

import inspect

import aioice.ice

from sightline_client.video.stock_peers import tune_stock_peers


def test_the_function_and_the_constants_are_where_they_are_replaced() -> None:
    assert list(inspect.signature(aioice.ice.get_host_addresses).parameters) == ["use_ipv4", "use_ipv6"]
    assert isinstance(aioice.ice.CONSENT_INTERVAL, int)
    assert isinstance(aioice.ice.CONSENT_FAILURES, int)


def test_stock_peers_can_be_given_loopback_and_short_consent() -> None:
    before = (aioice.ice.get_host_addresses, aioice.ice.CONSENT_INTERVAL, aioice.ice.CONSENT_FAILURES)
    try:
        tune_stock_peers()
        assert "127.0.0.1" in aioice.ice.get_host_addresses(True, False)
        assert aioice.ice.CONSENT_INTERVAL * aioice.ice.CONSENT_FAILURES <= 10
    finally:
        aioice.ice.get_host_addresses, aioice.ice.CONSENT_INTERVAL, aioice.ice.CONSENT_FAILURES = before


def test_a_process_that_publishes_often_adds_loopback_once() -> None:
    tune_stock_peers()
    first = aioice.ice.get_host_addresses
    tune_stock_peers()
    assert aioice.ice.get_host_addresses is first
    assert "127.0.0.1" in first(True, False)
