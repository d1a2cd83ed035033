"""Compares a settlement with what the database recorded of its session, before it is signed."""

from sightline.ports.ledger import SessionProof, SettlementRecord


def why_unproved(record: SettlementRecord, proof: SessionProof | None) -> str | None:
    """Why a settlement may not be signed, None if the session's recorded end and its hold prove all of it.

    The relayer's key can spend every allowance, so a row in the outbox alone is no reason to sign: someone who can
    write to one table could then pay themselves.
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
