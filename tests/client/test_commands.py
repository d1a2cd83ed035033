"""`sightline dev` and the commands of a consumer: signup, login, keys, request, end, watch, listen."""

import base64
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import av
import httpx
import pytest
import simplejpeg
from standardwebhooks.webhooks import Webhook

from sightline.chain.contracts.abi import call_data
from sightline.domain.books.statement import Month
from sightline.system.clock import SystemClock
from sightline_client import Chain, Sightline
from sightline_client.commands.access import SCOPES
from sightline_client.money import MicroUsdc
from sightline_client.wallet import LocalWallet

MICRO = 1_000_000
COMMAND = [sys.executable, "-m", "sightline.cli"]


def sightline(dev: dict[str, Any], *arguments: str, code: int = 0, **env: str) -> str:
    """Run a command with the consumer's key. Returns stdout, or stderr if a failure is expected."""
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    done = subprocess.run(
        [*COMMAND, *arguments], env=os.environ | known | env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_watch_saves_frames_ends_the_session_and_prints_a_receipt_that_adds_up(
    dev: dict[str, Any], tmp_path: Path
) -> None:
    place = (str(dev["lat"]), str(dev["lng"]))
    said = json.loads(
        sightline(dev, "watch", *place, "--count", "4", "--width", "320", "--out", str(tmp_path), "--json")
    )
    frames = sorted(tmp_path.glob("*.jpg"))
    assert said["frames"] == len(frames) == 4
    assert simplejpeg.decode_jpeg_header(frames[0].read_bytes())[1] == 320
    assert said["settlementTxHash"].startswith("0x")
    assert said["endReason"] == "CONSUMER_ENDED"
    price = sightline(dev, "watch", *place, "--seconds", "600", "--max-charge", "0.01", code=1)
    assert "s fit; for more, raise --max-charge." in price
    assert len(price.splitlines()) == 1
    assert "Raise --max-charge." in sightline(dev, "watch", *place, "--max-charge", "0.000001", code=1)


def test_watch_says_that_the_operator_ended_its_session(dev: dict[str, Any], tmp_path: Path) -> None:
    place = (str(dev["lat"]), str(dev["lng"]))
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    for flags in ((), ("--json",)):
        watch = subprocess.Popen(
            [*COMMAND, "watch", *place, "--out", str(tmp_path), *flags],
            env=os.environ | known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with watch, Sightline(dev["url"], dev["operatorKey"]) as operator:
            assert watch.stderr is not None
            while "ms old" not in (line := watch.stderr.readline()) and "ageMs" not in line:
                assert line
            (session,) = operator.sessions.page(view="operator", state=["LIVE"]).items
            operator.sessions.end(session.id)
            printed, said = watch.communicate(timeout=60)
        assert watch.returncode == 0, said
        if flags:
            assert json.loads(printed)["endReason"] == "OPERATOR_ENDED"
        else:
            assert f"Session {session.id} has ended: the operator ended it." in said.splitlines()


def test_who_asks_where_nobody_is_hears_of_it_before_the_wait(dev: dict[str, Any], tmp_path: Path) -> None:
    said = sightline(dev, "watch", "-33.86", "151.2", "--wait", "6", "--out", str(tmp_path), code=1)
    requested, first, last = said.splitlines()
    assert re.fullmatch(r"Session \S{36} is requested\. It costs at most \S+ USDC, \S+ USDC a minute\.", requested)
    assert first == "No operator is available at -33.86, 151.2 now. Waiting for one, at most 6 s."
    assert "No operator was available at -33.86, 151.2 within 6 s. The request was withdrawn and costs nothing." in last
    assert "--wait" in last
    said = sightline(dev, "watch", "-33.86", "151.2", "--wait", "6", "--out", str(tmp_path), "--json", code=1)
    named, waits, error = map(json.loads, said.splitlines())
    assert list(named) == ["sessionId", "holdMicroUsdc"]
    assert waits == {"warning": first}
    assert (error["code"], error["sessionId"]) == ("NoOperatorError", named["sessionId"]), (
        "under --json stderr has JSON alone"
    )


def test_a_request_that_finds_no_operator_is_cancelled(dev: dict[str, Any]) -> None:
    """No operator may accept it later and film at the cost of a consumer who was told that it failed."""
    said = json.loads(sightline(dev, "request", "-33.86", "151.2", "--json", code=1))
    assert said["code"] == "NoOperatorError"
    assert "No operator was available at -33.86, 151.2 now." in said["message"]
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        newest = next(iter(sl.sessions.list(limit=1)))
    assert (newest.requested_lat, newest.state) == (-33.86, "CANCELLED")


def test_the_receipt_of_a_session_that_was_requested_and_ended_is_verified(dev: dict[str, Any]) -> None:
    session_id = json.loads(sightline(dev, "request", str(dev["lat"]), str(dev["lng"]), "--json"))["id"]
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        while sl.sessions.get(session_id).clean_seconds == 0:
            assert not sl.sessions.get(session_id).state.is_over
        assert f"sightline end {session_id}" in sightline(dev, "receipt", session_id, code=1)
        charged = sl.sessions.end(session_id).charged_micro_usdc
        config = sl.config()
    said = json.loads(sightline(dev, "receipt", session_id, "--json"))
    assert (said["chargedMicroUsdc"], said["settlementTxHash"][:2]) == (str(charged), "0x")
    assert set(said["checks"].values()) == {"passed"}
    shown = sightline(dev, "receipt", session_id)
    assert f"{charged.usdc} USDC, paid in {said['settlementTxHash']}" in shown
    assert 0 < int(said["platformFeeMicroUsdc"]) < charged
    assert f"of which {MicroUsdc(int(said['platformFeeMicroUsdc'])).usdc} USDC are the platform's fee" in shown
    assert shown.count("  checked ") == len(said["checks"])
    foreign = f"{config.chain_id},0x{'11' * 20},{config.usdc_address}"
    assert "The receipt is wrong" in sightline(dev, "receipt", session_id, "--deployment", foreign, code=1)
    line = [*COMMAND, "receipt", session_id, "--rpc-url", "http://127.0.0.1:9"]
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    unanswered = subprocess.run(line, env=os.environ | known, capture_output=True, text=True, timeout=90, check=False)
    assert unanswered.returncode == 1
    assert unanswered.stdout.count("  checked ") == len(said["checks"]) - 1, "all but the payment"
    assert "no answer from the node" in unanswered.stderr


def test_watch_fails_if_no_frame_came(dev: dict[str, Any], tmp_path: Path) -> None:
    """The workspace is ONLINE, and its device sends no video."""
    place = {"lat": -10.0, "lng": 20.0}
    made = json.loads(sightline(dev, "signup", "--role", "SUPPLIER", "--json", SIGHTLINE_WALLET_KEY=""))
    watch = [*COMMAND, "watch", "--seconds", "10", "--out", str(tmp_path), "--json", "--", "-10", "20"]
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    with Sightline(dev["url"], made["apiKey"]) as sl:
        coverage = {"coverageLat": place["lat"], "coverageLng": place["lng"], "coverageRadiusMeters": 100}
        path = f"/workspaces/{made['workspaceId']}"
        sl.call("PATCH", path, {"availabilityState": "ONLINE"} | coverage)
        with subprocess.Popen(watch, env=os.environ | known, stdout=subprocess.PIPE, text=True) as process:
            while not (found := sl.sessions.page(view="operator", state=["ASSIGNED"]).items):
                assert process.poll() is None
            sl.sessions.start(found[0].id)
            printed, _ = process.communicate(timeout=90)
        sl.call("PATCH", path, {"availabilityState": "OFFLINE"})
    assert process.returncode == 1
    assert json.loads(printed)["frames"] == 0


@pytest.mark.parametrize("content", [None, b"no video"], ids=["missing", "no video"])
def test_a_device_whose_file_cannot_be_published_takes_no_session(
    dev: dict[str, Any], tmp_path: Path, content: bytes | None
) -> None:
    source = tmp_path / "clip.mp4"
    if content is not None:
        source.write_bytes(content)
    key = {"SIGHTLINE_API_KEY": dev["operatorKey"]} if "operatorKey" in dev else {}
    said = sightline(dev, "device", "--lat", "1", "--lng", "2", "--source", str(source), code=1, **key)
    assert said.splitlines()[-1].startswith(f"cannot read {source}")
    assert said.endswith("Check --source.\n")


@pytest.mark.parametrize("command", ["watch", "request"])
def test_coordinates_of_the_south_and_the_west_are_no_options(dev: dict[str, Any], command: str) -> None:
    price = json.loads(sightline(dev, command, "-33.86", "-151.2", "--max-charge", "0.000001", "--json", code=1))
    assert (price["code"], "Raise --max-charge." in price["message"]) == ("MaxChargeError", True)
    assert "No such option: --cuont" in sightline(dev, command, "-33.86", "151.2", "--cuont", "2", code=2)


def test_a_statement_of_this_month_has_the_sessions_that_were_settled_and_no_invoice_yet(
    dev: dict[str, Any], tmp_path: Path
) -> None:
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        with sl.view(dev["lat"], dev["lng"], seconds=60) as view:
            for _ in view.frames(fps=2):  # a view that ends before its first proof costs nothing, and has no entry
                if sl.sessions.meter(view.session.id).clean_seconds > 0:
                    break
        watched = view.receipt().session
    month = Month.of(SystemClock().now_ms()).name
    charges: dict[str, str] = {}
    for _ in range(60):  # the watcher reads the block of the settlement soon after the relayer
        found = json.loads(sightline(dev, "statement", month, "--json"))
        charges = {each["sessionId"]: each["chargedMicroUsdc"] for each in found["consumer"]["items"]}
        if watched.id in charges:
            break
    assert charges[watched.id] == str(watched.charged_micro_usdc)
    assert (found["isClosed"], found["consumer"]["invoice"]) == (False, None)
    said = sightline(dev, "statement", month, "--pdf", str(tmp_path / "statement.pdf"))
    assert (tmp_path / "statement.pdf").read_bytes().startswith(b"%PDF-")
    assert f"{month}, open, in USDC of a TEST network" in said
    assert said.splitlines()[-1] == f"{tmp_path / 'statement.pdf'}: the statement of {month} as PDF"
    assert watched.id in said


def test_watch_saves_signed_frames_that_verify_accepts(dev: dict[str, Any], tmp_path: Path) -> None:
    place = (str(dev["lat"]), str(dev["lng"]))
    verdicts, saved = [], []
    for directory, option in ((tmp_path / "signed", ["--signed"]), (tmp_path / "plain", [])):
        sightline(dev, "watch", *place, "--count", "1", "--out", str(directory), *option)
        (file,) = directory.glob("*.jpg")
        saved.append(str(file))
        command = [*COMMAND, "verify", str(file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        verdicts.append((done.returncode, json.loads(done.stdout)["verdict"]))
    assert verdicts == [(1, "untrusted"), (1, "unsigned")], "without --root no signer is trusted"
    both = subprocess.run([*COMMAND, "verify", *saved, "--json"], capture_output=True, text=True, check=False)
    assert both.returncode == 1
    lines = map(json.loads, both.stdout.splitlines())
    assert [(line["file"], line["verdict"]) for line in lines] == list(
        zip(saved, ["untrusted", "unsigned"], strict=True)
    )


def test_clip_saves_the_last_seconds_and_verify_accepts_them(dev: dict[str, Any], tmp_path: Path) -> None:
    with Sightline(dev["url"], dev["consumerKey"]) as sl, sl.view(dev["lat"], dev["lng"], seconds=120) as view:
        next(frame for frame in view.frames() if frame.location is not None)  # the device's first heartbeat
        taken = view.clip(2)
        options = ("--seconds", "2", "--signed", "--json", "--out", str(tmp_path / "last"))
        said = json.loads(sightline(dev, "clip", view.session.id, *options))
    assert taken.location is not None
    assert (taken.suffix, taken.width, taken.meter_state) == (".mp4", 1280, "RUNNING")
    assert said["file"] == str(tmp_path / "last.mp4")
    with av.open(said["file"]) as container:
        assert sum(1 for _ in container.decode(video=0)) == said["frames"] > 0
    root = tmp_path / "root.pem"
    root.write_text(httpx.get(f"{dev['url']}/.well-known/sightline-certificates.pem").text)
    checked = sightline(dev, "verify", said["file"], "--root", str(root))
    assert view.session.id in checked
    [captured] = (line for line in checked.splitlines() if line.startswith("  captured     "))
    assert captured.endswith(("(clock of the operator's device)", "(clock of the service, when it arrived)"))


def test_watch_ends_its_session_when_it_is_terminated(dev: dict[str, Any], tmp_path: Path) -> None:
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    place = (str(dev["lat"]), str(dev["lng"]))
    watch = subprocess.Popen(
        [*COMMAND, "watch", *place, "--seconds", "600", "--out", str(tmp_path), "--json"],
        env=os.environ | known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with watch:
        assert watch.stderr is not None
        said = (json.loads(line) for line in watch.stderr)
        named, saved = next(said), next(each for each in said if "warning" not in each)
        assert saved.keys() == {"sessionId", "frame", "ageMs", "meterState"}
        assert named["sessionId"] == saved["sessionId"]
        watch.terminate()
        printed, _ = watch.communicate(timeout=60)
    assert watch.returncode == 0
    over = json.loads(sightline(dev, "end", json.loads(printed)["id"], "--json"))
    assert over["state"] == "ENDED", "ending a session that is over changes nothing"


def test_json_is_what_the_http_interface_answers(dev: dict[str, Any]) -> None:
    requested = json.loads(sightline(dev, "request", str(dev["lat"]), str(dev["lng"]), "--json"))
    printed = json.loads(sightline(dev, "end", requested["id"], "--json"))
    answer = httpx.get(
        f"{dev['url']}/api/v1/sessions/{requested['id']}", headers={"authorization": f"Bearer {dev['consumerKey']}"}
    )
    paid_later = {"settlementTxHash"}
    assert {name: printed[name] for name in printed.keys() - paid_later} == {
        name: value for name, value in answer.json()["data"].items() if name not in paid_later
    }


def test_a_quote_requests_nothing_and_says_rate_price_and_operators(dev: dict[str, Any]) -> None:
    place, asked = (str(dev["lat"]), str(dev["lng"])), {"lat": dev["lat"], "lng": dev["lng"], "durationSeconds": 600}
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        before = sl.sessions.page(limit=1).items
        printed = json.loads(sightline(dev, "quote", *place, "--seconds", "600", "--json"))
        answered = sl.call("GET", "/pricing/quote", query=asked)
        own = {"quoteId", "expiresAt"}
        assert printed.keys() == answered.keys()
        assert {name: printed[name] for name in printed.keys() - own} == {
            name: answered[name] for name in answered.keys() - own
        }
        rate, total = (printed[f"{name}MicroUsdc"] for name in ("ratePerSecond", "estimatedTotal"))
        shown = sightline(dev, "quote", *place, "--seconds", "600").splitlines()
        assert shown[0] == f"{int(rate) / MICRO} USDC a second, at most {int(total) / MICRO} USDC for 600 s"
        assert "operator" in shown[1]
        assert "no operator is known to be free" in sightline(dev, "quote", "-33.86", "-151.2")
        assert sl.quote(dev["lat"], dev["lng"]).duration_seconds == 300
        assert sl.sessions.page(limit=1).items == before


def test_the_wallet_says_what_its_limits_leave_for_a_session(dev: dict[str, Any]) -> None:
    made = json.loads(sightline(dev, "signup", "--json", SIGHTLINE_WALLET_KEY=""))
    key, owner = {"SIGHTLINE_API_KEY": made["apiKey"]}, LocalWallet.from_key(made["walletKey"])
    with Sightline(dev["url"], made["apiKey"]) as sl:
        assert "none set" in sightline(dev, "wallet", **key)
        assert "no mandate is needed" in sightline(dev, "mandate", **key)
        for change in (("--per-session", "1", "--per-day", "2"), ("--revoke",)):
            assert "no mandate is needed" in sightline(dev, "mandate", *change, code=1, **key)
        sl.call("POST", "/wallet/faucet", {"amountMicroUsdc": "5000000"})
        config = sl.config()
        chain = Chain(config.rpc_url)
        chain.approve(owner, token=config.usdc_address, spender=config.settlement_address, amount=3_000_000)
        data = "0x" + call_data("setLimits(uint256,uint256)", [250_000, 2_000_000]).hex()
        chain.send(owner, to=config.settlement_address, data=data, gas=200_000)
        while sl.wallet.get().limits is None:
            pass
        answered = sl.call("GET", "/wallet")
    printed = json.loads(sightline(dev, "wallet", "--json", **key))
    changing = {"lastSyncBlock", "updatedAt"}
    assert printed.keys() - answered.keys() == {"spendableMicroUsdc"}
    assert printed["spendableMicroUsdc"] == "250000"
    assert {name: printed[name] for name in answered.keys() - changing} == {
        name: answered[name] for name in answered.keys() - changing
    }
    shown = " ".join(sightline(dev, "wallet", **key).split())
    for said in (
        "balance 5 ",
        "allowance 3 ",
        "0.25 a session 2 a day (UTC), of which 2 are left",
        "spendable 0.25 for",
    ):
        assert said in shown


def test_an_error_under_json_is_the_error_of_the_http_interface(dev: dict[str, Any]) -> None:
    unknown = "3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50"
    said = json.loads(sightline(dev, "end", unknown, "--json", code=1))
    assert (said["statusCode"], said["code"]) == (404, "SESSION_NOT_FOUND")
    assert said["requestId"]
    said = json.loads(sightline(dev, "request", "1", "2", "--max-charge", "cheap", "--json", code=2))
    assert said["code"] == "UsageError"
    assert "cheap is not an amount of USDC" in said["message"]
    said = json.loads(sightline(dev, "end", unknown, "--json", code=1, SIGHTLINE_URL="localhost"))
    assert said["code"] == "InvalidArgumentError"


def test_a_wallet_lists_accepts_and_declines_invitations(dev: dict[str, Any]) -> None:
    owner, other, guest = (json.loads(sightline(dev, "signup", "--json", SIGHTLINE_WALLET_KEY="")) for _ in range(3))
    wallet = {"SIGHTLINE_WALLET_KEY": guest["walletKey"]}
    invited = []
    for inviter in (owner, other):
        with Sightline(dev["url"]) as sl:
            sl.auth.sign_in(LocalWallet.from_key(inviter["walletKey"]), workspace_id=inviter["workspaceId"])
            member = sl.workspaces.add_member(
                inviter["workspaceId"], wallet_address=guest["walletAddress"], role="VIEWER"
            )
            assert member.status == "INVITED"
            invited.append(str(member.invitation_id))
    listed = sightline(dev, "invitations", "list", **wallet).splitlines()
    assert [line.split()[0] for line in listed] == invited
    assert owner["walletAddress"] in listed[0]
    assert sightline(dev, "invitations", "accept", invited[0], **wallet) == f"VIEWER of {owner['slug']}\n"
    assert other["slug"] in sightline(dev, "invitations", "decline", invited[1], **wallet)
    assert sightline(dev, "invitations", "list", **wallet) == "There are no open invitations.\n"
    assert sightline(dev, "invitations", "list", "--json", **wallet) == ""
    assert sightline(dev, "invitations", "accept", invited[0], **wallet) == f"VIEWER of {owner['slug']}\n", "again"
    assert "declined or withdrawn" in sightline(dev, "invitations", "accept", invited[1], code=1, **wallet)
    assert "Name one with --workspace" in sightline(dev, "login", code=1, **wallet), "two workspaces: it asks"
    assert guest["walletAddress"] in sightline(dev, "login", "--workspace", guest["slug"], **wallet)


def test_a_wallet_signs_up_gets_funds_logs_in_and_manages_its_keys(dev: dict[str, Any]) -> None:
    data = dev["dataDir"]
    where = {"SIGHTLINE_WALLET_KEY": "", "SIGHTLINE_DATA_DIR": data}
    made = json.loads(sightline(dev, "signup", "--fund", "5", "--json", **where))
    wallet = {"SIGHTLINE_WALLET_KEY": made["walletKey"]}
    key = json.loads(sightline(dev, "login", "--json", **wallet))
    listed = [json.loads(line) for line in sightline(dev, "keys", "list", "--json", **wallet).splitlines()]
    assert {each["label"] for each in listed} == {"signup", "login"}
    assert "plaintext" not in listed[0]
    assert "works until" in sightline(dev, "keys", "revoke", key["keyId"], **wallet)
    mint = ("keys", "mint", "agent", "--scope", "sessions:read", "--per-session", "0.05", "--per-day", "1", "--json")
    limits = json.loads(sightline(dev, *mint, **wallet))["limits"]
    default = json.loads(sightline(dev, "keys", "mint", "other", "--json", **wallet))
    assert sorted(default["scopes"]) == sorted(SCOPES["CONSUMER"])
    assert "agent   sessions:read  at most 0.05 USDC a session, 1 USDC a d" in sightline(dev, "keys", "list", **wallet)
    sightline(dev, "signup", "--role", "SUPPLIER", "--slug", f"second-{made['slug']}"[:32], **wallet)
    assert "Name one with --workspace" in sightline(dev, "keys", "list", code=1, **wallet)
    of_key = sightline(dev, "keys", "list", **wallet, SIGHTLINE_API_KEY=made["apiKey"])
    assert "agent" in of_key, "of the workspace of the key"
    wallet["SIGHTLINE_API_KEY"] = made["apiKey"]
    assert limits == {"perSessionMicroUsdc": "50000", "perDayMicroUsdc": "1000000"}
    paid = {"SIGHTLINE_API_KEY": made["apiKey"]}
    session = json.loads(sightline(dev, "request", str(dev["lat"]), str(dev["lng"]), "--json", **paid))
    assert session["state"] == "ASSIGNED"
    over = json.loads(sightline(dev, "end", session["id"], "--json", **paid))
    assert over["state"] in {"ENDED", "CANCELLED"}
    assert "Run `sightline signup`" in sightline(dev, "login", code=1, SIGHTLINE_WALLET_KEY="0x" + "77" * 32)


def test_the_directory_that_was_given_to_dev_has_the_faucet_and_a_wrong_one_names_the_way_on(
    dev: dict[str, Any], tmp_path: Path
) -> None:
    def signup(directory: Path) -> "subprocess.CompletedProcess[str]":
        env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_WALLET_KEY": ""}
        line = [*COMMAND, "signup", "--fund", "5", "--data-dir", str(directory)]
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=90, check=False)

    done = signup(Path(dev["dataDir"]).parent)
    assert (done.returncode, done.stderr) == (
        0, "The wallet got 5 test USDC, and lets the service take as much for its sessions.\n",
    )  # fmt: skip
    wrong = signup(tmp_path)
    assert wrong.returncode == 1
    assert "export SIGHTLINE_API_KEY=" in wrong.stdout
    assert wrong.stderr.startswith("The workspace and its key exist, but the faucet failed: No embedded chain")
    assert wrong.stderr.count("running server") == 1
    assert re.search(r"`sightline faucet 0x\w{40} 5 --data-dir DIRECTORY`, then `sightline approve 5`", wrong.stderr)


def test_a_wallet_without_funds_is_told_what_it_needs_and_approve_gives_the_allowance(dev: dict[str, Any]) -> None:
    def said(*arguments: str, **env: str) -> tuple[str, str]:
        known = {"SIGHTLINE_URL": dev["url"]}
        line = [*COMMAND, *arguments]
        done = subprocess.run(
            line, env=os.environ | known | env, capture_output=True, text=True, timeout=90, check=True
        )
        return done.stdout, done.stderr

    made, empty = said("signup", "--json", SIGHTLINE_WALLET_KEY="")
    new = json.loads(made)
    env = {"SIGHTLINE_API_KEY": new["apiKey"], "SIGHTLINE_WALLET_KEY": new["walletKey"]}
    warning = json.loads(empty)["warning"]
    assert f"The wallet is empty. Send USDC to {new['walletAddress']}, then run `sightline approve 5`" in warning
    assert f"`sightline faucet {new['walletAddress']} 5`" in warning

    place = (str(dev["lat"]), str(dev["lng"]))
    session_id, warned = said("request", *place, **env)
    with Sightline(dev["url"], new["apiKey"]) as sl:
        while sl.sessions.get(session_id.strip()).accrued_micro_usdc == 0:
            pass
    said("end", session_id.strip(), **env)
    assert "The wallet covers nothing of the" in warned
    assert f"`sightline receipt {session_id.strip()}` says why" in said("wallet", **env)[0]
    assert ", not paid" in said("sessions", **env)[0]
    assert f"Send USDC to {new['walletAddress']}: its balance is 0. Run `sightline approve " in warned

    without_gas = sightline(dev, "approve", "5", code=1, **env)
    assert f"The wallet {new['walletAddress']} has 0 of the chain's native coin" in without_gas
    said("faucet", new["walletAddress"], "5", "--data-dir", dev["dataDir"])
    allowed = json.loads(said("approve", "5", "--json", **env)[0])
    assert (allowed["owner"], allowed["value"]) == (new["walletAddress"], "5000000")

    def is_funded() -> bool:
        wallet = json.loads(said("wallet", "--json", **env)[0])
        return int(wallet["trackedAllowance"]) > 4 * MICRO and wallet["heldMicroUsdc"] == "0"

    assert any(is_funded() for _ in range(60)), "the service reads the chain, and is paid what the first session cost"
    session_id, warned = said("request", *place, **env)
    said("end", session_id.strip(), **env)
    assert "wallet" not in warned
    lower = said("approve", "3", **env)[0]
    assert re.search(r" to take 3 USDC, in place of [45](\.\d+)? USDC: 0x", lower), lower
    other = sightline(dev, "approve", "5", code=1, SIGHTLINE_WALLET_KEY=new["walletKey"])
    assert "is not that of the API key's workspace" in other


def test_the_link_of_dev_opens_the_console_with_the_consumers_wallet(dev: dict[str, Any]) -> None:
    assert dev["consoleUrl"] == f"{dev['url']}/console/#/start?testWallet={dev['consumerWalletKey']}"


def test_operators_commands_print_json(dev: dict[str, Any]) -> None:
    data = ("--data-dir", dev["dataDir"])
    (server,) = [json.loads(line) for line in sightline(dev, "actors", "--json", *data).splitlines()]
    assert server["kinds"]["session"]["parked"] == {}
    assert server["node"] == json.loads(sightline(dev, "nodes", "--json", *data))["items"][0]["name"]
    for line in sightline(dev, "settlements", "--json", *data).splitlines():
        assert json.loads(line)["state"] != "CONFIRMED"
    listed = [json.loads(line) for line in sightline(dev, "config", "--json", SIGHTLINE_PORT="8099").splitlines()]
    (port,) = [each for each in listed if each["variable"] == "SIGHTLINE_PORT"]
    assert (port["value"], port["source"]) == (8099, "environment")
    paid = json.loads(sightline(dev, "faucet", "0x" + "11" * 20, "7", "--json", *data))
    assert (paid["amountMicroUsdc"], paid["txHash"][:2]) == ("7000000", "0x")


def test_the_commands_read_server_and_key_from_a_file(dev: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "sightline.toml"
    path.write_text(f'[client]\nurl = "{dev["url"]}"\napi_key = "{dev["consumerKey"]}"\n')
    known = {"SIGHTLINE_CONFIG": str(path), "SIGHTLINE_URL": "", "SIGHTLINE_API_KEY": ""}
    session = json.loads(sightline(dev, "request", str(dev["lat"]), str(dev["lng"]), "--json", **known))
    assert session["state"] == "ASSIGNED"
    sightline(dev, "end", session["id"], **known)


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (("watch", "1", "2"), {"SIGHTLINE_API_KEY": ""}, "`sightline signup` creates a key"),
        (("request", "1", "2"), {"SIGHTLINE_API_KEY": "svc_test_wrong"}, "sightline login"),
        (("login",), {"SIGHTLINE_WALLET_KEY": ""}, "create one with `sightline signup`"),
        (("login",), {"SIGHTLINE_WALLET_KEY": "0x12"}, "64 hex digits"),
        (("keys", "list"), {"SIGHTLINE_CONFIG": "/nowhere.toml"}, "Cannot read /nowhere.toml"),
        (("actors", "--data-dir", "/nowhere"), {}, "Start one with `sightline serve --data-dir /nowhere`"),
        (("device", "--lat", "1", "--lng", "2"), {"SIGHTLINE_API_KEY": ""}, "signup --role SUPPLIER"),
        (("end", "00000000-0000-4000-8000-000000000000"), {}, "Check the id"),
        (
            ("faucet", "0x" + "11" * 20, "5", "--data-dir", "/nowhere"),
            {},
            "Name the data directory of a running server",
        ),
    ],
)
def test_an_error_is_one_line_that_names_the_next_step(
    dev: dict[str, Any], arguments: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    printed = sightline(dev, *arguments, code=1, **env)
    assert said in printed
    assert len(printed.splitlines()) == 1


def test_listen_prints_the_current_state_first(dev: dict[str, Any]) -> None:
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    line = [*COMMAND, "listen", "--json"]
    process = subprocess.Popen(
        line, env=os.environ | known, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    process.kill()
    process.wait(10)
    process.stdout.close()
    assert (first["event"], first["data"]["roles"]) == ("workspace", ["CONSUMER"])


@pytest.mark.parametrize("flags", [(), ("--json",)])
@pytest.mark.parametrize("command", ["end", "listen"])
def test_a_command_names_the_server_that_is_down_before_it_gives_up_and_keeps_stdout_clean(
    command: str, flags: tuple[str, ...]
) -> None:
    with socket.socket() as reserved:  # bound and not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        process = subprocess.Popen(
            [*COMMAND, command, "00000000-0000-4000-8000-000000000000", *flags],
            env=os.environ | {"SIGHTLINE_URL": url, "SIGHTLINE_API_KEY": "svc_test_abcdef_" + "0" * 43},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        line = process.stderr.readline()
        assert process.poll() is None, "it still tries"
        process.kill()
        stdout, _ = process.communicate(timeout=30)
    said = json.loads(line)["warning"] if flags else line
    assert url in said
    assert "Trying again for at most 16 s." in said
    assert stdout == ""


@contextmanager
def a_program() -> Iterator[tuple[str, "Queue[tuple[bytes, dict[str, str]]]"]]:
    """Run a program on this machine that takes webhooks: its URL, and the bodies and headers that it got."""
    calls: Queue[tuple[bytes, dict[str, str]]] = Queue()

    class Program(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls.put((self.rfile.read(int(self.headers["content-length"])), dict(self.headers)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    with HTTPServer(("127.0.0.1", 0), Program) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", calls
        finally:
            server.shutdown()
            serving.join()


def test_the_key_of_dev_registers_a_webhook_of_a_local_program(dev: dict[str, Any]) -> None:
    with a_program() as (url, calls), Sightline(dev["url"], dev["consumerKey"]) as sl:
        made = sl.webhooks.create(url, event_types=["session.ended"])
        sl.webhooks.ping(made.id)
        told = Webhook(made.secret).verify(*calls.get(timeout=60))
        sl.webhooks.delete(made.id)
    assert told["type"] == "webhook.ping"


def test_listen_forwards_signed_webhooks_to_a_local_program(dev: dict[str, Any]) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    wanted = ["session.requested", "session.assigned", "session.live", "session.ended"]
    known = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"], "WEBHOOK_SECRET": secret}
    with a_program() as (url, calls):

        def got() -> dict[str, Any]:
            found: dict[str, Any] = Webhook(secret).verify(*calls.get(timeout=60))
            return found

        line = [*COMMAND, "listen", "--forward-to", url, "--json"]
        listen = subprocess.Popen(line, env=os.environ | known, stdout=subprocess.PIPE, text=True)
        try:
            assert listen.stdout is not None
            assert json.loads(listen.stdout.readline()) == {"url": url, "secret": secret}
            place = (str(dev["lat"]), str(dev["lng"]))
            session = json.loads(sightline(dev, "request", *place, "--json"))
            seen = [got() for _ in wanted[:3]]
            said = sightline(dev, "extend", session["id"], "--seconds", "60")
            assert re.fullmatch(
                r"\S+ has 60 s more, \d+ s in all, ends at .*, and costs at most \d\S* USDC in all\n", said
            ), said
            while seen[-1]["type"] != "session.extended":
                seen.append(got())
            assert seen[-1]["data"]["maxDurationSeconds"] == session["maxDurationSeconds"] + 60
            sightline(dev, "end", session["id"])
            while seen[-1]["type"] != "session.ended":  # a slow machine pauses it first
                seen.append(got())
            printed = [json.loads(listen.stdout.readline()) for _ in seen]
        finally:
            listen.kill()
            listen.wait(10)
            listen.stdout.close()
    assert [each["type"] for each in seen] == [each["type"] for each in printed]
    assert [each["type"] for each in seen if each["type"] in wanted] == wanted
    assert {each["status"] for each in printed} == {204}
    assert {each["data"]["id"] for each in seen} == {session["id"]}
    assert [each["data"]["sequence"] for each in seen] == sorted(each["data"]["sequence"] for each in seen)
    assert not {"whepUrl", "whipUrl"} & seen[2]["data"].keys()


def test_completion_is_offered_for_the_shell() -> None:
    env = os.environ | {"_SIGHTLINE_COMPLETE": "complete_bash", "COMP_WORDS": "sightline wat", "COMP_CWORD": "1"}
    program = str(Path(sys.executable).parent / "sightline")
    done = subprocess.run([program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["watch"]
