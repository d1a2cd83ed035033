"""Of a simulcast publisher's streams, the highest one that flows is shown."""

from hypothesis import given
from hypothesis import strategies as st

from sightline.video.media.layers import LAYERS_MAX, SILENT_MS, WINDOW_MS, LayerChooser

LOW, MIDDLE, HIGH = 1, 2, 3
SIZES = {LOW: 200, MIDDLE: 600, HIGH: 1200}


def chosen_over_time(layers_at: dict[int, tuple[int, ...]], *, until_ms: int) -> list[tuple[int, int | None]]:
    """Return each change of the choice as (ms, SSRC), for layers that send a packet every 10 ms.

    `layers_at` gives the layers from a time in ms on.
    """
    chooser = LayerChooser()
    changes: list[tuple[int, int | None]] = []
    layers: tuple[int, ...] = ()
    for now_ms in range(0, until_ms, 10):
        layers = layers_at.get(now_ms, layers)
        for ssrc in layers:
            chosen = chooser.take(ssrc, SIZES[ssrc], float(now_ms))
            if not changes or changes[-1][1] != chosen:
                changes.append((now_ms, chosen))
    return changes


def test_the_highest_layer_is_chosen_after_a_second_and_kept():
    assert chosen_over_time({0: (LOW, MIDDLE, HIGH)}, until_ms=60_000) == [(0, LOW), (WINDOW_MS, HIGH)]


def test_a_layer_that_stops_is_replaced_by_the_highest_that_flows_and_taken_again_when_it_returns():
    layers = {0: (HIGH, MIDDLE, LOW), 5_000: (MIDDLE, LOW), 20_000: (HIGH, MIDDLE, LOW)}
    changes = chosen_over_time(layers, until_ms=30_000)
    assert [ssrc for _, ssrc in changes] == [HIGH, MIDDLE, HIGH]
    assert changes[1][0] <= 5_000 + SILENT_MS + 10
    assert changes[2][0] <= 20_000 + 2 * WINDOW_MS


def test_a_publisher_that_changes_its_ssrc_is_followed():
    assert chosen_over_time({0: (LOW,), 3_000: (HIGH,)}, until_ms=9_000)[-1][1] == HIGH


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 1500), st.integers(0, 400)), max_size=200))
def test_any_number_of_streams_costs_bounded_memory(packets: list[tuple[int, int, int]]):
    chooser = LayerChooser()
    now_ms = 0.0
    for ssrc, size, wait_ms in packets:
        now_ms += wait_ms
        assert chooser.take(ssrc, size, now_ms) is not None
    assert len(chooser._layers) <= LAYERS_MAX


def test_layers_are_listed_with_their_bitrates_up_to_the_chosen_one_and_without_those_that_stopped():
    chooser = LayerChooser()
    assert chooser.below(0.0) == []
    for now_ms in range(0, 4_000, 10):
        for ssrc in (HIGH, LOW, MIDDLE) if now_ms < 3_000 else (HIGH, LOW):
            chooser.take(ssrc, SIZES[ssrc], float(now_ms))
        if now_ms == 2_500:
            assert [(layer.ssrc, round(layer.bps / 1000)) for layer in chooser.below(now_ms)] == [
                (LOW, 160),
                (MIDDLE, 480),
                (HIGH, 960),
            ]
    assert [layer.ssrc for layer in chooser.below(4_000.0)] == [LOW, HIGH]


def test_a_layer_that_carries_a_little_more_than_the_chosen_one_for_a_while_stays_below_it():
    chooser = LayerChooser()
    for now_ms in range(0, 5_000, 10):
        for ssrc in (HIGH, MIDDLE):
            is_starved = ssrc == HIGH and now_ms >= 2_000
            chooser.take(ssrc, 500 if is_starved else SIZES[ssrc], float(now_ms))
    layers = chooser.below(5_000.0)
    assert [layer.ssrc for layer in layers] == [MIDDLE, HIGH]
    assert layers[0].bps > layers[1].bps
