"""Every message between servers arrives as it was sent."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.actors import messages
from sightline.actors.kernel import ActorParkedError, AskTimeoutError
from sightline.cluster.peers import codec
from sightline.cluster.peers.codec import NotPortableError
from sightline.domain.errors import OutcomeUnknownError, RefusedError, StoreUnavailableError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.ports.store import CallRecordedError

st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(object, st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3))


def mappings(kind: Any) -> st.SearchStrategy[Any]:
    key, value = getattr(kind, "__args__", (str, NoneType))
    return st.dictionaries(st.from_type(key), st.from_type(value), max_size=2)


st.register_type_strategy(Mapping, mappings)


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Values of a struct whose field has a default factory. In its signature that is a marker of msgspec's own."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    drawn = {name: st.from_type(each.type) for name, each in fields.items() if each.required}
    for name, each in fields.items():
        if not each.required:
            default = (
                st.just(each.default) if each.default is not msgspec.NODEFAULT else st.builds(each.default_factory)
            )
            drawn[name] = default | st.from_type(each.type)
    return st.builds(kind, **drawn)


for _kind in codec.CLASSES.values():
    if issubclass(_kind, msgspec.Struct) and any(
        each.default_factory is not msgspec.NODEFAULT for each in msgspec.structs.fields(_kind)
    ):
        st.register_type_strategy(_kind, structs(_kind))


def sent(value: Any) -> Any:
    """The value as another server receives it."""
    (packed,) = codec.decode(codec.encode([codec.pack(value)]))
    return codec.unpack(packed)


@pytest.mark.parametrize("kind", codec.CLASSES.values(), ids=lambda kind: kind.__name__)
def test_a_value_of_each_class_arrives_as_it_was_sent(kind):
    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.from_type(kind))
    def holds(value):
        received = sent(value)
        assert received == value
        assert type(received) is type(value)

    holds()


TO_ITSELF = {
    messages.VideoReady, messages.OperationFailed, messages.OperatorClaimed, messages.VideoReopened,
    messages.HoldExtended, messages.ExtensionFailed, messages.ClaimsChecked,
    messages.Tick, messages.ReopenVideo, messages.AcknowledgementDue, messages.ResumeExtending,
    messages.ReconcileClaims, messages.SaveConducts,
}  # fmt: skip
"""What an actor sends itself: the outcomes of its helpers and its timers."""


@pytest.mark.parametrize("actor", ["SessionMessage", "WorkspaceMessage", "DispatcherMessage"])
def test_every_message_that_another_actor_sends_can_go_to_another_server(actor):
    taken = set(get_args(getattr(messages, actor)))
    assert len(taken) > 10
    assert taken - TO_ITSELF <= set(codec.CLASSES.values())


def test_a_class_that_is_not_in_the_table_is_refused():
    with pytest.raises(NotPortableError):
        codec.pack(object())
    with pytest.raises(NotPortableError):
        codec.pack((1, [{"a": object()}]))
    with pytest.raises(NotPortableError):
        codec.unpack([9_999, 1])


def test_fields_of_a_newer_server_are_left_out_and_those_that_an_older_one_lacks_have_their_default():
    refusal = Refusal(Code.CONFLICT, "area:what")
    packed = codec.pack(refusal)
    assert codec.unpack([*packed, "a field of a newer server"]) == refusal
    assert codec.unpack(packed[:3]) == refusal


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RefusedError(Refusal(Code.CONFLICT, "a:b", "no", retry_after_s=3)), RefusedError),
        (CallRecordedError(), CallRecordedError),
        (UnavailableError("later", retry_after_s=7), UnavailableError),
        (StoreUnavailableError("no database"), StoreUnavailableError),
        (ActorParkedError("crashed"), ActorParkedError),
        (AskTimeoutError("late"), AskTimeoutError),
        (ZeroDivisionError("a bug"), OutcomeUnknownError),
    ],
)
def test_an_error_says_the_same_to_the_asker(error, expected):
    (packed,) = codec.decode(codec.encode([codec.pack_error(error)]))
    received = codec.unpack_error(packed)
    assert type(received) is expected
    assert str(received) == str(error)
    assert getattr(received, "refusal", None) == getattr(error, "refusal", None)
    assert getattr(received, "retry_after_s", None) == getattr(error, "retry_after_s", None)
