"""Administrators on a real server: `sightline admin` ends, suspends, refunds and notes, and every act is recorded."""

import json
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import httpx
import pytest
import trio

from sightline.chain.embedded.faucet import open_running_faucet
from sightline.system.ids import SystemIds
from sightline.system.server_address_file import read_server_addresses
from sightline_client import ApiError, AsyncChain
from sightline_client.video.assets import clip_path
from sightline_client.wallet import LocalWallet
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until

FUNDS: Final = 50_000_000
BECAUSE: Final = ("--as", "Ada", "--reason", "dispute 17")


@dataclass
class Office:
    """A server with a funded consumer, an operator, and the administrators' command."""

    server: Server
    consumer: Tenant
    operator: Tenant

    async def command(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command of `sightline admin`."""
        return await self.command_of("admin", *arguments, stdin=stdin)

    async def command_of(self, *arguments: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command of `sightline`."""
        command = [sys.executable, "-m", "sightline.cli", *arguments]
        line, all_env = [*command, "--data-dir", str(self.server.directory / "data")], os.environ | env
        return await trio.run_process(
            line, stdin=stdin, check=False, capture_stdout=True, capture_stderr=True, env=all_env
        )

    async def admin(self, *arguments: str) -> Any:
        """Run `sightline admin`; returns the object or the list of objects that it prints as JSON."""
        done = await self.command(*arguments, *(() if arguments == ("audit",) else ("--json",)))
        assert done.returncode == 0, done.stderr
        text = done.stdout.decode()
        return json.loads(text) if text.startswith("{\n") else [json.loads(line) for line in text.splitlines()]

    async def acts(self) -> list[tuple[str, str, str, str]]:
        return [(row["action"], row["actor"], row["reason"], row["outcome"]) for row in await self.admin("audit")]


@asynccontextmanager
async def an_office(server: Server) -> AsyncIterator[Office]:
    await server.start()
    wallet = LocalWallet.create()
    async with open_running_faucet(server.directory / "data" / "chain", SystemIds()) as faucet:
        await faucet.fund(wallet.address, FUNDS)
    consumer = await a_tenant(server.url, "CONSUMER", "buyer", wallet)
    operator = await a_tenant(server.url, "SUPPLIER", "seller")
    await go_online(server.url, operator)
    async with Api(server.url) as api:
        config = await api.get("/config")
    chain = AsyncChain(config["rpcUrl"])
    await chain.approve(wallet, token=config["usdcAddress"], spender=config["settlementAddress"], amount=FUNDS)
    yield Office(server, consumer, operator)


@asynccontextmanager
async def a_filmed_session(office: Office) -> AsyncIterator[str]:
    """A LIVE session with clean seconds; it is filmed until the block ends."""
    server, operator = office.server, office.operator
    async with Api(server.url, key=office.consumer.key) as buyer, Api(server.url, key=operator.key) as seller:
        made = await buyer.post(
            "/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=120, instructions="the north gate"
        )
        await buyer.post(f"/sessions/{made['id']}/dispatch")
        started = await seller.post(f"/sessions/{made['id']}/start")

        async def beat() -> None:
            for sequence in range(1, 1_000):
                report = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": sequence}
                with suppress(ApiError):  # the workspace is suspended
                    await seller.post(f"/workspaces/{operator.workspace_id}/location", **report)
                await trio.sleep(1)

        program = [sys.executable, "-m", "sightline_client.video.publish"]
        command = [*program, str(clip_path()), "--whip", started["whipUrl"]]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat)
            nursery.start_soon(
                partial(trio.run_process, command, check=False, capture_stdout=True, capture_stderr=True)
            )
            path = f"/sessions/{made['id']}"
            await until(lambda: buyer.get(path), lambda seen: seen["cleanSeconds"] >= 2, "clean seconds")
            yield made["id"]
            nursery.cancel_scope.cancel()


async def test_an_ended_session_is_charged_and_refunded_once_and_every_act_recorded(server: Server) -> None:
    async with an_office(server) as office, Api(server.url, key=office.consumer.key) as buyer:
        async with a_filmed_session(office) as session_id:
            assert [row["id"] for row in await office.admin("sessions", "--state", "LIVE")] == [session_id]
            await buyer.post(f"/sessions/{session_id}/messages", text="turn left")
            await buyer.post(f"/sessions/{session_id}/extend", seconds=60)
            early = await office.command("refund", session_id, "0.001", *BECAUSE)
            assert f"end it first, `sightline admin end {session_id}" in early.stderr.decode()
            live = await office.command("session", session_id, "--json")
            assert b"turn left" in live.stdout
            for secret in (b"whip", b"whep", b"svc_test_", b"signature"):
                assert secret not in live.stdout.lower()
            ended = await office.admin("end", session_id, *BECAUSE)
        charged = int(ended["chargedMicroUsdc"])
        assert (ended["state"], ended["endReason"]) == ("ENDED", "PLATFORM_ENDED")
        assert charged >= 2_000
        seen = await buyer.get(f"/sessions/{session_id}")
        assert (seen["state"], seen["endReason"]) == ("ENDED", "PLATFORM_ENDED")
        # A refund waits for the payment, which is on its way.
        # The fee receiver of the embedded chain pays refunds; it holds fees only.
        refused = await office.command("refund", session_id, usdc(charged), *BECAUSE)
        assert refused.returncode == 1
        command = refused.stderr.decode().partition("Send test USDC to it: `")[2].partition("`")[0]
        assert command.endswith(f"--data-dir {server.directory / 'data'}")
        sightline, *words = shlex.split(command)
        assert sightline == "sightline"
        await trio.run_process([sys.executable, "-m", "sightline.cli", *words], capture_stdout=True)

        said = (await office.command("refund", session_id, "0.0015", *BECAUSE)).stdout.decode()
        assert said.startswith("0.0015 USDC to ")
        assert "Its --key is 1: the same command again pays nothing more." in said
        assert "For a further refund of this session, add --key with another name." in said
        again = (await office.command("refund", session_id, "0.0015", *BECAUSE)).stdout.decode()
        assert "nothing more was paid now" in again
        assert again.splitlines()[0] == said.splitlines()[0], "the same command again names the same transaction"
        assert f"0.0015 usdc to {office.consumer.wallet.address.lower()} in 0x" in said.lower()
        assert said.splitlines()[0].endswith(" It is mined.")
        other = await office.command("refund", session_id, "0.0004", *BECAUSE)
        assert b"CONFLICT" in other.stderr
        assert b"For a further refund choose another key" in other.stderr
        too_much = await office.command("refund", session_id, usdc(charged), "--key", "2", *BECAUSE)
        assert b"at most its charge" in too_much.stderr
        left = {"trackedBalance": str(FUNDS - charged + 1_500)}
        await until(lambda: buyer.get("/wallet"), lambda wallet: left.items() <= wallet.items(), "one refund arrived")
        moved = (await buyer.get("/wallet/events", sessionId=session_id))["items"]
        assert [
            (each["kind"], each["amountMicroUsdc"], each["sessionId"])
            for each in moved
            if each["kind"] == "TRANSFER_IN"  # by chance the fee of the settlement can be as much
        ] == [("TRANSFER_IN", "1500", session_id)]
        assert {each["sessionId"] for each in moved} == {session_id}

        await office.admin("note", session_id, "refunded after a call", "--as", "Ada")
        shown = await office.admin("session", session_id)
        named = f"Ada (account {pwd.getpwuid(os.getuid()).pw_name})"
        assert [(note["actor"], note["text"]) for note in shown["notes"]] == [(named, "refunded after a call")]
        assert {refund["actor"] for refund in shown["refunds"]} == {named}
        receipt = await buyer.get(f"/sessions/{session_id}/receipt")
        assert {name: shown[name] for name in ("meter", "events")}.items() <= receipt.items()
        assert shown["settlement"] == receipt["settlement"] | {"reason": None, "tries": 0}
        assert {each["kind"] for each in shown["events"]} >= {"CREATED", "STARTED", "MESSAGE", "EXTENDED", "ENDED"}
        assert (shown["instructions"], shown["maxDurationSeconds"]) == ("the north gate", 180)
        assert (shown["consumerSlug"], shown["operatorSlug"]) == ("buyer", "seller")
        said = (await office.command("session", session_id)).stdout.decode()
        for part in (
            "ENDED: the service ended it",
            "the north gate",
            ": turn left",
            "by 60 s to 180 s",
            "0.0015 USDC to",
        ):
            assert part in said
        unknown = await office.command("end", "00000000-0000-4000-8000-000000000000", *BECAUSE)
        assert b"SESSION_NOT_FOUND: No session has this id: `sightline admin sessions` lists them" in unknown.stderr
        every = await office.acts()
        minted = [(actor.lower(), outcome) for action, actor, _, outcome in every if action == "apiKey.mint"]
        wallets = [f"wallet {tenant.wallet.address.lower()}" for tenant in (office.consumer, office.operator)]
        assert minted == [(wallet, outcome) for wallet in wallets for outcome in ("REQUESTED", "DONE")]
        acts = [act for act in every if act[0].startswith("session")]
        assert [(action, outcome.split()[0]) for action, _, _, outcome in acts] == [
            ("session.refund", "REQUESTED"), ("session.refund", "REFUSED"),
            ("session.end", "REQUESTED"), ("session.end", "DONE"),
            ("session.refund", "REQUESTED"), ("session.refund", "REFUSED"),
            ("session.refund", "REQUESTED"), ("session.refund", "DONE"),
            ("session.refund", "REQUESTED"), ("session.refund", "DONE"),
            ("session.refund", "REQUESTED"), ("session.refund", "REFUSED"),
            ("session.refund", "REQUESTED"), ("session.refund", "REFUSED"),
            ("session.note", "REQUESTED"), ("session.note", "DONE"),
            ("session.end", "REQUESTED"), ("session.end", "REFUSED"),
        ]  # fmt: skip
        assert {actor for _, actor, _, _ in acts} == {f"account {pwd.getpwuid(os.getuid()).pw_name}"}
        assert all(reason.startswith("Ada: ") for _, _, reason, _ in acts)
        paid = [reason for action, _, reason, outcome in acts if action == "session.refund" and outcome == "DONE"]
        assert [reason.partition(" (")[2] for reason in paid] == ["refund 1 of 1500 micro-USDC)"] * 2


async def test_a_charge_that_was_not_paid_is_not_refunded(server: Server) -> None:
    async with an_office(server) as office, Api(server.url, key=office.consumer.key) as buyer:
        async with a_filmed_session(office) as session_id:
            config = await buyer.get("/config")
            await AsyncChain(config["rpcUrl"]).approve(
                office.consumer.wallet, token=config["usdcAddress"], spender=config["settlementAddress"], amount=0
            )
            charged = int((await office.admin("end", session_id, *BECAUSE))["chargedMicroUsdc"])
        assert charged >= 2_000

        async def refusal() -> str:
            refused = await office.command("refund", session_id, "0.001", *BECAUSE)
            assert refused.returncode == 1
            return refused.stderr.decode()

        await until(refusal, lambda said: "FAILED" in said, "the settlement has failed")
        said = await refusal()
        assert "The charge has not been paid, its settlement is FAILED (TestUSDC: amount exceeds allowance)" in said
        assert f"write it off instead, `sightline write-off {session_id} REASON`" in said
        settlement = (await office.admin("session", session_id))["settlement"]
        assert (settlement["state"], settlement["reason"]) == ("FAILED", "TestUSDC: amount exceeds allowance")
        assert settlement["tries"] >= 1
        await office.command_of("write-off", session_id, "no allowance")
        assert "was written off" in await refusal()
        shown = await office.admin("session", session_id)
        assert shown["refunds"] == []
        assert (shown["settlement"]["state"], shown["settlement"]["reason"]) == ("WRITTEN_OFF", "no allowance")
        acts = [(act["action"], act["actor"], act["reason"]) for act in shown["acts"] if act["outcome"] == "DONE"]
        account = f"account {pwd.getpwuid(os.getuid()).pw_name}"
        assert acts == [
            ("session.end", account, "Ada: dispute 17"), ("settlement.writeOff", account, "no allowance"),
        ]  # fmt: skip
        assert (await buyer.get(f"/sessions/{session_id}/receipt"))["settlement"]["state"] == "PENDING"
        assert b"every settlement is confirmed or written off" in (await office.command_of("settlements")).stdout


async def test_a_device_is_listed_as_last_seen_when_its_owner_sees_it(server: Server) -> None:
    async with an_office(server) as office, Api(server.url, key=office.operator.key) as seller:
        path = f"/workspaces/{office.operator.workspace_id}"
        seen = set[str]()
        for sequence in range(1, 4):
            report = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": sequence}
            await seller.post(f"{path}/location", **report)
            mine = await seller.get(path)
            (row,) = await office.admin("workspaces", "--slug", "sell")
            assert row["lastSeenAt"] == mine["lastSeenAt"]
            seen.add(mine["lastSeenAt"])
    assert len(seen) == 3, "each heartbeat is a newer one"


async def test_an_administrator_sees_which_credential_ended_a_session_of_either_side(server: Server) -> None:
    async with an_office(server) as office, Api(server.url, key=office.consumer.key) as buyer:
        made = await buyer.post("/sessions", lat=PLACE[0], lng=PLACE[1])
        path = f"/sessions/{made['id']}"
        await buyer.post(f"{path}/dispatch")
        await buyer.post(f"{path}/end")
        async with Api(server.url, key=office.operator.key) as seller:
            assert (await seller.get(path))["endedBy"] is None, "that is for the side that ended it"
        by = (await buyer.get(path))["endedBy"]
        assert by["kind"] == "API_KEY"
        assert (await office.admin("session", made["id"]))["endedBy"] == by


async def test_a_workspace_is_named_by_its_slug_or_id_and_a_state_in_any_case(server: Server) -> None:
    async with an_office(server) as office, Api(server.url, key=office.consumer.key) as buyer:
        made = await buyer.post("/sessions", lat=PLACE[0] + 5, lng=PLACE[1])
        for name in ("buyer", "Buyer", office.consumer.workspace_id, office.consumer.workspace_id.upper()):
            (row,) = await office.admin("sessions", "--state", "requested", "--workspace", name)
            assert row["id"] == made["id"]
        assert await office.admin("sessions", "--workspace", "seller") == []
        done = await office.admin("suspend", "buyer", *BECAUSE)
        assert (done["workspaceId"], done["endedSessions"]) == (office.consumer.workspace_id, [made["id"]])
        unknown = await office.command("unsuspend", "buye", *BECAUSE)
        assert unknown.returncode == 2
        assert "'buye' is neither the id nor the slug of a workspace." in unboxed(unknown.stderr)
        said = (await office.command("unsuspend", "buyer", *BECAUSE)).stdout.decode()
        assert said == "Calls of buyer are accepted.\n", "it is no operator"
        said = (await office.command("unsuspend", "buyer", *BECAUSE)).stdout.decode()
        assert said == "buyer was not suspended: nothing has changed.\n"
        again = await office.command("end", made["id"], *BECAUSE)
        assert f"is CANCELLED already: `sightline admin session {made['id']}` says why" in again.stderr.decode()
        none = (await office.command("sessions", "--state", "live")).stdout.decode()
        assert none == "There are no such sessions.\n"
        table = (await office.command("sessions", "--workspace", "buyer")).stdout.decode()
        row = next(line for line in table.splitlines() if line.startswith(made["id"]))
        assert row.split()[1:3] == ["CANCELLED", "buyer"]
        assert "seller" not in row, "nobody had it"
        assert "the service ended it" in table
        table = (await office.command("workspaces")).stdout.decode()
        assert office.operator.workspace_id in table


def unboxed(stderr: bytes) -> str:
    """A message of the parser without the frame around it."""
    return " ".join(stderr.decode().replace("│", " ").split())


def usdc(micro: int) -> str:
    return f"{micro / 1_000_000:.6f}"


def inside(server: Server) -> httpx.AsyncClient:
    """A client of the internal listener, without a credential."""
    addresses = read_server_addresses(server.directory / "data")
    assert addresses is not None
    return httpx.AsyncClient(base_url=addresses.internal_url)


async def test_the_audit_log_names_the_account_of_the_connection_and_not_what_the_caller_says(server: Server) -> None:
    async with an_office(server) as office, inside(server) as http:
        path = f"/internal/admin/workspaces/{office.operator.workspace_id}/unsuspend"
        body = {"operator": "Grace", "osUser": "grace", "reason": "a mistake"}
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = await http.post(path, json=body, headers=headers)
            assert (refused.status_code, refused.json()["detail"]) == (401, "internal:token")
        assert (await http.post(path, json=body, headers=server.internal_headers())).status_code == 200
        rows = [act for act in await office.acts() if act[0] == "workspace.unsuspend"]
    account = f"account {pwd.getpwuid(os.getuid()).pw_name}"
    assert [(actor, reason, outcome) for _, actor, reason, outcome in rows] == [
        (account, "Grace: a mistake", "REQUESTED"),
        (account, "Grace: a mistake", "DONE"),
    ]


async def test_a_command_with_another_token_than_the_servers_says_where_the_right_one_is(server: Server) -> None:
    async with an_office(server) as office:
        for command in ("token", "sessions"):
            done = await office.command_of("admin", command, SIGHTLINE_INTERNAL_TOKEN="of another server")
            assert (done.returncode, done.stdout) == (1, b""), command
            assert b"another SIGHTLINE_INTERNAL_TOKEN or SIGHTLINE_SECRETS_FILE than is set here" in done.stderr, (
                command
            )


async def test_probes_need_no_token_and_operators_calls_do(server: Server) -> None:
    async with an_office(server), inside(server) as http:
        for path in ("/readyz", "/metrics", "/internal/targets"):
            assert (await http.get(path)).status_code == 200, path
        for path in ("actors", "nodes", "settlements", "admin/sessions", "admin/workspaces", "admin/audit"):
            assert (await http.get(f"/internal/{path}")).status_code == 401, path
            assert (await http.get(f"/internal/{path}", headers=server.internal_headers())).status_code == 200, path


async def test_the_token_is_printed_for_the_account_that_reads_the_secrets(server: Server) -> None:
    async with an_office(server) as office:
        printed = await office.command("token")
    assert f"Bearer {printed.stdout.decode().strip()}" == server.internal_headers()["authorization"]


async def test_a_key_that_was_found_somewhere_is_revoked_and_no_other(server: Server) -> None:
    async with an_office(server) as office:
        whole = office.consumer.key
        (key,) = await office.admin("keys", "buyer")
        found = await office.command("find-key", stdin=b"  " + whole.encode() + b"\n")
        told = found.stdout.decode()
        assert office.consumer.workspace_id in told
        assert f"revoke-key {office.consumer.workspace_id} {key['keyId']} " in told
        assert whole not in told
        unknown = await office.command("find-key", stdin=whole[:-1].encode() + (b"0" if whole[-1] != "0" else b"1"))
        assert (unknown.returncode, unknown.stdout) == (1, b"")
        swapped = await office.command("revoke-key", whole, key["keyId"], *BECAUSE)
        as_id = await office.command("revoke-key", "buyer", whole, *BECAUSE)
        assert (swapped.returncode, as_id.returncode) == (2, 2)
        assert whole.encode() not in swapped.stderr + as_id.stderr
        of_another = await office.command("revoke-key", "seller", key["keyId"], *BECAUSE)
        assert of_another.returncode == 1
        done = await office.admin("revoke-key", "buyer", key["keyId"], *BECAUSE)
        assert (done["keyId"], done["gracePeriodEnd"] > done["revokedAt"]) == (key["keyId"], True)
        assert [each["revokedAt"] for each in await office.admin("keys", "buyer")] == [done["revokedAt"]]
        assert [each["revokedAt"] for each in await office.admin("keys", "seller")] == [None]
        shown = (await office.command("keys", "buyer")).stdout.decode()
        assert key["keyId"] in shown
        acts = {(act[0], act[2], act[3]) for act in await office.acts()}
        assert ("apiKey.revoke", f"key {key['keyId']}, Ada: dispute 17", "DONE") in acts
        assert whole not in server.log()


async def test_a_suspended_workspace_is_refused_and_its_sessions_end(server: Server) -> None:
    async with an_office(server) as office, Api(server.url, key=office.consumer.key) as buyer:
        async with Api(server.url, key=office.operator.key) as seller:
            waiting = await buyer.post("/sessions", lat=PLACE[0] + 5, lng=PLACE[1])
            async with a_filmed_session(office) as session_id:
                done = await office.admin("suspend", office.operator.workspace_id, *BECAUSE)
                assert done["endedSessions"] == [session_id]
            ended = await buyer.get(f"/sessions/{session_id}")
            assert (ended["state"], ended["endReason"]) == ("ENDED", "PLATFORM_ENDED")
            with pytest.raises(ApiError) as refused:
                await seller.get("/sessions")
            assert (refused.value.status, refused.value.detail) == (403, "workspace:suspended")
            assert (done["wasSuspended"], done["suspension"]["reason"]) == (False, "dispute 17")
            (row,) = await office.admin("workspaces", "--slug", "sell")
            assert (row["availabilityState"], row["suspension"]["reason"]) == ("OFFLINE", "dispute 17")
            assert row["suspension"]["actor"] == f"Ada (account {pwd.getpwuid(os.getuid()).pw_name})"
            again = (await office.command("suspend", "seller", "--as", "bob", "--reason", "another")).stdout.decode()
            assert again.startswith("seller was suspended already, at ")
            assert f" by {row['suspension']['actor']}: dispute 17. That stays; " in again
            (same,) = await office.admin("workspaces", "--slug", "sell")
            assert same["suspension"] == row["suspension"]
            acts = [(action, why, outcome) for action, _, why, outcome in await office.acts()]
            assert ("workspace.suspend", "bob: another", "DONE") in acts

            await server.kill()
            await server.start()
            with pytest.raises(ApiError, match="suspended"):
                await seller.get("/sessions")
            await office.admin("unsuspend", office.operator.workspace_id, *BECAUSE)
            await seller.get("/sessions")
            await office.admin("suspend", office.consumer.workspace_id, *BECAUSE)
        ended = await office.admin("session", waiting["id"])
        assert (ended["state"], ended["endReason"]) == ("CANCELLED", "PLATFORM_ENDED")
        for over, side in ((waiting["id"], office.consumer), (session_id, office.operator)):
            (act,) = (await office.admin("session", over))["acts"]
            assert (act["action"], act["outcome"]) == ("workspace.suspend", "DONE")
            assert (act["target"], act["reason"]) == (f"workspace {side.workspace_id}", "Ada: dispute 17")


async def test_a_view_whose_workspace_is_suspended_says_that_its_session_has_ended(server: Server) -> None:
    async with an_office(server) as office, trio.open_nursery() as nursery:
        command = [sys.executable, "-m", "sightline_client", "watch", str(PLACE[0] + 5), str(PLACE[1]), "--wait", "60"]
        env = os.environ | {"SIGHTLINE_URL": server.url, "SIGHTLINE_API_KEY": office.consumer.key}
        watch = partial(trio.run_process, command, env=env, cwd=server.directory, check=False, capture_stderr=True)
        done: list[subprocess.CompletedProcess[bytes]] = []

        async def run() -> None:
            done.append(await watch())

        nursery.start_soon(run)
        await until(lambda: office.admin("sessions", "--state", "requested"), bool, "a session is requested")
        await office.admin("suspend", "buyer", *BECAUSE)
    said = done[0].stderr.decode().splitlines()
    assert done[0].returncode == 1
    assert said[-2:] == [
        "The workspace was suspended; the service has ended its sessions.",
        "403 NOT_AUTHORIZED (workspace:suspended): The workspace is suspended; ask the administrators of this service.",
    ]


async def test_a_device_says_that_its_workspace_is_suspended_and_is_online_again_when_that_is_lifted(
    server: Server,
) -> None:
    async with an_office(server) as office, Api(server.url, key=office.consumer.key) as buyer:
        env = os.environ | {"SIGHTLINE_API_KEY": office.operator.key}
        line = [sys.executable, "-m", "sightline_client", "device", "--online", "--api", server.url]
        place = ["--lat", str(PLACE[0]), "--lng", str(PLACE[1])]
        process = await trio.lowlevel.open_process([*line, *place], stderr=subprocess.PIPE, env=env)
        assert process.stderr is not None
        stream, said = aiter(process.stderr), b""

        async def until_logged(what: bytes, times: int = 1) -> None:
            nonlocal said
            while said.count(what) < times:
                said += await anext(stream)

        async def order() -> None:
            made = await buyer.post("/sessions", lat=PLACE[0], lng=PLACE[1])
            await buyer.post(f"/sessions/{made['id']}/dispatch")

        with trio.fail_after(90):
            await until_logged(b"availability_changed")
            await order()
            await until_logged(b'"connected"')
            assert len((await office.admin("suspend", "seller", *BECAUSE))["endedSessions"]) == 1
            await until_logged(b"workspace_suspended")
            told = (await office.command("unsuspend", "seller", *BECAUSE)).stdout.decode()
            await until_logged(b"suspension_lifted")
            (row,) = await office.admin("workspaces", "--slug", "seller")
            await order()
            await until_logged(b"session_started", times=2)
            process.terminate()
            said += b"".join([chunk async for chunk in stream])
            assert await process.wait() == 0, said
    assert "`sightline device --online` that runs" in told
    assert row["availabilityState"] == "ONLINE"
    log = [json.loads(each) for each in said.splitlines()]
    (suspended,) = [each for each in log if each["event"] == "workspace_suspended"]
    assert suspended["level"] == "warning"
    assert "suspended" in suspended["error"]
    (lifted,) = [each for each in log if each["event"] == "suspension_lifted"]
    assert lifted["availability"] == "ONLINE"
    assert {"call_failed", "heartbeat_refused"} & {each["event"] for each in log} == set()
