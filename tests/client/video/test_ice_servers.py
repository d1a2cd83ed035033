"""The ICE servers of a Link header, as the Python clients read them."""

from sightline_client.video.whip_client import ice_servers_of


def a_turn(url: str, username: str = "u", credential: str = "c") -> str:
    return f'<{url}>; rel="ice-server"; username="{username}"; credential="{credential}"; credential-type="password"'


def test_a_relay_by_tls_comes_before_one_by_tcp_and_udp_because_aioice_uses_the_first():
    link = ", ".join([
        "<stun:stun.example:3478>; rel=ice-server",
        a_turn("turn:one.example"),
        a_turn("turn:two.example?transport=tcp"),
        a_turn("turns:three.example"),
    ])  # fmt: skip
    assert [server.urls for server in ice_servers_of(link)] == [
        "turns:three.example",
        "turn:two.example?transport=tcp",
        "stun:stun.example:3478",
        "turn:one.example",
    ]


def test_credentials_may_hold_the_signs_that_separate_links():
    (server,) = ice_servers_of(a_turn("turn:one.example", "1795505353:a;b", 'c, <d>=\\"e\\\\'))
    assert (server.username, server.credential) == ("1795505353:a;b", 'c, <d>="e\\')


def test_links_that_name_no_usable_server_are_left_out():
    link = ", ".join([
        '<https://docs.example/>; rel="help"',
        '<turn:no-credentials.example>; rel="ice-server"',
        '<turn:bad:port>; rel="ice-server"; username="u"; credential="c"',
        "nonsense",
    ])  # fmt: skip
    assert ice_servers_of(link) == []
