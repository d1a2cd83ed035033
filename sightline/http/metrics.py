"""Metrics for Prometheus. Routes are counted by their template, never by the path that was called."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

Gauges = Mapping[str, float | Mapping[str, float]]
"""Values by name; a mapping becomes one sample per label `of`."""


@final
class Metrics:
    """One process's metrics. `gauges` is asked at each scrape and answers at once."""

    def __init__(self, gauges: Callable[[], Gauges] = dict) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "sightline_http_requests", "Calls answered", ("route", "method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "sightline_http_request_seconds",
            "Time from a call's arrival to its answer",
            ("route", "method"),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(_Gauges(gauges))
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """Children by labels; to look one up by `labels` takes longer than to count."""

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one call."""
        children = self._children.get((route, method, status))
        if children is None:
            children = (self._requests.labels(route, method, str(status)), self._seconds.labels(route, method))
            self._children[route, method, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)


@final
class _Gauges(Collector):
    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for name, value in self._gauges().items():
            if isinstance(value, Mapping):
                family = GaugeMetricFamily(f"sightline_{name}", name.replace("_", " "), labels=["of"])
                for label, sample in value.items():
                    family.add_metric([label], sample)
            else:
                family = GaugeMetricFamily(f"sightline_{name}", name.replace("_", " "), value=value)
            yield family
