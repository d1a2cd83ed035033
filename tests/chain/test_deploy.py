"""The deployment command deploys both contracts, and a server runs on them."""

import dataclasses

import pytest

from sightline.chain.deploy import Deployment, DeploymentError, deploy
from sightline.chain.rpc.client import RpcOptions, open_rpc
from sightline.chain.signer import Signer
from sightline.ports.ledger import SettlementState
from tests.chain.endpoint import answering, of_method
from tests.chain.world import Wallet, World, ids, running


async def test_a_deployed_pair_of_contracts_settles_a_session(world: World) -> None:
    owner, relayer = Wallet(), Wallet()
    for wallet in (owner, relayer):
        await world.give_coin(wallet)
    deployment = Deployment(relayer=relayer.address, fee_receiver=Wallet().address)
    deployed = await deploy(world.rpc, Signer(bytes.fromhex(owner.key[2:])), deployment)
    fresh = dataclasses.replace(
        world, token=deployed.usdc_address, settlement=deployed.settlement_address, treasury_key=owner.key,
        relayer_key=bytes.fromhex(relayer.key[2:]),
    )  # fmt: skip
    await world.give_coin(fresh.payer)
    await fresh.fund(fresh.payer)
    await fresh.approve(fresh.payer)
    for wallet in (fresh.payer, fresh.payee):
        await fresh.ledger.track(wallet.workspace_id, wallet.address, now_ms=0)
    async with running(fresh, start_block=deployed.start_block) as service:
        session_id = await fresh.end_session()
        service.notify()
        await fresh.until_told(session_id)
        assert (await fresh.record(session_id)).state is SettlementState.CONFIRMED


async def test_a_main_network_is_refused(world: World) -> None:
    world.endpoint.fault = of_method("eth_chainId", answering("0x1"))
    signer = Signer(ids.token_bytes(32))
    deployment = Deployment(relayer=signer.address, fee_receiver=signer.address)
    async with open_rpc(world.endpoint.url, RpcOptions(), ids) as rpc:
        with pytest.raises(DeploymentError, match="main network"):
            await deploy(rpc, signer, deployment)
    assert world.endpoint.seen == ["eth_chainId"]


async def test_a_deployer_without_coin_is_told_so(world: World) -> None:
    signer = Signer(ids.token_bytes(32))
    deployment = Deployment(relayer=signer.address, fee_receiver=signer.address)
    with pytest.raises(DeploymentError, match="insufficient funds"):
        await deploy(world.rpc, signer, deployment)
