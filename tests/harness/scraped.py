"""/metrics as a scraper reads it: fetched over HTTP, and parsed by prometheus_client's own parsers.

page = await scrape(port)
page.value("rocketmq_messages_in_total", topic="T")     the value of the only sample with this label
"""

import asyncio
import gzip
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from tests.harness.limits import WAIT_LIMIT_S

OPENMETRICS: Final = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"


class Scraped(NamedTuple):
    """One response."""

    status: int
    headers: Mapping[str, str]
    text: str
    families: list[Metric]

    def samples(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and values of the samples with that name and these labels."""
        return [
            (sample.labels, sample.value)
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """Return the value of the only sample with these labels."""
        samples = self.samples(name, **labels)
        assert len(samples) == 1, f"{len(samples)} samples of {name}{labels}"
        return samples[0][1]

    def names(self) -> set[str]:
        """Return the names of all samples."""
        return {sample.name for family in self.families for sample in family.samples}


async def scrape(port: int, *, accept: str = OPENMETRICS, encoding: str = "", path: str = "/metrics") -> Scraped:
    """Fetch and parse the page."""
    return await asyncio.to_thread(_scrape, port, accept, encoding, path)


def _scrape(port: int, accept: str, encoding: str, path: str) -> Scraped:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    request.add_header("Accept", accept)
    request.add_header("Accept-Encoding", encoding)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_LIMIT_S) as response:
            status, headers, body = response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        with error:
            return Scraped(error.code, dict(error.headers), error.read().decode(), [])
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    text = body.decode()
    parse = openmetrics_families if "openmetrics" in headers["content-type"] else text_families
    return Scraped(status, headers, text, list(parse(text)))
