"""What is known of public test networks: name, confirmation depth, finality and block time."""

from typing import Final, final

from sightline.domain.value import Value

FINALIZED: Final = "finalized"


@final
class ChainProfile(Value, kw_only=True):
    """Properties of one chain, or the defaults of an unknown one."""

    name: str | None = None
    depth: int = 2
    """Number of blocks above a block from which reorganisations are not expected."""
    finality_tag: str | None = None
    """Block tag of the newest final block; None: blocks are final at `depth`."""
    block_s: int = 12
    """Time between blocks in seconds."""


# Depth 5 is 10 s on OP chains: one block was ever reorganised on Base. A block of them is final after about 20 minutes,
# when its batch is in a final block of Sepolia.
PROFILES: Final = {
    84_532: ChainProfile(name="Base Sepolia", depth=5, finality_tag=FINALIZED, block_s=2),
    11_155_420: ChainProfile(name="OP Sepolia", depth=5, finality_tag=FINALIZED, block_s=2),
    11_155_111: ChainProfile(name="Sepolia", depth=5, finality_tag=FINALIZED, block_s=12),
}


def profile_of(chain_id: int) -> ChainProfile:
    """Return the profile of a chain; the defaults if it is not known."""
    return PROFILES.get(chain_id, ChainProfile())
