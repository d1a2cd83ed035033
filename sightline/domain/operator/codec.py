"""A workspace as a JSON-ready document, and back."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import asdict

from sightline.domain.geofence import DeviceKind
from sightline.domain.operator.model import Availability, Claim, Workspace, WorkspaceRole

STORED_APART: Final = frozenset({"version", "last_place"})
"""Fields that are not in the document: the version is a column, the place comes from the newest heartbeat."""


def to_doc(workspace: Workspace) -> dict[str, Any]:
    """The fields of the workspace, without those of `STORED_APART`."""
    doc = {name: kept for name, kept in asdict(workspace).items() if name not in STORED_APART}
    doc["claims"] = {key: asdict(claim) for key, claim in workspace.claims.items()}
    return doc


def from_doc(doc: Mapping[str, Any], version: int) -> Workspace:
    """The workspace of a stored document. The count `start_timeouts` of older documents starts anew."""
    claims = {key: Claim(**claim) for key, claim in doc["claims"].items()}
    return Workspace(
        **{
            **{name: value for name, value in doc.items() if name != "start_timeouts"},
            "unstarted_for": tuple(doc.get("unstarted_for", ())),
            "roles": tuple(WorkspaceRole(role) for role in doc["roles"]),
            "availability": Availability(doc["availability"]),
            "rest": Availability(doc["rest"]),
            "device_kind": DeviceKind(doc["device_kind"]),
            "claims": claims,
            "version": version,
        }
    )
