"""A workspace as a JSON-ready document, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sightline.domain.geofence import DeviceKind
from sightline.domain.operator.model import Availability, Claim, Workspace, WorkspaceRole


def to_doc(workspace: Workspace) -> dict[str, Any]:
    """Everything of the workspace but its version, which is a column of its own."""
    doc = asdict(workspace)
    del doc["version"]
    return doc


def from_doc(doc: Mapping[str, Any], version: int) -> Workspace:
    """The workspace of a stored document."""
    claims = {key: Claim(**claim) for key, claim in doc["claims"].items()}
    return Workspace(
        **{
            **doc,
            "roles": tuple(WorkspaceRole(role) for role in doc["roles"]),
            "availability": Availability(doc["availability"]),
            "rest": Availability(doc["rest"]),
            "device_kind": DeviceKind(doc["device_kind"]),
            "claims": claims,
            "version": version,
        }
    )
