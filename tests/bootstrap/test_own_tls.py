"""The authority and the certificate of --tls auto."""

from pathlib import Path

import pytest
from cryptography import x509

from sightline.bootstrap.listeners.own_tls import CA, CA_KEY, FOLDER, OwnTls, issue
from sightline.bootstrap.process import devices_text
from sightline.config import SettingsError, load_settings
from sightline.system.ids import SystemIds

NOW_MS = 1_800_000_000_000


def issued(directory: Path, address: str | None = "192.168.1.20", now_ms: int = NOW_MS) -> OwnTls:
    return issue(directory, SystemIds(), now_ms, address, "Harbour.example.org")


def names_of(found: OwnTls) -> list[str]:
    certificate = x509.load_pem_x509_certificates(found.certificate.read_bytes())[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(each.value) for each in names]


def test_the_certificate_names_the_address_the_name_and_loopback(tmp_path: Path):
    found = issued(tmp_path)
    assert names_of(found) == ["localhost", "harbour.local", "192.168.1.20", "127.0.0.1", "::1"]
    assert found.address == "192.168.1.20"


@pytest.mark.parametrize("address", ["203.0.113.5", None])
def test_without_a_private_address_only_loopback_is_named(tmp_path: Path, address: str | None):
    found = issued(tmp_path, address)
    assert names_of(found) == ["localhost", "harbour.local", "127.0.0.1", "::1"]
    assert found.address == "127.0.0.1"


def test_phones_are_told_what_to_install_or_that_none_can_open_the_server(tmp_path: Path):
    told = devices_text("https://192.168.1.20:8443", issued(tmp_path))
    assert "install the authority from https://192.168.1.20:8443/ca.crt" in told
    assert "█" in told, "the code"
    for address, found in (("203.0.113.5", "it has 203.0.113.5"), (None, "it has no network")):
        none = devices_text("https://127.0.0.1:8443", issued(tmp_path, address))
        assert none.startswith("\nNo phone can open https://127.0.0.1:8443/")
        assert found in none
        assert "█" not in none


def test_the_authority_stays_and_verifies_the_certificate_of_each_start(tmp_path: Path):
    first, second = issued(tmp_path), issued(tmp_path, "10.0.0.7", NOW_MS + 86_400_000)
    assert first.ca == second.ca
    assert first.fingerprint == second.fingerprint
    chain = x509.load_pem_x509_certificates(second.certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(first.ca)
    chain[0].verify_directly_issued_by(authority)
    limits = authority.extensions.get_extension_for_class(x509.NameConstraints)
    assert limits.critical
    assert "0.0.0.0/0" not in {str(each.value) for each in limits.value.permitted_subtrees or ()}


def test_a_damaged_authority_is_reported_and_not_replaced(tmp_path: Path):
    issued(tmp_path)
    other = tmp_path / "other"
    issued(other)
    (tmp_path / FOLDER / CA_KEY).write_bytes((other / FOLDER / CA_KEY).read_bytes())
    before = (tmp_path / FOLDER / CA).read_bytes()
    with pytest.raises(ValueError, match="is not the key of"):
        issued(tmp_path)
    assert (tmp_path / FOLDER / CA).read_bytes() == before


def test_tls_auto_listens_on_every_address_unless_one_is_set_and_sends_no_hsts():
    settings = load_settings({"SIGHTLINE_TLS_AUTO": "true"}).settings
    assert settings.host == "0.0.0.0"
    assert settings.is_https
    assert settings.strict_transport_s is None
    chosen = load_settings({"SIGHTLINE_TLS_AUTO": "true", "SIGHTLINE_HOST": "192.168.1.20"}).settings
    assert chosen.host == "192.168.1.20"
    with pytest.raises(SettingsError, match="cannot be combined"):
        load_settings({"SIGHTLINE_TLS_AUTO": "true", "SIGHTLINE_TLS_CERT": "a.pem", "SIGHTLINE_TLS_KEY": "b.pem"})
