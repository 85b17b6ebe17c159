"""The alert rules of examples/deploy, as Prometheus' own tool reads and runs them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
RULES, CASES = DEPLOY / "prometheus-rules.yml", DEPLOY / "prometheus-rules-test.yml"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool, of Debian's package `prometheus`."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("no promtool on the PATH: apt-get install --no-install-recommends prometheus")
    return subprocess.run([program, *arguments], cwd=DEPLOY, capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules() -> None:
    """Their expressions and the templates of their words."""
    checked = promtool("check", "rules", RULES.name)

    alerts = RULES.read_text("utf-8").count("- alert: ")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"{alerts} rules found" in checked.stdout


def test_each_alert_fires_for_what_it_is_about() -> None:
    """And not for what stands beside it in its case."""
    tested = promtool("test", "rules", CASES.name)

    assert tested.returncode == 0, tested.stdout + tested.stderr
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text("utf-8"))
    assert re.findall(r"- name: (\w+)", CASES.read_text("utf-8")) == alerts
