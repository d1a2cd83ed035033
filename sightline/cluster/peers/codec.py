"""How messages and answers travel between servers: as lists that msgspec packs, each value with the number of its type.

A class travels as its number and its fields in order. Fields may be added at the end with a default: an older server
leaves them out, and does not read those of a newer one. Numbers are never used again for another class. A class that is
not in the table cannot be sent.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

import msgspec

from sightline.actors import messages, types
from sightline.actors.kernel import (
    ActorParkedError,
    ActorStoppedError,
    AskTimeoutError,
    OverloadedError,
    SupersededError,
    TurnLostError,
)
from sightline.cluster.peers import video_messages
from sightline.domain import access, conduct, errors, escrow, geofence, metering, refusal, settlement
from sightline.domain.operator import coverage_map
from sightline.domain.operator import machine as operator_machine
from sightline.domain.operator import model as operator_model
from sightline.domain.session import messages as session_messages
from sightline.domain.session import model as session_model
from sightline.domain.session import status
from sightline.ports import relations, store, video

Packed: TypeAlias = Any
"""Numbers, texts, bytes and lists of them."""


class NotPortableError(Exception):
    """A value of a type that is not in the table."""


CLASSES: Final[dict[int, type]] = {
    # 1 to 9: containers, see below.
    # Commands and facts to sessions.
    10: messages.CreateSession,
    11: messages.DispatchSession,
    12: messages.AcceptSession,
    13: messages.StartSession,
    14: messages.EndSession,
    15: messages.EndByPlatform,
    16: messages.CancelSession,
    17: messages.DropAssignment,
    18: messages.GetSession,
    19: messages.CheckClaim,
    20: messages.RecordSettlement,
    21: messages.RowWritten,
    22: session_messages.FixReported,
    23: session_messages.MediaProved,
    24: session_messages.MediaBroke,
    25: session_messages.ConsumerActive,
    26: session_messages.FundsReported,
    27: session_messages.SettlementMined,
    28: messages.ReportsMissed,
    29: messages.OperatorAcknowledged,
    30: messages.DeclineSession,
    31: messages.ExtendSession,
    32: messages.SendToOperator,
    33: messages.MarkMessagesShown,
    # To workspaces.
    40: messages.CreateWorkspace,
    41: messages.PatchWorkspace,
    42: messages.ResetLocation,
    43: messages.GetWorkspace,
    44: messages.ClaimOperator,
    45: messages.AssignOperator,
    46: messages.OccupyOperator,
    47: messages.VacateOperator,
    48: messages.FreeOperator,
    49: messages.RestoreClaim,
    50: messages.ReportHeartbeat,
    51: messages.ReportHeartbeats,
    # Hints between servers.
    56: messages.WakeRole,
    57: messages.SuspensionsChanged,
    58: messages.SignInEnded,
    # To the dispatcher.
    60: messages.PickOperator,
    61: messages.OperatorChanged,
    62: messages.HeartbeatResumed,
    63: messages.CountOperators,
    64: messages.CountCells,
    65: messages.SightingReport,
    66: messages.BeginDispatch,
    67: messages.DispatchEnded,
    68: messages.NoShow,
    69: messages.PresenceProved,
    59: messages.GetConduct,
    89: messages.HasOperator,
    # Between servers.
    70: messages.ShardsTaken,
    71: messages.ShardsReleased,
    72: messages.Followed,
    73: messages.FollowedChanged,
    74: messages.ActorChanged,
    75: messages.DeviceMoved,
    76: messages.RequestChanged,
    77: messages.ReadSessions,
    78: messages.ReadWorkspaces,
    79: messages.RatesSpent,
    # Answers and what they contain.
    80: types.Caller,
    81: types.Answer,
    82: types.NewWorkspace,
    83: types.HeartbeatReport,
    84: types.HeartbeatVerdict,
    85: types.BatchVerdict,
    86: messages.OperatorDiffers,
    87: messages.ClaimState,
    88: status.SessionStatus,
    90: coverage_map.CoverageCells,
    100: operator_model.Workspace,
    101: operator_model.Claim,
    102: operator_model.WorkspaceRole,
    103: operator_model.Availability,
    104: operator_machine.Patch,
    105: operator_machine.ClaimByDispatch,
    106: operator_machine.ClaimByAccept,
    107: operator_machine.AcceptPolicy,
    108: conduct.Conduct,
    120: session_model.Session,
    121: session_model.Terms,
    122: session_model.Operator,
    123: session_model.VideoInput,
    124: session_model.Requested,
    125: session_model.Assigned,
    126: session_model.Live,
    127: session_model.Ended,
    128: session_model.Closed,
    130: session_model.LocationState,
    131: session_model.SessionState,
    132: session_model.EndReason,
    133: session_model.MeterState,
    129: session_model.SessionExtension,
    134: session_messages.Party,
    135: session_messages.Event,
    136: session_messages.EventKind,
    137: session_model.ConsumerMessage,
    138: session_model.Delivery,
    150: geofence.Fix,
    151: geofence.Fence,
    152: geofence.Track,
    153: geofence.DeviceKind,
    154: geofence.Ring,
    160: metering.Evidence,
    161: metering.Window,
    162: metering.PauseReason,
    163: metering.Signal,
    164: metering.FenceWindow,
    170: settlement.SettlementPayload,
    172: escrow.ConsentKind,
    173: escrow.PayerConsent,
    174: escrow.SignedMandate,
    175: escrow.ExactTransfer,
    180: access.KeyLimits,
    181: refusal.Refusal,
    182: refusal.Code,
    190: store.ShardLease,
    191: store.IdempotencyKey,
    192: store.IdempotencyRecord,
    193: store.KeySpending,
    194: store.HoldRequest,
    195: store.RecordedEvent,
    200: store.HoldGrowth,
    196: store.SessionWrite,
    197: store.Rejected,
    198: store.RejectedWhy,
    199: store.Committed,
    210: relations.TupleUpdate,
    211: relations.RelationTuple,
    212: relations.ObjectRef,
    # Video inputs that other servers hold.
    300: video_messages.FindInputs,
    301: video_messages.CloseHeldInput,
    302: video_messages.SignalHeldInput,
    303: video_messages.HandleEngineHook,
    304: video_messages.InputOpened,
    305: video_messages.HeldInput,
    306: video.SignalRequest,
    307: video.SignalReply,
}

ERRORS: Final[dict[int, type[Exception]]] = {
    1: errors.UnavailableError,
    2: errors.StoreUnavailableError,
    3: errors.VideoUnavailableError,
    4: errors.ChainUnavailableError,
    5: errors.AuthzUnavailableError,
    6: store.ShardLostError,
    7: OverloadedError,
    8: SupersededError,
    9: ActorStoppedError,
    20: errors.OutcomeUnknownError,
    21: AskTimeoutError,
    22: TurnLostError,
    30: errors.RefusedError,
    31: store.CallRecordedError,
    32: ActorParkedError,
}

TUPLE, LIST, MAPPING, FROZENSET = 1, 2, 3, 4
_REFUSED, _RECORDED, _PARKED = 30, 31, 32
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})


def pack(value: object) -> Packed:
    """Take a value apart.

    Raises:
        NotPortableError: Its type, or that of a part, is not in the table.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    packer = _PACKERS.get(kind)
    if packer is None:
        raise NotPortableError(kind.__name__)
    return packer(value)


def unpack(packed: Packed) -> Any:
    """Put a value together again.

    Raises:
        NotPortableError: A newer server sent a type that this one does not know.
    """
    if type(packed) is not list:
        return packed
    unpacker = _UNPACKERS.get(packed[0])
    if unpacker is None:
        raise NotPortableError(f"type {packed[0]}")
    return unpacker(packed)


def number_of(kind: type) -> int:
    """The number with which values of a class begin."""
    return next(number for number, known in CLASSES.items() if known is kind)


def pack_error(error: Exception) -> Packed:
    """The error of an ask. Errors that are not in the table have an unknown outcome."""
    number = _ERROR_NUMBERS.get(type(error))
    if isinstance(error, errors.RefusedError):
        return [_REFUSED if number is None else number, pack(error.refusal)]
    if isinstance(error, ActorParkedError):
        return [_PARKED, error.reason]
    if isinstance(error, errors.UnavailableError):
        return [number or 1, str(error), error.retry_after_s]
    return [number or 20, str(error)]


def unpack_error(packed: Packed) -> Exception:
    """The error of an ask, as the asker raises it."""
    number = packed[0]
    if number == _RECORDED:
        return store.CallRecordedError()
    if number == _REFUSED:
        return errors.RefusedError(unpack(packed[1]))
    if number == _PARKED:
        return ActorParkedError(packed[1])
    kind = ERRORS.get(number, errors.OutcomeUnknownError)
    if issubclass(kind, errors.UnavailableError):
        return kind(packed[1], retry_after_s=packed[2])
    return kind(packed[1])


encode: Final = msgspec.msgpack.Encoder().encode
decode: Final[Callable[[bytes], list[Packed]]] = msgspec.msgpack.Decoder(list).decode


def extend(classes: Mapping[int, type]) -> None:
    """Add classes to the table, for a simulation with actors of its own."""
    for number, kind in classes.items():
        assert CLASSES.setdefault(number, kind) is kind, number
        _PACKERS[kind], _UNPACKERS[number] = _packer_of(number, kind), _unpacker_of(kind)


def _pack_all(values: Any) -> list[Packed]:
    plain, packers = _PLAIN, _PACKERS
    try:
        return [value if type(value) in plain else packers[type(value)](value) for value in values]
    except KeyError as error:
        raise NotPortableError(str(error)) from error


def _unpack_all(packed: list[Packed]) -> list[Any]:
    return [unpack(each) if type(each) is list else each for each in packed]


def _packer_of(number: int, kind: type) -> Callable[[Any], Packed]:
    if issubclass(kind, Enum):
        return lambda value: [number, value.value]
    if issubclass(kind, tuple):
        return lambda value: [number, *_pack_all(value)]
    names = _names(kind)
    if not names:
        return lambda value: [number]
    get = attrgetter(*names)
    if len(names) == 1:
        return lambda value: [number, pack(get(value))]
    return lambda value: [number, *_pack_all(get(value))]


def _unpacker_of(kind: type) -> Callable[[list[Packed]], Any]:
    if issubclass(kind, Enum):
        return lambda packed: kind(packed[1])
    names = _names(kind)
    # A tuple of a newer server may have more items than this one knows.
    return lambda packed: kind(**dict(zip(names, _unpack_all(packed[1:]), strict=False)))


def _names(kind: type) -> tuple[str, ...]:
    if issubclass(kind, tuple):
        return cast("tuple[str, ...]", kind._fields)  # type: ignore[attr-defined]  # a NamedTuple
    assert issubclass(kind, msgspec.Struct), kind
    return kind.__struct_fields__


_PACKERS: Final[dict[type, Callable[[Any], Packed]]] = {
    tuple: lambda value: [TUPLE, *_pack_all(value)],
    list: lambda value: [LIST, *_pack_all(value)],
    dict: lambda value: [MAPPING, *_pack_all([part for item in value.items() for part in item])],
    frozenset: lambda value: [FROZENSET, *_pack_all(sorted(value))],
    **{kind: _packer_of(number, kind) for number, kind in CLASSES.items()},
}
_UNPACKERS: Final[dict[int, Callable[[list[Packed]], Any]]] = {
    TUPLE: lambda packed: tuple(_unpack_all(packed[1:])),
    LIST: lambda packed: _unpack_all(packed[1:]),
    MAPPING: lambda packed: dict(zip(it := iter(_unpack_all(packed[1:])), it, strict=True)),
    FROZENSET: lambda packed: frozenset(_unpack_all(packed[1:])),
    **{number: _unpacker_of(kind) for number, kind in CLASSES.items()},
}
_ERROR_NUMBERS: Final = {kind: number for number, kind in ERRORS.items()}
