"""The dashboard and the alerts of examples/deploy speak of metrics that a worker prints, and of labels those have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry.conftest import Scraped
from tests.telemetry.scrape import Scrape

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
DASHBOARD = DEPLOY / "grafana-dashboard.json"
RULES = DEPLOY / "prometheus-rules.yml"

_SELECTOR = re.compile(r"(?P<metric>\bjobq_\w+)(?:\{(?P<matchers>[^}]*)\})?")
_BY = re.compile(r"\b(?:by|on) \((?P<labels>[^)]*)\)")
OF_PROMETHEUS = {"job", "instance"}


def queries() -> dict[str, list[str]]:
    """Return the queries of the panels by title, and of the alerts by name."""
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    found = {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }
    for name, text in re.findall(r"- alert: (\w+)\n(.*?)\n +labels:", RULES.read_text("utf-8"), re.DOTALL):
        found[name] = [text]
    return found


@pytest.mark.usefixtures("noop")
async def test_each_query_finds_something(scraped: Scraped) -> None:
    """A name or a label that nobody prints is a panel that is empty for ever, and an alert that never comes."""
    async with scraped() as scraper:
        scrape = await scraper.until(lambda now: now.value("jobq_workers") == 1)

    asked = [(where, text) for where, texts in queries().items() for text in texts]
    wrong = [f"{where}: {what}" for where, text in asked for what in faults(text, scrape)]
    assert len(queries()) > 30
    assert wrong == []


def faults(query: str, scrape: Scrape) -> list[str]:
    """Say what of *query* no sample has."""
    found = []
    labels: set[str] = set(OF_PROMETHEUS)
    for selector in _SELECTOR.finditer(query):
        samples = [dict(of) for name, of in scrape.samples if name == selector["metric"]]
        if not samples:
            found.append(selector["metric"])
        for label, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selector["matchers"] or ""):
            if label in OF_PROMETHEUS or value.startswith("$"):
                continue
            values = value.split("|") if operator == "=~" else [value]
            found += [f"{label}={one}" for one in values if all(sample.get(label) != one for sample in samples)]
        labels |= {label for sample in samples for label in sample}
    by = {label.strip() for names in _BY.findall(query) for label in names.split(",")}
    return found + sorted(by - labels)


def test_the_dashboard_is_whole() -> None:
    """Each panel has a number, a place and words of its own, and asks the data source that is chosen."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    panels = dashboard["panels"]
    asking = [panel for panel in panels if panel["type"] != "row"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert all(panel["description"] for panel in asking)
    assert {target["datasource"]["uid"] for panel in asking for target in panel["targets"]} == {"${datasource}"}
    known = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"]))) <= known


@pytest.mark.parametrize("label", ["summary", "description"])
def test_each_alert_says_what_and_what_to_do(label: str) -> None:
    """For whoever is woken by it."""
    rules = RULES.read_text("utf-8")

    assert len(re.findall(rf"^ +{label}: ", rules, re.MULTILINE)) == rules.count("- alert: ")
