"""The URL of a database: its hosts, its password, and what is refused."""

import pytest

from sightline.storage.database.url import check_database_url, urls_of_hosts, without_password


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("postgresql://u@a/db", ["postgresql://u@a/db"]),
        ("postgresql:///db?host=/run/pg", ["postgresql:///db?host=/run/pg"]),
        (
            "postgresql://u:p%40@a:5432,[::1]:6432/db?target_session_attrs=read-write",
            [
                "postgresql://u:p%40@a:5432/db?target_session_attrs=read-write",
                "postgresql://u:p%40@[::1]:6432/db?target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql:///db?host=/run/a,/run/b&port=1,2",
            ["postgresql:///db?host=/run/a&port=1", "postgresql:///db?host=/run/b&port=2"],
        ),
        ("postgresql:///db?host=a,b&port=7", ["postgresql:///db?host=a&port=7", "postgresql:///db?host=b&port=7"]),
        ("postgresql:///db?host=a,b", ["postgresql:///db?host=a", "postgresql:///db?host=b"]),
    ],
)
def test_a_url_of_several_hosts_becomes_one_url_for_each(url: str, urls: list[str]) -> None:
    assert urls_of_hosts(url) == tuple(urls)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://u:hunter2@a/db", "postgresql://"),
        ("postgresql://u:hunter2@a,b/db", "target_session_attrs=read-write"),
        ("postgresql://u:hunter2@a,b/db?target_session_attrs=any", "target_session_attrs=read-write"),
        ("postgresql://u:hunter2@a/db?target_session_attrs=standby", "accept writes"),
        ("postgresql://u:hunter2@a:x,b:1/db?target_session_attrs=primary", "port"),
        ("postgresql:///db?host=a,b&port=1,2,3&target_session_attrs=primary&password=hunter2", "ports than hosts"),
        ("postgresql:///db?host=a&port=x&password=hunter2", "port"),
    ],
)
def test_a_url_that_cannot_lead_to_a_writable_host_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        check_database_url(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:p@a/db",
        "postgresql://u@a:5432,b:5432/db?target_session_attrs=read-write",
        "postgresql:///db?host=/run/a,/run/b&target_session_attrs=primary",
        "postgresql://u@a/db?target_session_attrs=any",
    ],
)
def test_a_url_whose_connections_accept_writes_is_taken(url: str) -> None:
    check_database_url(url)


@pytest.mark.parametrize(
    ("url", "cleaned", "password"),
    [
        (
            "postgresql://u:p%40ss@a:1,b:2/db?target_session_attrs=read-write",
            "postgresql://u@a:1,b:2/db?target_session_attrs=read-write",
            "p@ss",
        ),
        ("postgresql:///db?host=/run/pg&password=x", "postgresql:///db?host=/run/pg", "x"),
        ("postgresql:///db?host=/my%20data/pg", "postgresql:///db?host=/my%20data/pg", None),  # libpq reads + as it is
        ("postgresql://u@a/db", "postgresql://u@a/db", None),
    ],
)
def test_the_password_is_taken_out_of_a_url(url: str, cleaned: str, password: str | None) -> None:
    assert without_password(url) == (cleaned, password)
