"""What no server of the service has sealed for this server, or what came before, is not opened; nothing raises."""

from hypothesis import given
from hypothesis import strategies as st

from sightline.cluster.bus.seal import MARK, NAME_MAX, OVERHEAD, Seal

KEY = b"k" * 32
FRAME = b"a frame"


def a_seal(me: str, key: bytes = KEY) -> Seal:
    return Seal(key, me)


def test_a_frame_is_opened_by_its_receiver_once_and_names_its_sender() -> None:
    sealed, two = a_seal("one").seal("two", 1, FRAME), a_seal("two")
    assert FRAME not in sealed
    assert two.open(sealed) == ("one", FRAME)
    assert two.open(sealed) is None, "replayed"


def test_a_recorded_frame_opens_at_no_other_server_and_not_after_a_restart() -> None:
    sealed = a_seal("one").seal("two", 1, FRAME)
    for other in ("three", "one", "two again"):  # a restarted server has a new incarnation
        assert a_seal(other).open(sealed) is None


def test_serials_of_a_sender_must_rise_and_one_sender_does_not_hold_up_another() -> None:
    one, other, two = a_seal("one"), a_seal("other"), a_seal("two")
    late, first, last = (one.seal("two", serial, FRAME) for serial in (3, 5, 9))
    assert two.open(first) == ("one", FRAME)
    assert two.open(late) is None
    assert two.open(other.seal("two", 1, FRAME)) == ("other", FRAME)
    assert two.open(last) == ("one", FRAME)


def test_a_forged_serial_does_not_keep_the_true_frames_of_its_sender_out() -> None:
    one, two = a_seal("one"), a_seal("two")
    sealed = one.seal("two", 1, FRAME)
    head = MARK + bytes((3,)) + b"one"
    assert two.open(head + b"\xff" * 8 + sealed[len(head) + 8 :]) is None
    assert two.open(sealed) == ("one", FRAME)


def test_another_key_and_another_sender_open_nothing() -> None:
    sealed = a_seal("one", b"x" * 32).seal("two", 1, FRAME)
    assert a_seal("two").open(sealed) is None
    own = a_seal("one").seal("two", 1, FRAME)
    assert a_seal("two").open(own.replace(b"one", b"oni", 1)) is None


def test_no_two_frames_are_encrypted_with_the_same_key_and_nonce() -> None:
    one, other = a_seal("one"), a_seal("other")
    bodies = {seal.seal("two", serial, FRAME)[-len(FRAME) - 16 :] for seal in (one, other) for serial in range(1, 50)}
    assert len(bodies) == 98


def test_the_overhead_is_what_a_seal_adds_at_most() -> None:
    name = "n" * NAME_MAX
    assert len(a_seal(name).seal("two", 1, FRAME)) - len(FRAME) == OVERHEAD


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_not_opened(data: bytes) -> None:
    two = a_seal("two")
    assert two.open(data) is None
    assert two.open(MARK + data) is None


@given(st.data())
def test_a_changed_or_cut_frame_is_not_opened(data: st.DataObject) -> None:
    sealed = a_seal("one").seal("two", 1, FRAME)
    at = data.draw(st.integers(0, len(sealed) - 1))
    flipped = sealed[:at] + bytes((sealed[at] ^ data.draw(st.integers(1, 255)),)) + sealed[at + 1 :]
    two = a_seal("two")
    assert two.open(flipped) is None
    assert two.open(sealed[:at]) is None
    assert two.open(sealed + b"x") is None
    assert two.open(sealed) == ("one", FRAME)
