"""Build the chain package's options from the settings."""

from sightline.bootstrap.start_errors import check_setting
from sightline.chain.service import ChainOptions
from sightline.chain.signer import KeyRefusedError, Signer, read_keystore
from sightline.config import Settings
from sightline.domain.units import SECOND_MS


def relayer_key(settings: Settings) -> bytes | None:
    """Read the relayer's key from its setting or its keystore; None when neither is set.

    Raises:
        KeyRefusedError: The key cannot be read.
    """
    if settings.chain_relayer_keystore is not None:
        password = settings.chain_relayer_password
        return read_keystore(settings.chain_relayer_keystore, "" if password is None else password.get_secret_value())
    if settings.chain_relayer_key is None:
        return None
    try:
        return bytes.fromhex(settings.chain_relayer_key.get_secret_value().removeprefix("0x"))
    except ValueError:
        raise KeyRefusedError("the relayer key is not hex") from None


def refund_key(settings: Settings) -> bytes | None:
    """Read the key of the refund account; None when it is not set.

    Raises:
        StartError: The value is not a private key.
    """
    if settings.chain_refund_key is None:
        return None
    with check_setting("SIGHTLINE_CHAIN_REFUND_KEY"):
        key = bytes.fromhex(settings.chain_refund_key.get_secret_value().removeprefix("0x"))
        Signer(key)
    return key


def chain_options(settings: Settings, public_url: str, *, is_running: bool = False) -> ChainOptions:
    """Build the chain package's options.

    Args:
        is_running: Whether another process runs the embedded chain.
    """
    return ChainOptions(
        is_running=is_running,
        data_dir=settings.data_dir / "chain",
        rpc_url=settings.chain_rpc_url.get_secret_value() if settings.chain_rpc_url is not None else None,
        chain_id=settings.chain_id,
        usdc_address=settings.chain_usdc_address,
        settlement_address=settings.chain_settlement_address,
        relayer_key=relayer_key(settings),
        refund_key=refund_key(settings),
        start_block=settings.chain_start_block,
        chain_name=settings.chain_name,
        explorer_url=settings.chain_explorer_url or public_url,
        public_rpc_url=settings.chain_public_rpc_url,
        depth=settings.chain_confirmations,
        free_every_ms=settings.chain_free_settle_seconds * SECOND_MS,
        platform_fee_bps=settings.platform_fee_bps,
    )
