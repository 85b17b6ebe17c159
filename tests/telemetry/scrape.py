"""What a scrape of `/metrics` says, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from jobq.worker.supervisor import Worker
from tests.worker.asking import Client
from tests.worker.observe import eventually

Labels = tuple[tuple[str, str], ...]


class Scrape:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: dict[tuple[str, Labels], float] = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """Return one sample."""
        return self.samples[name, tuple(sorted(labels.items()))]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of all samples that have these labels among theirs."""
        return sum(
            value
            for (found, theirs), value in self.samples.items()
            if found == name and set(labels.items()) <= set(theirs)
        )

    @property
    def series(self) -> set[tuple[str, Labels]]:
        """Which series of jobq's there are."""
        return {key for key in self.samples if key[0].startswith("jobq_")}


class Scraper:
    """Somebody who scrapes one worker."""

    def __init__(self, client: Client, worker: Worker) -> None:
        self.client = client
        self.worker = worker

    async def scrape(self) -> Scrape:
        """Scrape once, from a thread beside the event loop."""
        return await self._scraped()

    async def until(self, is_so: Callable[[Scrape], object]) -> Scrape:
        """Scrape until it says what is waited for."""
        return await eventually(self._scraped, lambda scrape: _holds(is_so, scrape))

    async def _scraped(self) -> Scrape:
        status, text = await self.client.ask("/metrics")
        assert status == 200, text
        return Scrape(text)


def _holds(is_so: Callable[[Scrape], object], scrape: Scrape) -> bool:
    try:
        return bool(is_so(scrape))
    except KeyError:  # no reading of the whole queue yet
        return False
