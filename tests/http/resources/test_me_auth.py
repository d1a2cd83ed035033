"""Signing in, selecting, and who am I."""

from tests.http.world import Client, World, cookie_of, data_of, error_of

SELECT = "/api/v1/auth/workspace/select"
CHALLENGE, LOGIN = "/api/v1/auth/wallet/challenge", "/api/v1/auth/wallet/login"


async def test_a_wallet_signs_in_selects_and_is_known(world: World) -> None:
    account = world.account()
    workspace = await world.create_workspace(account, "CONSUMER")
    answer = await world.anyone.post(LOGIN, await world.signed(account, CHALLENGE))
    brief = {name: workspace[name] for name in ("id", "slug", "name", "walletAddress")} | {"role": "OWNER"}
    assert data_of(answer) == {"walletAddress": account.address, "workspaces": [brief]}
    assert answer.headers["set-cookie"].startswith("svc_session=v2.")
    assert "HttpOnly; SameSite=Lax" in answer.headers["set-cookie"]
    unselected = Client(world, {"cookie": cookie_of(answer)})
    me = data_of(await unselected.get("/api/v1/me"))
    assert me == {
        "kind": "wallet_session",
        "walletAddress": account.address,
        "workspaceId": None,
        "role": None,
        "workspaces": [brief],
        "expiresAt": me["expiresAt"],
    }
    selected = await unselected.post(SELECT, {"workspaceId": workspace["id"].upper()})
    assert data_of(selected) == {"workspaceId": workspace["id"], "role": "OWNER"}
    me = data_of(await Client(world, {"cookie": cookie_of(selected)}).get("/api/v1/me"))
    assert (me["workspaceId"], me["role"]) == (workspace["id"], "OWNER")


async def test_the_older_cookie_name_is_accepted_too(world: World) -> None:
    cookie = await world.login(world.account())
    older = Client(world, {"cookie": cookie.replace("svc_session=", "lx_session=")})
    assert data_of(await older.get("/api/v1/me"))["kind"] == "wallet_session"


async def test_a_key_is_known_with_its_workspace(world: World) -> None:
    party = await world.party("CONSUMER", "SUPPLIER", scopes=["sessions:read", "wallet:read"])
    me = data_of(await party.key.get("/api/v1/me"))
    assert me["kind"] == "api_key"
    assert me["workspaceId"] == party.id
    assert me["scopes"] == ["sessions:read", "wallet:read"]
    assert me["environment"] == "TEST"
    assert me["workspace"] == {
        "id": party.id,
        "slug": party.workspace["slug"],
        "name": party.workspace["name"],
        "roles": ["CONSUMER", "SUPPLIER"],
    }


async def test_a_nonce_serves_one_purpose_once(world: World) -> None:
    account = world.account()
    proof = await world.signed(account, CHALLENGE)
    fields = {"slug": "some-slug", "name": "Some", "roles": ["CONSUMER"]}
    crossed = await world.anyone.post("/api/v1/workspaces", proof | fields)
    assert error_of(crossed) == (401, "NOT_AUTHENTICATED", "auth:nonce")
    proof = await world.signed(account, CHALLENGE)
    data_of(await world.anyone.post(LOGIN, proof))
    assert error_of(await world.anyone.post(LOGIN, proof)) == (401, "NOT_AUTHENTICATED", "auth:nonce")


async def test_a_bad_signature_is_401_and_says_so(world: World) -> None:
    proof = await world.signed(world.account(), CHALLENGE)
    answer = await world.anyone.post(LOGIN, proof | {"signature": "0x" + "11" * 65})
    assert error_of(answer) == (401, "NOT_AUTHENTICATED", "auth:signature")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_bad_address_names_the_field(world: World) -> None:
    answer = await world.anyone.post(CHALLENGE, {"walletAddress": "0x12"})
    assert error_of(answer) == (400, "INVALID_INPUT", "auth:walletAddress")


async def test_selecting_a_workspace_of_others_is_403(world: World) -> None:
    stranger = Client(world, {"cookie": await world.login(world.account())})
    other = await world.party("CONSUMER")
    answer = await stranger.post(SELECT, {"workspaceId": other.id})
    assert error_of(answer)[:2] == (403, "NOT_AUTHORIZED")


async def test_logout_ends_the_cookie_on_the_server(world: World) -> None:
    account = world.account()
    client, other_device = [Client(world, {"cookie": await world.login(account)}) for _ in range(2)]
    data_of(await client.post("/api/v1/auth/logout"))
    assert error_of(await client.get("/api/v1/me")) == (401, "NOT_AUTHENTICATED", "auth:session")
    data_of(await other_device.get("/api/v1/me"))


async def test_a_wallet_lists_its_sign_ins_and_ends_that_of_a_lost_phone(world: World) -> None:
    account = world.account()
    phone, laptop = [Client(world, {"cookie": await world.login(account)}) for _ in range(2)]
    listed = data_of(await laptop.get("/api/v1/me/sessions"))["items"]
    assert [each["isCurrent"] for each in listed] == [True, False]
    assert {each["clientAddress"] for each in listed} == {"127.0.0.1"}
    lost = listed[1]["sessionId"]
    ended = data_of(await laptop.delete(f"/api/v1/me/sessions/{lost}"))
    assert ended["endedAt"] is not None
    assert error_of(await phone.get("/api/v1/me")) == (401, "NOT_AUTHENTICATED", "auth:session")
    (left,) = data_of(await laptop.get("/api/v1/me/sessions"))["items"]
    assert left["isCurrent"]


async def test_a_sign_in_of_another_wallet_is_not_found(world: World) -> None:
    mine, other = [Client(world, {"cookie": await world.login(world.account())}) for _ in range(2)]
    (session,) = data_of(await other.get("/api/v1/me/sessions"))["items"]
    answer = await mine.delete(f"/api/v1/me/sessions/{session['sessionId']}")
    assert error_of(answer) == (404, "NOT_FOUND", "auth:session")
    data_of(await other.get("/api/v1/me"))


async def test_logout_clears_both_cookies(world: World) -> None:
    client = Client(world, {"cookie": await world.login(world.account())})
    answer = await client.post("/api/v1/auth/logout")
    data_of(answer)
    cleared = [value for name, value in answer.headers.multi_items() if name == "set-cookie"]
    assert [value.partition("=")[0] for value in cleared] == ["svc_session", "lx_session"]
    assert all("Max-Age=0" in value for value in cleared)


async def test_an_unsafe_cookie_call_from_another_origin_is_refused(world: World) -> None:
    client = Client(world, {"cookie": await world.login(world.account())})
    answer = await client.having(origin="https://evil.example").post("/api/v1/auth/logout")
    assert error_of(answer) == (403, "NOT_AUTHORIZED", "auth:origin")
    data_of(await client.having(origin=world.base_url).post("/api/v1/auth/logout"))


async def test_a_contract_wallet_that_cannot_be_asked_is_503_and_the_nonce_stays_good(world: World) -> None:
    account = world.account()
    proof = await world.signed(account, CHALLENGE)
    unclear = proof | {"signature": "0x" + "22" * 80}
    world.chain.is_down = True
    assert error_of(await world.anyone.post(LOGIN, unclear))[:2] == (503, "UNAVAILABLE")
    world.chain.is_down = False
    data_of(await world.anyone.post(LOGIN, proof))


async def test_an_invited_wallet_is_a_member_only_after_it_has_accepted(world: World) -> None:
    inviter, guest = await world.party("SUPPLIER"), world.account()
    body = {"walletAddress": guest.address.lower(), "role": "ADMIN"}
    invited = data_of(await inviter.wallet.post(f"{inviter.path}/members", body))
    assert (invited["status"], invited["walletAddress"], invited["role"]) == ("INVITED", guest.address, "ADMIN")
    cookie = await world.login(guest)
    client = Client(world, {"cookie": cookie})
    assert data_of(await client.get("/api/v1/me"))["workspaces"] == []
    assert data_of(await client.get("/api/v1/workspaces"))["items"] == []
    not_a_member = (403, "NOT_AUTHORIZED", "workspace:notMember")
    assert error_of(await client.post(SELECT, {"workspaceId": inviter.id})) == not_a_member
    (received,) = data_of(await client.get("/api/v1/me/invitations"))["items"]
    workspace = {name: inviter.workspace[name] for name in ("id", "slug", "name", "roles", "walletAddress")}
    assert received == {
        "id": invited["invitationId"],
        "workspace": workspace,
        "role": "ADMIN",
        "invitedBy": inviter.account.address,
        "createdAt": invited["invitedAt"],
        "expiresAt": invited["expiresAt"],
    }
    path = f"/api/v1/me/invitations/{received['id']}"
    assert data_of(await client.get(path)) == received
    keyed = client.having(idempotency_key="again")
    accepted = data_of(await keyed.post(f"{path}/accept"))
    assert accepted == {name: workspace[name] for name in ("id", "slug", "name", "walletAddress")} | {"role": "ADMIN"}
    assert data_of(await keyed.post(f"{path}/accept")) == accepted
    assert data_of(await client.post(f"{path}/accept")) == accepted, "its key may have been lost with the server"
    assert data_of(await client.get("/api/v1/me"))["workspaces"] == [accepted]
    assert data_of(await client.post(SELECT, {"workspaceId": inviter.id}))["role"] == "ADMIN"
    members = data_of(await inviter.wallet.get(f"{inviter.path}/members"))["items"]
    assert [(each["status"], each["invitationId"]) for each in members] == [("ACTIVE", None)] * 2


async def test_an_owner_withdraws_an_invitation_and_a_wallet_declines_one(world: World) -> None:
    inviter, guest = await world.party("CONSUMER"), world.account()
    members = f"{inviter.path}/members"
    body = {"walletAddress": guest.address, "role": "VIEWER"}
    client = Client(world, {"cookie": await world.login(guest)})
    first = data_of(await inviter.wallet.post(members, body))
    assert data_of(await inviter.wallet.post(members, body)) == first
    listed = data_of(await inviter.wallet.get(members))["items"]
    assert [each["status"] for each in listed] == ["ACTIVE", "INVITED"]
    assert data_of(await inviter.wallet.delete(f"{members}/{guest.address}")) == first
    gone = (404, "NOT_FOUND", "invitation:unknown")
    assert error_of(await client.post(f"/api/v1/me/invitations/{first['invitationId']}/accept")) == gone
    second = data_of(await inviter.wallet.post(members, body))["invitationId"]
    stranger = Client(world, {"cookie": await world.login(world.account())})
    for method in ("GET", "DELETE"):
        assert error_of(await stranger.call(method, f"/api/v1/me/invitations/{second}")) == gone
    assert data_of(await client.delete(f"/api/v1/me/invitations/{second}"))["id"] == second
    assert data_of(await client.get("/api/v1/me/invitations"))["items"] == []
    assert [each["status"] for each in data_of(await inviter.wallet.get(members))["items"]] == ["ACTIVE"]
    assert error_of(await inviter.wallet.post(members, body)) == (409, "CONFLICT", "invitation:declined")
