"""Opens the chain with its options, checks it against the database, and runs relayer and watcher."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, final

import structlog
import trio
from eth_abi.abi import decode
from eth_utils.address import is_address, to_checksum_address

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.messages import SigningDomain, escrow_domain
from sightline.chain.costs import session_cost
from sightline.chain.embedded.faucet import EmbeddedFaucet
from sightline.chain.embedded.node import EmbeddedNode
from sightline.chain.escrow import ChainEscrow, Domains
from sightline.chain.gas_key import GasKey, LocalGasKey, open_remote_gas_key
from sightline.chain.meter import Meter, MeterKey, open_remote_meter
from sightline.chain.profile import profile_of
from sightline.chain.reconcile.reconciler import BooksRows, Reconciler
from sightline.chain.reconcile.source import ChainSource
from sightline.chain.refunds import FaucetLine, Refunds
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.relayer import EscrowParts, Relayer
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.rpc.health import EndpointHealth
from sightline.chain.rpc.proxy import RpcProxy
from sightline.chain.rpc.reader import RpcReader, hex_int
from sightline.chain.signer import KeyRefusedError, Signer, require_private_key
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.domain.errors import ChainUnavailableError, SightlineError
from sightline.domain.value import Value
from sightline.ports.administration import AdminStore
from sightline.ports.chain import (
    CallRevertedError,
    ChainChangedError,
    ChainConfig,
    ChainReader,
    OnFunds,
    OnSettlement,
    PayTestMoney,
    RpcGuest,
    SettlementUpdate,
)
from sightline.ports.clock import Clock
from sightline.ports.escrow import ExtensionOutbox, Mandates, OpeningOutbox, PermitOutbox
from sightline.ports.ids import Ids
from sightline.ports.leases import ServerRole
from sightline.ports.ledger import ChainIdentity, Ledger, SettlementOutbox, WalletLedger, WalletReading
from sightline.system.loops import run_forever

log = structlog.get_logger()

ENVIRONMENT: Final = "TEST"
FUNDS_RETRY_S: Final = 1.0
SWEEP_EVERY_MS: Final = 30_000
EMBEDDED_SWEEP_EVERY_MS: Final = 60_000
"""Rarer, because the contracts of the embedded chain change nothing without a log, and reading 50 wallets costs its
process 0.1 s of CPU.
"""


class ChainRefusedError(Exception):
    """The settings do not name a usable chain or usable contracts; the message says what is wrong."""


@final
class ContractKindError(ChainRefusedError):
    """The contract at the settlement address is of another kind than the funds policy requires."""


@final
class ChainOptions(Value, kw_only=True):
    """Options of the chain. Without `rpc_url` the embedded chain is used, and nothing is required."""

    rpc_url: str | None = None
    """JSON-RPC endpoint of an external chain, or a comma list of several; it requires the next five settings."""
    chain_id: int | None = None
    """Expected chain id of the endpoint."""
    usdc_address: str | None = None
    settlement_address: str | None = None
    relayer_key: bytes | None = None
    """Private key of 32 bytes; `signer.read_keystore` reads encrypted files."""
    relayer_signer_url: str | None = None
    """JSON-RPC URL of the process that has the relayer's key, in place of `relayer_key`."""
    refund_key: bytes | None = None
    """Private key of the account that pays refunds on an external chain; None: no refunds."""
    start_block: int = 0
    """The block in which the settlement contract was deployed."""
    chain_name: str | None = None
    explorer_url: str = ""
    public_rpc_url: str | None = None
    """The rpcUrl that clients receive; without it, the server's own guarded endpoint."""
    depth: int | None = None
    """Number of blocks above a block before it counts as confirmed. Default 0 on the embedded chain, elsewhere by the
    chain's profile, 2 without one."""
    poll_ms: int | None = None
    """Polling interval. Default 200 on the embedded chain, 2000 elsewhere."""
    platform_fee_bps: int = 0
    """The platform fee of new sessions in basis points; the start fails if it exceeds the contract's maximum."""
    settle_gas: int = 300_000
    fee_cap_wei: int = 500_000_000_000
    replace_ms: int = 30_000
    free_every_ms: int = 600_000
    rpc_timeout_ms: int = 5_000
    rpc_failover_ms: int = 1_500
    """Time without an answer after which a read is also sent to the next of several endpoints."""
    is_escrow: bool = False
    """Whether sessions are held and settled by SessionEscrow, in place of SessionSettlement."""
    unpaid_opens_max: int = 0
    """Holds of a payer in 24 hours that may end without a charge; 0: no limit."""
    meter_key: bytes | None = None
    """Private key of the meter. With is_escrow an external chain needs it or the next setting. It must not be the
    relayer's.
    """
    meter_signer_url: str | None = None
    """JSON-RPC URL of the process that has the meter's key."""
    capture_window_ms: int | None = None
    """How long a capture waits for others. Default 0 on the embedded chain, 10 000 elsewhere."""


@final
class RelayerStatus(Value, kw_only=True):
    """How the relayer of this server is doing."""

    round_at_ms: int
    """When it last completed a round, or when it was started."""
    halted_because: str | None


@final
class RelayerCoin(Value, kw_only=True):
    """The native coin of the relayer's account."""

    balance_wei: int
    sessions: int
    """Number of sessions that it pays at present prices, each opened and captured alone."""


@final
class WatcherStatus(Value, kw_only=True):
    """How the watcher of this server is doing."""

    seen_at_ms: int
    """When it was last in step with the endpoint's head, or when it was started."""
    head_number: int
    lag_blocks: int
    failures: int
    """Failed rounds in a row."""
    halted_because: str | None


@final
class ContractLimits(Value, kw_only=True):
    """What the deployed contract accepts, in micro-USDC."""

    session_cap: int
    """Maximum charge of one session."""
    max_rate: int | None = None
    """Maximum rate of a hold for each second; None: no maximum, as on SessionSettlement."""


@final
class Holds(Value, kw_only=True):
    """What is stored for SessionEscrow."""

    all: OpeningOutbox
    """The outbox of holds, as all servers use it."""
    relayer: OpeningOutbox
    """The same, as the relayer writes it."""
    extensions: ExtensionOutbox
    """The outbox of extensions, as all servers use it."""
    relayer_extensions: ExtensionOutbox
    """The same, as the relayer writes it."""
    permits: PermitOutbox
    """The outbox of permits, as all servers use it."""
    relayer_permits: PermitOutbox
    """The same, as the relayer writes it."""
    mandates: Mandates


@final
class ChainService:
    """Configuration, reads, relayer, watcher and faucet of the chain. `open_chain` creates it.

    One server runs the relayer for all, and one runs the watcher. Each run starts with a new one, because a server that
    lost the role and got it back must not go on with what it remembers.
    """

    def __init__(
        self, *, config: ChainConfig, reader: RpcReader, rpc: JsonRpc, relayer_address: str,
        make_relayer: Callable[[], Relayer], make_watcher: Callable[[], Watcher],
        reconciler: Callable[[BooksRows], Reconciler],
        faucet: PayTestMoney | None, clock: Clock, limits: ContractLimits, fee_cap_wei: int,
        keys: Mapping[str, GasKey | Meter], refund_signer: Signer | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits
        self.escrow: ChainEscrow | None = None
        """Opens holds; None with SessionSettlement."""
        self.wake_elsewhere: Callable[[ServerRole], None] = lambda _: None
        """Called to wake relayer or watcher when it does not run here. Losing the call costs one polling interval."""
        self._rpc = rpc
        self._refund_signer = refund_signer
        self._keys = keys
        self._fee_cap_wei = fee_cap_wei
        self.config = config
        self.reader: ChainReader = reader
        self.faucet = faucet
        self._clock = clock
        self._relayer_address = relayer_address
        self._make_relayer = make_relayer
        self._make_watcher = make_watcher
        self.reconciler = reconciler
        """Makes what compares the books with the chain."""
        self._relayer: Relayer | None = None
        self._watcher: Watcher | None = None
        self._relayer_since_ms = 0
        self._watcher_since_ms = 0
        self._read_wallets: dict[str, None] = {}
        """Wallets that were read and not reported yet, in order."""
        self._tells_funds = False
        self._funds_read = trio.Event()
        self._proxy = RpcProxy(rpc, on_transaction=self.wake_watcher)

    async def proxy(self, body: bytes, guest: RpcGuest) -> bytes:
        """Answer a JSON-RPC body at the guarded endpoint: reads and eth_sendRawTransaction."""
        answer = await self._proxy.handle(body, guest)
        if b"eth_sendRawTransaction" in body:
            self.wake_watcher()
        return answer

    def refunds(self, store: AdminStore, faucet_line: FaucetLine | None = None) -> Refunds:
        """Return the service that pays refunds and records them in `store`.

        Args:
            faucet_line: Returns the command of the embedded chain's faucet. It is not used with another chain.
        """
        faucet = self.faucet

        async def top_up(address: str) -> None:
            if faucet is not None:
                await faucet(address, 0)

        return Refunds(
            self._rpc, store, self._refund_signer, chain_id=self.config.chain_id, token=self.config.usdc_address,
            clock=self._clock, fee_cap_wei=self._fee_cap_wei, top_up=None if faucet is None else top_up,
            faucet_line=None if faucet is None else faucet_line,
        )  # fmt: skip

    async def relayer_coin(self) -> RelayerCoin:
        """Read the native coin of the relayer's account, and for how many sessions it is enough.

        Raises:
            ChainUnavailableError: The endpoint did not answer.
        """
        try:
            balance_wei = hex_int(await self._rpc.call("eth_getBalance", self._relayer_address, "latest"))
        except RpcResponseError as error:
            raise ChainUnavailableError(error.message) from error
        return RelayerCoin(balance_wei=balance_wei, sessions=balance_wei // (await session_cost(self._rpc)).total_wei)

    def notify(self) -> None:
        """Wake the relayer, wherever it runs, after a settlement was composed."""
        self._wake(ServerRole.RELAYER)

    def wake_watcher(self) -> None:
        """Wake the watcher, wherever it runs, after a wallet was tracked."""
        self._wake(ServerRole.WATCHER)

    def wake_here(self, role: ServerRole) -> bool:
        """Start the next round of relayer or watcher now. Returns whether it runs on this server."""
        if role is ServerRole.RELAYER and self._relayer is not None:
            self._relayer.notify()
        elif role is ServerRole.WATCHER and self._watcher is not None:
            self._watcher.wake()
        else:
            return False
        return True

    def _wake(self, role: ServerRole) -> None:
        if not self.wake_here(role):
            self.wake_elsewhere(role)

    def _take_readings(self, readings: Sequence[WalletReading]) -> None:
        if self._tells_funds:
            self._read_wallets.update(dict.fromkeys(reading.address for reading in readings))
        self._funds_read.set()
        self.notify()  # the change may have made settlements payable

    async def run_relayer(self, on_settlement: OnSettlement) -> None:
        """Settle until cancelled. Failures of the endpoint and the store are retried, never raised.

        `on_settlement` is called with each confirmed settlement, until it takes the report.
        """

        async def told(update: SettlementUpdate) -> None:
            self.wake_watcher()
            await on_settlement(update)

        self._relayer_since_ms = self._clock.now_ms()
        self._relayer = relayer = self._make_relayer()
        try:
            await run_forever("relayer", partial(relayer.run, told), every_s=0.0)
        finally:
            self._relayer = None

    async def run_watcher(self, on_funds: OnFunds | None = None) -> None:
        """Follow the chain until cancelled. Failures of the endpoint and the store are retried, never raised.

        `on_funds` is called with each wallet that was read, one call at a time, until it takes the report.
        """
        self._watcher_since_ms = self._clock.now_ms()
        self._watcher = watcher = self._make_watcher()
        watcher.on_readings = self._take_readings
        watcher.on_reorganised = self.notify
        self._tells_funds = on_funds is not None
        self._read_wallets.clear()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(run_forever, "watcher", watcher.run, every_s=0.0))
                if on_funds is not None:
                    nursery.start_soon(self._tell_funds, on_funds)
        finally:
            self._watcher = None

    async def _tell_funds(self, on_funds: OnFunds) -> None:
        while True:
            await self._funds_read.wait()
            self._funds_read = trio.Event()
            while self._read_wallets:
                address = next(iter(self._read_wallets))
                del self._read_wallets[address]  # a reading during the call is reported again
                try:
                    await on_funds(address)
                except (SightlineError, OSError) as error:
                    log.warning("funds_update_failed", address=address, reason=str(error))
                    self._read_wallets[address] = None
                    await trio.sleep(FUNDS_RETRY_S)

    def relayer_status(self) -> RelayerStatus | None:
        """How the relayer is doing; None when it does not run on this server."""
        relayer = self._relayer
        if relayer is None:
            return None
        return RelayerStatus(
            round_at_ms=max(relayer.round_at_ms, self._relayer_since_ms), halted_because=relayer.halted_because
        )

    def signers(self) -> Mapping[str, str | None]:
        """Why the process that has a key does not sign, by key; None if it does, or if the key is in this process."""
        return {name: key.why_away for name, key in self._keys.items()}

    async def probe_signers(self) -> None:
        """Ask the processes that have keys whether they are there; `signers` gives the result."""
        for key in self._keys.values():
            await key.probe()

    def endpoints(self) -> Sequence[EndpointHealth]:
        """Health of the endpoints. A single one is never left out."""
        return [each.health for each in self._rpc.endpoints]

    def watcher_status(self) -> WatcherStatus | None:
        """How the watcher is doing; None when it does not run on this server."""
        watcher = self._watcher
        if watcher is None:
            return None
        return WatcherStatus(
            seen_at_ms=max(watcher.seen_at_ms, self._watcher_since_ms),
            head_number=watcher.head_number,
            lag_blocks=watcher.lag_blocks,
            failures=watcher.failures,
            halted_because=watcher.halted_because,
        )


@final
class Endpoint(Value, kw_only=True):
    """Endpoint, contracts and keys of a chain that was reached."""

    rpc: JsonRpc
    url: str
    identity: ChainIdentity
    gas_key: GasKey
    meter: Meter | None
    """Signs for SessionEscrow; None with SessionSettlement."""
    refund_signer: Signer | None
    chain_name: str
    depth: int
    finality_tag: str | None
    poll_ms: int
    sweep_every_ms: int
    capture_window_ms: int
    faucet: PayTestMoney | None


@asynccontextmanager
async def open_endpoint(
    options: ChainOptions, node: EmbeddedNode | None = None, *, ids: Ids
) -> AsyncIterator[Endpoint]:
    """Connect to the embedded chain or to the external one; does not use the database.

    Args:
        node: The embedded chain; None if the options name an external one.

    Raises:
        ChainRefusedError: Settings are missing.
        ChainUnavailableError: The endpoint does not answer.
        KeyRefusedError: The relayer key is a well-known one, and the chain is not the embedded one.
    """
    async with AsyncExitStack() as stack:
        if node is not None:
            yield await _embedded(stack, options, node, ids)
        else:
            yield await _external(stack, options, ids)


@asynccontextmanager
async def open_chain(
    options: ChainOptions,
    *,
    ledger: Ledger,
    outbox: SettlementOutbox | None = None,
    wallets: WalletLedger | None = None,
    holds: Holds | None = None,
    clock: Clock,
    ids: Ids,
    endpoint: Endpoint | None = None,
) -> AsyncIterator[ChainService]:
    """Check the chain against the database and create relayer, watcher and readers.

    Args:
        outbox: What the relayer uses; by default the ledger.
        wallets: What the watcher uses; by default the ledger.
        holds: What opens holds; required with SessionEscrow.
        endpoint: The chain that `open_endpoint` reached. Without it, it is opened here.

    Raises:
        ChainRefusedError: The contracts do not exist.
        ChainChangedError: The database belongs to another chain or to other contracts.
        ChainUnavailableError: The endpoint does not answer.
    """
    async with AsyncExitStack() as stack:
        if endpoint is None:
            endpoint = await stack.enter_async_context(open_endpoint(options, ids=ids))
        await _require_identity(ledger, endpoint.identity)
        token = to_checksum_address(endpoint.identity.usdc_address)
        settlement = to_checksum_address(endpoint.identity.settlement_address)
        meter = endpoint.meter
        reader = RpcReader(endpoint.rpc, token=token, settlement=settlement, has_limits=meter is None)
        limits = await _require_contracts(reader, endpoint, token, settlement, options.platform_fee_bps)
        relayer_options = _relayer_options(options, endpoint, settles_many=await _settles_many(reader, settlement))
        escrow: ChainEscrow | None = None
        parts: EscrowParts | None = None
        if meter is not None:
            if holds is None:
                raise ChainRefusedError("SessionEscrow needs a database: holds are stored before they are opened")
            domains = await _domains(reader, endpoint.identity.chain_id, token, settlement)
            escrow = ChainEscrow(
                holds.all, holds.extensions, holds.mandates, meter, reader, domains, clock=clock, permits=holds.permits,
                own_addresses=await _own_addresses(reader, endpoint, settlement),
                unpaid_opens_max=options.unpaid_opens_max,
            )  # fmt: skip
            parts = EscrowParts(
                openings=holds.relayer, extensions=holds.relayer_extensions, permits=holds.relayer_permits,
                meter=meter, on_round=escrow.on_round,
            )  # fmt: skip
        make_relayer = partial(
            Relayer, endpoint.rpc, outbox or ledger, endpoint.gas_key, endpoint.identity, relayer_options,
            clock=clock, ids=ids, escrow=parts,
        )  # fmt: skip
        make_watcher = partial(
            Watcher, endpoint.rpc, reader, wallets or ledger, endpoint.identity,
            WatcherOptions(
                depth=endpoint.depth, finality_tag=endpoint.finality_tag, poll_ms=endpoint.poll_ms,
                sweep_every_ms=endpoint.sweep_every_ms,
                start_block=options.start_block, is_escrow=meter is not None,
            ),
            relayer=endpoint.gas_key.address, clock=clock, ids=ids,
        )  # fmt: skip
        # The watcher reads from the first endpoint: what it was told wrong, another one tells otherwise.
        source = ChainSource(endpoint.rpc.from_last(), token=token, contract=settlement, is_escrow=meter is not None)
        make_reconciler = partial(Reconciler, source, start_block=options.start_block, clock=clock)
        config = ChainConfig(
            environment=ENVIRONMENT,
            chain_id=endpoint.identity.chain_id,
            chain_name=endpoint.chain_name,
            rpc_url=options.public_rpc_url or endpoint.url,
            rpc_is_private=options.public_rpc_url is None,
            explorer_url=options.explorer_url,
            usdc_address=token,
            settlement_address=settlement,
            is_escrow=meter is not None,
        )
        service = ChainService(
            config=config, reader=reader, rpc=endpoint.rpc, relayer_address=endpoint.gas_key.address,
            make_relayer=make_relayer, make_watcher=make_watcher, reconciler=make_reconciler,
            faucet=endpoint.faucet, clock=clock,
            limits=limits, fee_cap_wei=options.fee_cap_wei,
            keys={"relayer": endpoint.gas_key} | ({} if meter is None else {"meter": meter}),
            refund_signer=endpoint.refund_signer,
        )  # fmt: skip
        if escrow is not None:
            escrow.wake_relayer = service.notify
            service.escrow = escrow
        yield service


async def _settles_many(reader: RpcReader, settlement: str) -> bool:
    """Return whether the contract has `settleMany` and the delay of the owner's changes."""
    try:
        await reader.call(settlement, call_data("ADMIN_DELAY()"))
    except CallRevertedError:
        log.warning("settlement_contract_is_old", settlement=settlement)
        return False
    return True


def _relayer_options(options: ChainOptions, endpoint: Endpoint, *, settles_many: bool) -> RelayerOptions:
    return RelayerOptions(
        depth=endpoint.depth,
        poll_ms=endpoint.poll_ms,
        settle_gas=options.settle_gas,
        estimates_gas=options.rpc_url is not None,
        fee_cap_wei=options.fee_cap_wei,
        replace_ms=options.replace_ms,
        free_every_ms=options.free_every_ms,
        start_block=options.start_block,
        settles_many=settles_many,
        capture_window_ms=endpoint.capture_window_ms,
    )


async def _embedded(stack: AsyncExitStack, options: ChainOptions, node: EmbeddedNode, ids: Ids) -> Endpoint:
    rpc = await stack.enter_async_context(
        open_rpc(node.url, RpcOptions(timeout_ms=max(options.rpc_timeout_ms, 15_000)), ids)
    )
    return Endpoint(
        rpc=rpc,
        url=node.url,
        identity=ChainIdentity(
            chain_id=node.chain_id,
            genesis_hash=node.genesis_hash.lower(),
            usdc_address=node.usdc_address.lower(),
            settlement_address=node.settlement_address.lower(),
        ),
        gas_key=LocalGasKey(Signer(node.relayer_key)),
        meter=_meter(node.meter_key, node.chain_id, node.settlement_address) if options.is_escrow else None,
        refund_signer=Signer(node.refund_key),
        chain_name=options.chain_name or "Sightline embedded test chain",
        depth=options.depth or 0,
        finality_tag=None,
        poll_ms=options.poll_ms or 200,
        sweep_every_ms=EMBEDDED_SWEEP_EVERY_MS,
        capture_window_ms=options.capture_window_ms or 0,
        faucet=EmbeddedFaucet(rpc, node.directory).fund,
    )


async def _external(stack: AsyncExitStack, options: ChainOptions, ids: Ids) -> Endpoint:
    url, usdc, settlement = options.rpc_url, options.usdc_address, options.settlement_address
    has_key = options.relayer_key is not None or options.relayer_signer_url is not None
    if url is None or usdc is None or settlement is None or not has_key:
        raise ChainRefusedError("an external chain needs rpc_url, usdc_address, settlement_address and a relayer key")
    if not is_address(usdc) or not is_address(settlement):
        raise ChainRefusedError("usdc_address or settlement_address is not an address")
    gas_key = await _external_gas_key(stack, options, ids)
    rpc_options = RpcOptions(timeout_ms=options.rpc_timeout_ms, failover_ms=options.rpc_failover_ms)
    rpc = await stack.enter_async_context(open_rpc(url, rpc_options, ids))
    rpc.chain_id = chain_id = hex_int(await rpc.call("eth_chainId"))
    if options.chain_id not in (None, chain_id):
        raise ChainRefusedError(f"the endpoint's chain id is {chain_id}, the settings say {options.chain_id}")
    genesis = await rpc.call("eth_getBlockByNumber", "0x0", False)
    if not isinstance(genesis, dict):
        raise ChainUnavailableError("the endpoint did not return its genesis block")
    identity = ChainIdentity(
        chain_id=chain_id,
        genesis_hash=str(genesis["hash"]).lower(),
        usdc_address=usdc.lower(),
        settlement_address=settlement.lower(),
    )
    profile = profile_of(chain_id)
    return Endpoint(
        rpc=rpc,
        url=url,
        identity=identity,
        gas_key=gas_key,
        meter=await _external_meter(stack, options, gas_key, identity, ids) if options.is_escrow else None,
        refund_signer=None if options.refund_key is None else Signer(options.refund_key),
        chain_name=options.chain_name or profile.name or f"Chain {chain_id}",
        depth=profile.depth if options.depth is None else options.depth,
        finality_tag=profile.finality_tag,
        poll_ms=options.poll_ms or 2_000,
        sweep_every_ms=SWEEP_EVERY_MS,
        capture_window_ms=10_000 if options.capture_window_ms is None else options.capture_window_ms,
        faucet=None,
    )


async def _require_identity(ledger: Ledger, identity: ChainIdentity) -> None:
    recorded = await ledger.identify(identity)
    if recorded != identity:
        raise ChainChangedError(
            f"the database was written against {recorded}, and the settings now name {identity}; "
            "use the database's own chain, or a new database"
        )


async def _domains(reader: RpcReader, chain_id: int, token: str, settlement: str) -> Domains:
    """Read the token's EIP-712 domain, which differs between deployments of USDC."""
    name, version = [
        str(decode(["string"], await reader.call(token, call_data(question)))[0])
        for question in ("name()", "version()")
    ]
    return Domains(
        token=SigningDomain(name=name, version=version, chain_id=chain_id, contract=token),
        escrow=escrow_domain(chain_id, settlement),
    )


async def _own_addresses(reader: RpcReader, endpoint: Endpoint, settlement: str) -> tuple[str, ...]:
    """Return the service's accounts beside the meter's: for gas, refunds and fees."""
    fee_receiver = "0x" + (await reader.call(settlement, call_data("FEE_RECEIVER()")))[-20:].hex()
    refunds = () if endpoint.refund_signer is None else (endpoint.refund_signer.address,)
    return (endpoint.gas_key.address, fee_receiver, *refunds)


def _meter(key: bytes, chain_id: int, contract: str) -> MeterKey:
    return MeterKey(key, chain_id=chain_id, contract=to_checksum_address(contract))


async def _external_gas_key(stack: AsyncExitStack, options: ChainOptions, ids: Ids) -> GasKey:
    url, key = options.relayer_signer_url, options.relayer_key
    if url is not None:
        return await stack.enter_async_context(open_remote_gas_key(url, timeout_ms=options.rpc_timeout_ms, ids=ids))
    assert key is not None, "the caller has checked it"
    try:
        signer = Signer(key)
    except Exception as error:
        raise KeyRefusedError("the relayer key is not a private key") from error
    require_private_key(signer.address, key)
    return LocalGasKey(signer)


async def _external_meter(
    stack: AsyncExitStack, options: ChainOptions, relayer: GasKey, identity: ChainIdentity, ids: Ids
) -> Meter:
    meter: Meter
    if options.meter_signer_url is not None:
        meter = await stack.enter_async_context(
            open_remote_meter(
                options.meter_signer_url, chain_id=identity.chain_id,
                contract=to_checksum_address(identity.settlement_address), timeout_ms=options.rpc_timeout_ms, ids=ids,
            )
        )  # fmt: skip
    elif options.meter_key is not None:
        try:
            meter = _meter(options.meter_key, identity.chain_id, identity.settlement_address)
        except Exception as error:
            raise KeyRefusedError("the meter's key is not a private key") from error
        require_private_key(meter.address, options.meter_key)
    else:
        raise ChainRefusedError("SessionEscrow needs the meter's key, or its signer")
    if meter.address == relayer.address:
        raise KeyRefusedError("the meter's key is the relayer's: a stolen gas key would charge sessions")
    return meter


async def _require_contracts(
    reader: RpcReader, endpoint: Endpoint, token: str, settlement: str, platform_fee_bps: int
) -> ContractLimits:
    """Check the contracts against the settings, and return the contract's limits."""
    for name, address in (("usdc_address", token), ("settlement_address", settlement)):
        if not await reader.code(address):
            raise ChainRefusedError(f"there is no contract at {name} {address}")
    name = "SessionSettlement" if endpoint.meter is None else "SessionEscrow"
    try:
        settles_in = await reader.call(settlement, call_data("TOKEN()"))
        bound = _number(await reader.call(settlement, call_data("MAX_FEE_BPS()")))
        session_cap = _number(await reader.call(settlement, call_data("SESSION_CAP()")))
        if endpoint.meter is None:
            max_rate, signer = None, endpoint.gas_key.address
            is_allowed = await reader.call(settlement, call_data("isRelayer(address)", [signer]))
        else:
            max_rate, signer = _number(await reader.call(settlement, call_data("MAX_RATE()"))), endpoint.meter.address
            is_allowed = await reader.call(settlement, call_data("isMeter(address)", [signer]))
    except CallRevertedError as error:
        raise ContractKindError(
            f"the contract at {settlement} is not a {name}, which the funds policy needs; a chain keeps the contract "
            "of its first start"
        ) from error
    if settles_in[-20:].hex() != token[2:].lower():
        raise ChainRefusedError(f"the contract at {settlement} settles in another token than {token}")
    if platform_fee_bps > bound:
        raise ChainRefusedError(f"platform_fee_bps {platform_fee_bps} is over the contract's bound {bound}")
    if not any(is_allowed):
        event = "relayer_not_allowed" if endpoint.meter is None else "meter_not_allowed"
        log.error(event, address=signer, settlement=settlement)
    return ContractLimits(session_cap=session_cap, max_rate=max_rate)


def _number(word: bytes) -> int:
    return int.from_bytes(word, "big")
