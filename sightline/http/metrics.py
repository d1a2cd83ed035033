"""Metrics for Prometheus. Routes are counted by their template, never by the path that was called.

Calls are counted in plain numbers and put into Prometheus's form when it asks: the library's own counters take a lock
for each number, and one thread alone counts here.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from math import inf
from typing import Final, TypeAlias, final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from sightline.domain.value import Value

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, inf)
_BOUNDS: Final = tuple(map(floatToGoString, _BUCKETS_S))

Labels: TypeAlias = tuple[str, ...]


@final
class MetricFamily(Value):
    """One metric: a number, or one number per combination of labels. The name has no prefix `sightline_`."""

    name: str
    help: str
    values: float | Mapping[Labels, float]
    labels: Labels = ()
    is_counter: bool = False


@final
class Metrics:
    """The metrics of this process. `read` is called at each scrape and must not wait."""

    def __init__(self, read: Callable[[], Iterable[MetricFamily]] = tuple) -> None:
        self._calls = _Calls()
        self._registry = CollectorRegistry()
        self._registry.register(self._calls)
        self._registry.register(_Values(read))
        ProcessCollector(registry=self._registry)
        self.observe = self._calls.observe
        """Count one call: route, method, status, seconds."""

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)


@final
class _Durations:
    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * len(_BUCKETS_S)
        self.total_s = 0.0

    def add(self, other: "_Durations") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s


@final
class _Calls(Collector):
    def __init__(self) -> None:
        self._by_status: dict[tuple[str, str, int], _Durations] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        kind = (route, method, status)
        durations = self._by_status.get(kind)
        if durations is None:
            durations = self._by_status[kind] = _Durations()
        durations.total_s += seconds
        durations.counts[bisect_left(_BUCKETS_S, seconds)] += 1

    def collect(self) -> Iterable[Metric]:
        answered = CounterMetricFamily(
            "sightline_http_requests", "Calls answered", labels=("route", "method", "status")
        )
        by_route: dict[tuple[str, str], _Durations] = {}
        for (route, method, status), durations in self._by_status.items():
            answered.add_metric((route, method, str(status)), sum(durations.counts))
            by_route.setdefault((route, method), _Durations()).add(durations)
        yield answered
        took = HistogramMetricFamily(
            "sightline_http_request_seconds", "Time from a call's arrival to its answer", labels=("route", "method")
        )
        for labels, durations in by_route.items():
            buckets = list(zip(_BOUNDS, accumulate(durations.counts), strict=True))
            took.add_metric(labels, buckets, sum_value=durations.total_s)
        yield took


@final
class _Values(Collector):
    def __init__(self, read: Callable[[], Iterable[MetricFamily]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for family in self._read():
            kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
            metric = kind(f"sightline_{family.name}", family.help, labels=family.labels)
            values = family.values if isinstance(family.values, Mapping) else {(): family.values}
            for labels, value in values.items():
                metric.add_metric(labels, value)
            yield metric
