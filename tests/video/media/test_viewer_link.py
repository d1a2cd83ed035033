"""A viewer gets the highest layer that its link carries, falls at once, and tries a higher one ever more rarely."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from sightline.video.media.layers import Layer
from sightline.video.media.viewer_link import (
    FALL_MS,
    HOLD_FIRST_MS,
    HOLD_MAX_MS,
    SLOW_QUEUE_MS,
    THIN_FIRST_MS,
    ViewerLink,
)

LOW, MIDDLE, HIGH = 1, 2, 3
LAYERS = [Layer(LOW, 150_000), Layer(MIDDLE, 500_000), Layer(HIGH, 2_000_000)]
RATES = {layer.ssrc: layer.bps for layer in LAYERS}


@dataclass
class Watched:
    """A viewer behind a link of limited rate, which reports once a second what it lost."""

    link_bps: float
    layers: list[Layer] = field(default_factory=lambda: list(LAYERS))
    rtt_ms: float = 40.0
    link: ViewerLink = field(default_factory=ViewerLink)
    now_ms: float = 0.0
    octets: int = 0
    got: list[int | None] = field(default_factory=list)

    def second(self) -> None:
        self.now_ms += 1_000
        layer = self.link.choose(self.layers, self.now_ms)
        self.got.append(layer)
        sent_bps = RATES[layer] if layer is not None else 0.0
        self.octets += int(sent_bps / 8)
        loss = max(0.0, 1 - self.link_bps / sent_bps) if sent_bps else 0.0
        self.link.reported(loss, self.rtt_ms, self.octets, self.now_ms + 500)

    def watch(self, seconds: int) -> "Watched":
        for _ in range(seconds):
            self.second()
        return self

    @property
    def shares(self) -> dict[int | None, float]:
        return {layer: self.got.count(layer) / len(self.got) for layer in set(self.got)}


def test_a_link_that_carries_everything_gets_the_highest_layer_at_once_and_always():
    assert set(Watched(link_bps=5e6).watch(120).got) == {HIGH}


@pytest.mark.parametrize(("link_bps", "fits"), [(300_000, LOW), (700_000, MIDDLE)])
def test_after_two_bad_reports_the_highest_layer_that_fits_is_sent(link_bps: float, fits: int):
    viewer = Watched(link_bps=link_bps).watch(10)
    assert viewer.got[:2] == [HIGH, HIGH]
    assert viewer.got[2:] == [fits] * 8
    assert not viewer.link.is_thinned(viewer.now_ms)


def test_trials_of_a_higher_layer_end_with_the_first_bad_report_and_come_ever_more_rarely():
    viewer = Watched(link_bps=300_000).watch(600)
    tried = [at for at in range(1, 600) if viewer.got[at - 1] == LOW and viewer.got[at] == MIDDLE]
    assert all(viewer.got[at + 1] == LOW for at in tried), "one second each"
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses[0] >= HOLD_FIRST_MS / 1000
    assert pauses == sorted(pauses)
    assert pauses[-1] <= HOLD_MAX_MS / 1000 + 2
    assert viewer.shares[LOW] > 0.98


def test_a_link_that_recovers_gets_the_highest_layer_again():
    viewer = Watched(link_bps=300_000).watch(10)
    viewer.link_bps = 5e6
    viewer.watch(30)
    assert viewer.got[-1] == HIGH
    viewer.link_bps = 700_000
    viewer.watch(5)
    assert viewer.got[-1] == MIDDLE, "a layer that was carried for long may be tried soon again"
    viewer.link_bps = 5e6
    viewer.watch(int(HOLD_FIRST_MS / 1000) + 2)
    assert viewer.got[-1] == HIGH


def test_packets_that_wait_in_queues_without_loss_lead_to_the_next_lower_layer():
    viewer = Watched(link_bps=5e6).watch(5)
    viewer.rtt_ms += SLOW_QUEUE_MS + 20
    viewer.watch(3)
    assert viewer.got[-1] == MIDDLE
    viewer.rtt_ms = 40.0
    assert viewer.watch(15).got[-1] == HIGH


def test_a_longer_way_to_another_network_is_not_taken_for_a_queue_forever():
    viewer = Watched(link_bps=5e6).watch(5)
    viewer.rtt_ms += SLOW_QUEUE_MS + 100
    assert viewer.watch(120).got[-1] == HIGH


def test_one_bad_report_alone_changes_nothing():
    viewer = Watched(link_bps=5e6).watch(5)
    viewer.link_bps = 1e6
    viewer.second()
    viewer.link_bps = 5e6
    assert set(viewer.watch(5).got) == {HIGH}


def test_reports_of_the_layer_before_do_not_count_against_the_lower_one():
    viewer = Watched(link_bps=300_000).watch(3)
    assert viewer.got[-1] == LOW
    for _ in range(int(FALL_MS / 1000) - 1):
        viewer.now_ms += 1_000
        viewer.link.reported(0.8, 40.0, viewer.octets, viewer.now_ms)
    assert not viewer.link.is_thinned(viewer.now_ms)


def test_below_the_lowest_layer_keyframes_are_sent_and_no_higher_layer_is_tried():
    viewer = Watched(link_bps=60_000).watch(12)
    assert viewer.link.is_thinned(viewer.now_ms)
    assert set(viewer.got[2:]) == {LOW}
    viewer.link_bps = 5e6
    viewer.watch(int((THIN_FIRST_MS * 2 + HOLD_FIRST_MS * 3) / 1000))
    assert viewer.got[-1] == HIGH


def test_with_one_stream_a_viewer_that_loses_little_is_left_alone():
    viewer = Watched(link_bps=5e6, layers=[])
    viewer.watch(3)
    for _ in range(20):
        viewer.now_ms += 1_000
        viewer.link.reported(0.15, 900.0, viewer.octets, viewer.now_ms)
    assert viewer.link.choose([], viewer.now_ms) is None
    assert not viewer.link.is_thinned(viewer.now_ms)
    assert not viewer.link.is_too_slow


def test_when_the_highest_layer_stops_and_comes_back_viewers_follow_it_at_once():
    viewer = Watched(link_bps=5e6).watch(3)
    viewer.layers = LAYERS[:2]
    assert viewer.watch(3).got[-3:] == [MIDDLE] * 3
    viewer.layers = list(LAYERS)
    assert viewer.watch(1).got[-1] == HIGH


def test_another_publisher_begins_with_the_layer_that_the_link_carried_before():
    viewer = Watched(link_bps=300_000).watch(5)
    assert viewer.got[-1] == LOW
    others = {11: 160_000.0, 12: 520_000.0, 13: 1_800_000.0}
    RATES.update(others)
    viewer.layers = [Layer(ssrc, bps) for ssrc, bps in others.items()]
    assert viewer.watch(1).got[-1] == 11


def test_a_fall_leads_to_a_lower_layer_although_the_highest_has_few_bits_now():
    starved = [*LAYERS[:2], Layer(HIGH, 450_000)]
    viewer = Watched(link_bps=300_000, layers=starved).watch(3)
    assert viewer.got == [HIGH, HIGH, LOW]
    link = ViewerLink()
    link.choose(starved, 0.0)
    for now_ms in (1_000.0, 2_000.0):
        link.reported(0.0, 40.0, 0, now_ms)
    for now_ms in (3_000.0, 4_000.0):
        link.reported(0.0, 900.0, 0, now_ms)
    assert link.choose(starved, 4_000.0) == MIDDLE
