"""Options of what runs below HTTP: chain, database, video, retention."""

from typing import Final

from pydantic import SecretStr

from sightline.bootstrap.failures.errors import check_setting
from sightline.chain.service import ChainOptions
from sightline.chain.signer import Signer, read_keystore
from sightline.config import Settings
from sightline.domain.units import SECOND_MS
from sightline.identity.cookies import LIFETIME_MS
from sightline.storage.postgres.operations.retention import RetentionOptions
from sightline.system.secrets import Secrets
from sightline.video.options import NetOptions, Options, read_ice_servers

GWEI: Final = 10**9


def relayer_key(settings: Settings) -> bytes | None:
    """Read the relayer's key from its setting or its keystore; None when neither is set.

    Raises:
        KeyRefusedError: The keystore cannot be read.
        StartError: The setting is not a private key.
    """
    if settings.chain_relayer_keystore is not None:
        password = settings.chain_relayer_password
        return read_keystore(settings.chain_relayer_keystore, "" if password is None else password.get_secret_value())
    return _key(settings.chain_relayer_key, "SIGHTLINE_CHAIN_RELAYER_KEY")


def refund_key(settings: Settings) -> bytes | None:
    """Read the key of the refund account; None when it is not set.

    Raises:
        StartError: The value is not a private key.
    """
    return _key(settings.chain_refund_key, "SIGHTLINE_CHAIN_REFUND_KEY")


def meter_key(settings: Settings) -> bytes | None:
    """Read the meter's key; None when it is not set.

    Raises:
        StartError: The value is not a private key.
    """
    return _key(settings.chain_meter_key, "SIGHTLINE_CHAIN_METER_KEY")


def _key(setting: SecretStr | None, name: str) -> bytes | None:
    if setting is None:
        return None
    with check_setting(name):
        try:
            key = bytes.fromhex(setting.get_secret_value().removeprefix("0x"))
        except ValueError:
            raise ValueError("a private key is written as 64 hexadecimal digits") from None
        Signer(key)
    return key


def chain_options(settings: Settings, public_url: str) -> ChainOptions:
    """Build the chain package's options."""
    return ChainOptions(
        rpc_url=settings.chain_rpc_url.get_secret_value() if settings.chain_rpc_url is not None else None,
        chain_id=settings.chain_id,
        usdc_address=settings.chain_usdc_address,
        settlement_address=settings.chain_settlement_address,
        relayer_key=relayer_key(settings),
        relayer_signer_url=settings.chain_relayer_signer_url,
        refund_key=refund_key(settings),
        is_escrow=settings.funds_policy == "escrow",
        meter_key=meter_key(settings),
        meter_signer_url=settings.chain_meter_signer_url,
        unpaid_opens_max=settings.unpaid_opens_max,
        start_block=settings.chain_start_block,
        chain_name=settings.chain_name,
        explorer_url=settings.chain_explorer_url or public_url,
        public_rpc_url=settings.chain_public_rpc_url,
        depth=settings.chain_confirmations,
        fee_cap_wei=settings.chain_max_fee_gwei * GWEI,
        free_every_ms=settings.chain_free_settle_seconds * SECOND_MS,
        platform_fee_bps=settings.platform_fee_bps,
    )


def video_options(settings: Settings, secrets: Secrets, public_url: str) -> Options:
    """Build the video package's options."""
    net = NetOptions(
        bind_addresses=settings.video_bind_addresses,
        advertised_addresses=settings.video_advertised_addresses,
        udp_port_min=settings.video_udp_port_min,
        udp_port_max=settings.video_udp_port_max,
        tcp_port=settings.video_tcp_port,
        ipv6=settings.video_ipv6,
        private_candidates=settings.video_private_candidates,
    )
    servers = settings.video_ice_servers
    picture_width, picture_height = (int(side) for side in settings.video_picture_max.split("x"))
    return Options(
        secret=secrets.video_secret,
        public_url=public_url,
        workers=settings.video_workers,
        net=net,
        poll_key_ms=settings.video_poll_key_ms,
        picture_max_width=picture_width,
        picture_max_height=picture_height,
        clip_seconds=settings.video_clip_seconds,
        worker_memory_mb=settings.video_worker_memory_mb,
        publish_bitrate_max_bps=settings.video_publish_bitrate_max_bps,
        turn_secret=settings.video_turn_secret.get_secret_value() if settings.video_turn_secret is not None else "",
        turn_ttl_s=settings.video_turn_ttl_seconds,
        ice_servers=() if servers is None else read_ice_servers(servers.get_secret_value()),
    )


def retention_options(settings: Settings) -> RetentionOptions:
    """Retention periods of stored rows, from the settings."""
    return RetentionOptions(
        heartbeat_days=settings.heartbeat_keep_days,
        history_days=settings.history_keep_days,
        audit_days=settings.audit_keep_days,
        sign_in_ms=LIFETIME_MS,
    )
