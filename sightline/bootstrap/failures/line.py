"""Turn an error of a start into one line that names the setting to change."""

from typing import Final

from sightline.bootstrap.failures.errors import StartError, leaves_of, reason_of
from sightline.chain.service import ChainRefusedError, ContractKindError
from sightline.chain.signer import KeyRefusedError
from sightline.cluster.membership import NotCompleteError
from sightline.config import Settings
from sightline.domain.errors import (
    AuthzUnavailableError,
    BusUnavailableError,
    ChainUnavailableError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VideoUnavailableError,
)
from sightline.ports.chain import ChainChangedError
from sightline.ports.leases import IncompatibleServersError, ServiceHeldError
from sightline.storage.database.compatibility import IncompatibleDatabaseError
from sightline.storage.database.migrate import SchemaError
from sightline.system.children import ChildFailedError
from sightline.system.data_directory import RESTORE, OtherAccountError, PartMissingError
from sightline.system.lock import DataDirectoryInUseError

CANNOT_START: Final = "Cannot start: "
CHILD_SETTINGS: Final = {
    "postgres": "SIGHTLINE_DATA_DIR or set SIGHTLINE_DATABASE_URL",
    "chain": "SIGHTLINE_DATA_DIR or set SIGHTLINE_CHAIN_RPC_URL",
    "nats": "SIGHTLINE_DATA_DIR or set SIGHTLINE_NATS_URL",
}
"""What to change when a child process does not start, by the first word of the child's name."""
_REFUSED: Final = "ValueError: "
"""With what the embedded chain says which setting does not fit its file."""


def start_line(error: Exception, settings: Settings) -> str:
    """Explain in one line why the server did not start and which setting to change."""
    leaves = leaves_of(error)
    known = [line for leaf in leaves if (line := _explain(leaf, settings))]
    if not known:
        kinds = ", ".join(sorted({f"{type(leaf).__name__}: {leaf}" for leaf in leaves}))
        known = [f"Unexpected error: {kinds}. Set SIGHTLINE_LOG_LEVEL=debug for details, and report it."]
    return CANNOT_START + " ".join(known[0].split())


def _explain(error: BaseException, settings: Settings) -> str | None:
    match error:
        case StartError() | OtherAccountError() | IncompatibleServersError() | NotCompleteError():
            return str(error)
        case DataDirectoryInUseError():
            return f"{error}. Set SIGHTLINE_DATA_DIR (--data-dir)."
        case PartMissingError():
            return f"{error}. Check SIGHTLINE_DATA_DIR (--data-dir)."
        case SchemaError() | IncompatibleDatabaseError():
            return f"{_sentence(error)} Check {database_setting(settings)}."
        case ServiceHeldError():
            return (
                f"{error}. Stop it first; this server takes over when the other one has stopped. Each server needs a "
                "database of its own, unless all of them have SIGHTLINE_NATS_URL."
            )
        case StoreUnavailableError() | OutcomeUnknownError():
            return f"The database does not answer: {_sentence(error)} Check {database_setting(settings)}."
        case ChildFailedError():
            return _explain_child(error, settings)
        case KeyRefusedError():
            return f"{_sentence(error)} Check SIGHTLINE_CHAIN_RELAYER_KEY or SIGHTLINE_CHAIN_RELAYER_KEYSTORE."
        case ChainChangedError():
            return f"{_sentence(error)} Check SIGHTLINE_CHAIN_RPC_URL and {database_setting(settings)}."
        case ContractKindError():
            others = "advisory or enforced" if settings.funds_policy == "escrow" else "escrow"
            return (
                f"{_sentence(error)} If it was started with {others}, set SIGHTLINE_FUNDS_POLICY to that; it is "
                f"{settings.funds_policy} now. Otherwise check SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS."
            )
        case ChainRefusedError():
            return f"{_sentence(error)} Check the SIGHTLINE_CHAIN_* settings."
        case ChainUnavailableError():
            if settings.chain_rpc_url is None:
                logs = settings.data_dir / "log"
                return f"The embedded chain does not answer: {_sentence(error)} See the logs in {logs}."
            return f"The chain does not answer: {_sentence(error)} Check SIGHTLINE_CHAIN_RPC_URL."
        case VideoUnavailableError():
            return f"The media server does not start: {_sentence(error)} Check the SIGHTLINE_VIDEO_* settings."
        case AuthzUnavailableError():
            return f"SpiceDB does not answer: {_sentence(error)} Check SIGHTLINE_SPICEDB_ENDPOINT."
        case BusUnavailableError():
            return f"{_sentence(error)} Check SIGHTLINE_NATS_URL and the other SIGHTLINE_NATS_* settings."
        case OSError():
            where = f" ({error.filename})" if error.filename else ""
            return f"{_sentence(error)}{where} Check SIGHTLINE_DATA_DIR: {settings.data_dir}."
        case _:
            return None


def _explain_child(error: ChildFailedError, settings: Settings) -> str:
    """Return the child's name, the reason, and the last line of its log, with which the error's message ends."""
    first, *log_lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    name = first.partition(":")[0]
    reason = first.partition("; its log ends")[0]
    if log_lines and log_lines[-1].startswith(CANNOT_START):
        return log_lines[-1].removeprefix(CANNOT_START)  # a worker has explained it
    if log_lines and log_lines[-1].startswith("sqlite3.DatabaseError"):
        return f"The file of the embedded chain is damaged ({log_lines[-1][:300]}). To get it back, {RESTORE}."
    if log_lines and log_lines[-1].startswith(_REFUSED):
        return f"{log_lines[-1].removeprefix(_REFUSED)}, or another SIGHTLINE_DATA_DIR."
    last = f" ({log_lines[-1][:300]})" if log_lines else ""
    change = CHILD_SETTINGS.get(name.split()[0] if name else "", "SIGHTLINE_DATA_DIR")
    return f"{reason}{last}. See the logs in {settings.data_dir / 'log'}; check {change}."


def database_setting(settings: Settings) -> str:
    """Name of the setting that holds the database's address."""
    return "SIGHTLINE_DATA_DIR" if settings.database_url is None else "SIGHTLINE_DATABASE_URL"


def _sentence(error: Exception) -> str:
    text = reason_of(error)
    return f"{text[:1].upper()}{text[1:]}."
