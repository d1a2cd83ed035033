"""Identity through a real server: contract wallets, cookies, keys, members, and no secrets in the log."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest
from eth_account.signers.local import LocalAccount

from tests.identity.wallet_chain import OWNER, STRANGER, WalletChain, an_account, signature_of, with_wallets

DEPLOYER = an_account("e2e deployer")
SIGHTLINE = str(Path(sys.executable).with_name("sightline"))


@dataclass
class Server:
    """`sightline serve` on one data directory; may be stopped and started again."""

    directory: Path
    secrets: list[str] = field(default_factory=list)
    process: "subprocess.Popen[bytes] | None" = None
    url: str = ""

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    def start(self) -> None:
        environment = os.environ | {
            "SIGHTLINE_INTERNAL_PORT": "0",
            "SIGHTLINE_RATE_LIMITS": "false",
            "SIGHTLINE_VIDEO_WORKERS": "1",
        }
        command = [SIGHTLINE, "serve", "--port", "0", "--data-dir", str(self.directory / "data")]
        log: BinaryIO
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert self.process.stdout
        for line in self.process.stdout:
            with self.log_path.open("ab") as log:
                log.write(line)
            if line.startswith(b"ready "):
                self.url = line.decode().split()[1]
                return
        raise AssertionError(self.log_path.read_text())

    def stop(self) -> None:
        assert self.process
        assert self.process.stdout
        self.process.terminate()
        rest, _ = self.process.communicate(timeout=30)
        with self.log_path.open("ab") as log:
            log.write(rest)
        assert self.process.returncode == 0, self.log_path.read_text()[-2_000:]

    def logs(self) -> str:
        logs = [self.log_path, *(path for path in (self.directory / "data" / "log").rglob("*") if path.is_file())]
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def require_no_secret_in_any_log(self) -> None:
        """Look for all secrets that the tests in this process have used so far; other tests run in other processes."""
        text = self.logs()
        for secret in self.secrets:
            assert secret not in text

    def post(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        return self.request("POST", path, body, **headers)

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        return httpx.request(method, self.url + "/api/v1" + path, json=body, headers=headers, timeout=30)

    def login(self, address: str, signer: LocalAccount, purpose: str = "/auth/wallet") -> httpx.Response:
        """Sign the challenge for `address` with the signer's key."""
        challenge = data(self.post(f"{purpose}/challenge", {"walletAddress": address}))
        signature = "0x" + signature_of(signer, challenge["message"]).hex()
        self.secrets += [signature, signature[2:]]
        proof = {"walletAddress": address, "nonce": challenge["nonce"], "signature": signature}
        if purpose == "/workspaces":
            proof |= {"slug": "roof-" + address[2:8].lower(), "name": "Roof", "roles": ["CONSUMER"]}  # type: ignore[dict-item]
            return self.post("/workspaces", proof)
        return self.post("/auth/wallet/login", proof)

    def cookie_of(self, response: httpx.Response) -> str:
        """Return the cookie of a successful answer, as a Cookie header."""
        assert response.status_code == 200, response.text
        value = response.headers["set-cookie"].partition(";")[0]
        self.secrets.append(value.partition("=")[2])
        return value

    def workspace_of(self, address: str, signer: LocalAccount) -> tuple[str, str]:
        """Create a workspace of the wallet and select it; returns its id and the cookie."""
        workspace_id = data(self.login(address, signer, "/workspaces"))["id"]
        return workspace_id, self.select(self.cookie_of(self.login(address, signer)), workspace_id)

    def select(self, cookie: str, workspace_id: str) -> str:
        return self.cookie_of(self.post("/auth/workspace/select", {"workspaceId": workspace_id}, cookie=cookie))

    def mint(self, workspace_id: str, cookie: str) -> dict[str, Any]:
        body = {"label": "robot", "environment": "TEST", "scopes": ["sessions:read", "wallet:read"]}
        minted = data(self.post(f"/workspaces/{workspace_id}/api-keys", body, cookie=cookie))
        self.secrets.append(minted["plaintext"])
        return minted


def data(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return response.json()["data"]


def refusal(response: httpx.Response) -> tuple[int, str, str | None]:
    body = response.json()
    assert body["statusCode"] == response.status_code
    return response.status_code, body["code"], body.get("detail")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    try:
        yield server
    finally:
        server.stop()
    server.require_no_secret_in_any_log()


@pytest.fixture(scope="module")
def chain(server: Server) -> WalletChain:
    """Deploy contract wallets through the public endpoint of the embedded chain."""
    directory = ["--data-dir", str(server.directory / "data")]
    subprocess.run([SIGHTLINE, "faucet", DEPLOYER.address, "1", *directory], check=True, capture_output=True)
    url = data(server.request("GET", "/config"))["rpcUrl"]
    return with_wallets(url, "0x" + bytes(DEPLOYER.key).hex())


def test_a_contract_wallet_creates_a_workspace_signs_in_and_is_known(server: Server, chain: WalletChain) -> None:
    wallet = chain.wallets["good"]
    workspace_id, cookie = server.workspace_of(wallet, OWNER)
    me = data(server.request("GET", "/me", cookie=cookie))
    assert (me["kind"], me["walletAddress"].lower()) == ("wallet_session", wallet.lower())
    assert (me["workspaceId"], me["role"]) == (workspace_id, "OWNER")


@pytest.mark.parametrize(
    "kind", ["good", "looping", "reverting", "off-chain lookup", "silent", "short", "endless answer"]
)
def test_a_stranger_does_not_sign_in_as_a_contract(server: Server, chain: WalletChain, kind: str) -> None:
    refused = server.login(chain.wallets[kind], STRANGER)
    assert refusal(refused) == (401, "NOT_AUTHENTICATED", "auth:signature")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "set-cookie" not in refused.headers


def test_damaged_cookies_are_401(server: Server) -> None:
    cookie = server.cookie_of(server.login(OWNER.address, OWNER))
    assert server.request("GET", "/me", cookie=cookie).status_code == 200
    name, _, value = cookie.partition("=")
    version, kid, payload, mac = value.split(".")
    flipped = ("A" if mac[0] != "A" else "B") + mac[1:]
    for bad in (
        value[:-1],
        value[:40],
        f"{version}.{kid}.{payload}.",
        f"{version}.{kid}.{payload}.{flipped}",
        f"{version}.k9.{payload}.{mac}",
        f"v1.{kid}.{payload}.{mac}",
        f"{version}.{kid}.{payload[:-2]}AA.{mac}",
        "x" * 5_000,
        "%00",
    ):
        status, code, _ = refusal(server.request("GET", "/me", cookie=f"{name}={bad}"))
        assert (status, code) == (401, "NOT_AUTHENTICATED"), bad
    assert server.request("GET", "/me", cookie=f"lx_session={value}").status_code == 200


def test_the_cookie_has_the_promised_attributes_and_logout_clears_both_names(server: Server) -> None:
    response = server.login(OWNER.address, OWNER)
    cookie = server.cookie_of(response)
    header = response.headers["set-cookie"]
    assert re.fullmatch(r"svc_session=[^;]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax", header)
    cleared = server.post("/auth/logout", cookie=cookie).headers.get_list("set-cookie")
    assert [each.partition(";")[0] for each in cleared] == ["svc_session=", "lx_session="]


def test_a_page_of_another_origin_cannot_use_the_cookie(server: Server) -> None:
    _, cookie = server.workspace_of(an_account("origin").address, an_account("origin"))
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
        refused = server.post("/sessions/cancel-all-assignments", cookie=cookie, **headers)
        assert refusal(refused) == (403, "NOT_AUTHORIZED", "auth:origin")
    assert server.post("/auth/logout", cookie=cookie, origin=server.url).status_code == 200


def test_a_nonce_is_good_once_and_for_its_purpose(server: Server) -> None:
    someone = an_account("nonce")
    challenge = data(server.post("/workspaces/challenge", {"walletAddress": someone.address}))
    signature = "0x" + signature_of(someone, challenge["message"]).hex()
    proof = {"walletAddress": someone.address, "nonce": challenge["nonce"], "signature": signature}
    assert refusal(server.post("/auth/wallet/login", proof)) == (401, "NOT_AUTHENTICATED", "auth:nonce")
    new = proof | {"slug": "nonce-once", "name": "Once", "roles": ["CONSUMER"]}
    assert server.post("/workspaces", new).status_code == 200
    again = new | {"slug": "nonce-twice"}
    assert refusal(server.post("/workspaces", again)) == (401, "NOT_AUTHENTICATED", "auth:nonce")


def test_a_key_is_bound_to_its_workspace_and_manages_no_keys(server: Server) -> None:
    someone = an_account("keys")
    workspace_id, cookie = server.workspace_of(someone.address, someone)
    minted = server.mint(workspace_id, cookie)
    bearer = {"authorization": f"Bearer {minted['plaintext']}"}
    me = data(server.request("GET", "/me", **bearer))
    assert (me["kind"], me["workspaceId"], me["keyId"]) == ("api_key", workspace_id, minted["keyId"])
    keys = f"/workspaces/{workspace_id}/api-keys"
    needs_wallet = (403, "NOT_AUTHORIZED", "apiKey:walletSessionRequired")
    assert refusal(server.request("GET", keys, **bearer)) == needs_wallet
    assert refusal(server.post(f"{keys}/{minted['keyId']}/revoke", **bearer)) == needs_wallet
    assert refusal(server.request("GET", "/workspaces", **bearer))[:2] == (401, "NOT_AUTHENTICATED")
    (listed,) = data(server.request("GET", keys, cookie=cookie))["items"]
    assert "plaintext" not in listed
    revoked = data(server.post(f"{keys}/{minted['keyId']}/revoke", cookie=cookie))
    again = data(server.post(f"{keys}/{minted['keyId']}/revoke", cookie=cookie))
    assert again | {"lastUsedAt": None} == revoked | {"lastUsedAt": None}  # the last use is stored every few seconds
    assert server.request("GET", "/me", **bearer).status_code == 200


def test_an_invited_wallet_comes_in_when_it_accepts_and_goes_at_the_next_selection(server: Server) -> None:
    owner, guest = an_account("host"), an_account("guest")
    workspace_id, cookie = server.workspace_of(owner.address, owner)
    members = f"/workspaces/{workspace_id}/members"
    guest_cookie = server.cookie_of(server.login(guest.address, guest))
    outside = server.post("/auth/workspace/select", {"workspaceId": workspace_id}, cookie=guest_cookie)
    assert refusal(outside)[:2] == (403, "NOT_AUTHORIZED")
    invited = data(server.post(members, {"walletAddress": guest.address, "role": "VIEWER"}, cookie=cookie))
    outside = server.post("/auth/workspace/select", {"workspaceId": workspace_id}, cookie=guest_cookie)
    assert refusal(outside)[:2] == (403, "NOT_AUTHORIZED")
    data(server.post(f"/me/invitations/{invited['invitationId']}/accept", cookie=guest_cookie))
    inside = server.select(guest_cookie, workspace_id)
    assert data(server.request("GET", "/me", cookie=inside))["role"] == "VIEWER"
    mint = {"label": "x", "environment": "TEST", "scopes": ["wallet:read"]}
    assert server.post(f"/workspaces/{workspace_id}/api-keys", mint, cookie=inside).status_code == 403
    data(server.request("DELETE", f"{members}/{guest.address}", cookie=cookie))
    again = server.post("/auth/workspace/select", {"workspaceId": workspace_id}, cookie=inside)
    assert refusal(again)[:2] == (403, "NOT_AUTHORIZED")
    last = server.request("DELETE", f"{members}/{owner.address}", cookie=cookie)
    assert refusal(last) == (409, "INVALID_STATE", "workspace:lastOwner")


def test_sessions_and_keys_outlive_a_restart(server: Server) -> None:
    someone = an_account("restart")
    workspace_id, cookie = server.workspace_of(someone.address, someone)
    key = server.mint(workspace_id, cookie)["plaintext"]
    server.request("GET", "/me", authorization=f"Bearer {key}")
    server.stop()
    server.start()
    assert data(server.request("GET", "/me", cookie=cookie))["workspaceId"] == workspace_id
    assert data(server.request("GET", "/me", authorization=f"Bearer {key}"))["workspaceId"] == workspace_id
    (listed,) = data(server.request("GET", f"/workspaces/{workspace_id}/api-keys", cookie=cookie))["items"]
    assert listed["lastUsedAt"] is not None


def test_no_cookie_signature_or_key_is_in_any_log(server: Server) -> None:
    someone = an_account("secrets")
    workspace_id, cookie = server.workspace_of(someone.address, someone)
    key = server.mint(workspace_id, cookie)["plaintext"]
    assert server.request("GET", "/me", authorization=f"Bearer {key}").status_code == 200
    assert server.request("GET", "/me", authorization=f"Bearer {key[:-1]}").status_code == 401
    assert server.login(someone.address, STRANGER).status_code == 401
    assert {cookie.partition("=")[2], key} < set(server.secrets)
    assert '"event"' in server.logs()
    server.require_no_secret_in_any_log()
