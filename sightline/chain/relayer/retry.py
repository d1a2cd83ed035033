"""Computes the retry delay of a refused settlement."""

from typing import Final

from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.rpc.client import backoff_ms
from sightline.ports.ids import Ids

# Reasons that only the payer or the token's issuer can remove. The watcher makes these settlements due when the wallet
# changes.
_FAULTS_OF_PARTIES: Final = ("allowance", "balance", "payer's session limit", "payer's day limit", "blacklisted")


def retry_in_ms(options: RelayerOptions, ids: Ids, *, reason: str, tries: int) -> int:
    """Return the delay before try number `tries` + 1: exponential with jitter.

    The maximum is `retry_ms_max` (one day) when the payer must act, and `retry_ms_max_ours` (five minutes) otherwise,
    such as for a paused contract.
    """
    is_of_party = any(fault in reason.lower() for fault in _FAULTS_OF_PARTIES)
    most = options.retry_ms_max if is_of_party else options.retry_ms_max_ours
    wait = min(most, options.retry_ms_min << min(tries, 30))
    return wait // 2 + backoff_ms(ids, 0, least_ms=wait, most_ms=most) // 2
