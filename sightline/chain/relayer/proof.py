"""Compares a settlement with the recorded session before it is signed."""

from sightline.ports.ledger import SessionProof, SettlementRecord


def why_unproved(record: SettlementRecord, proof: SessionProof | None) -> str | None:
    """Return why a settlement must not be signed; None if the ended session and its hold confirm every field.

    The relayer's key can spend every allowance. A row in the outbox is therefore not enough to sign: otherwise, write
    access to that one table would be enough to steal money.
    """
    payload = record.payload
    if proof is None:
        return "not proved: no ended session with its charge held"
    checks = (
        ("payer", payload.from_address.lower(), proof.payer.lower()),
        ("payee", payload.to_address.lower(), proof.payee.lower()),
        ("consumer", payload.consumer_workspace_id, proof.consumer_workspace_id),
        ("operator", payload.operator_workspace_id, proof.operator_workspace_id),
        ("rate", payload.rate, proof.rate),
        ("seconds", payload.chargeable_seconds, proof.seconds),
        ("charge", record.total, proof.charged),
        ("platform fee", payload.platform_fee_bps, proof.platform_fee_bps),
        ("holder of the reservation", payload.from_address.lower(), proof.held_of.lower()),
        ("reservation", record.total, proof.held_micro),
    )
    for name, settled, recorded in checks:
        if settled != recorded:
            return f"not proved: {name} is {settled}, and the session's record says {recorded}"
    return None
