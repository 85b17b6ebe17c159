"""The chart of the comparison: a bar for each system, on any background.

Drawn with pygal: it writes plain SVG of a few kilobytes, where matplotlib would bring numpy and draw text as paths.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pygal
from pygal.style import Style

from benchmarks.rivals.systems import SUBJECT
from benchmarks.rivals.table import drain_rates, label, title

if TYPE_CHECKING:
    from benchmarks.report import Report

OURS = "#2563eb"
THEIRS = "#8b949e"
TEXT = "#6e7781"
TEXT_ON_DARK = "#c9d1d9"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
BAR_HEIGHT = 42
AROUND_BARS = 110
ROOM_FOR_THE_RATE = 1.12

# What a reader's browser prefers decides, also for an SVG that stands in a README as a picture.
ON_DARK = f"@media (prefers-color-scheme: dark) {{ text {{ fill: {TEXT_ON_DARK} !important; }} }}"
RATES_BESIDE_BARS = "text.value { text-anchor: start !important; transform: translateX(6px); }"


def draw(report: Report, path: Path) -> None:
    """Write the rates at which the systems drained, the fastest on top, as SVG to *path*."""
    rates = sorted(drain_rates(report).items(), key=lambda item: item[1].median)
    chart = pygal.HorizontalBar(
        style=_style(),
        css=("file://style.css", "file://graph.css", f"inline:{RATES_BESIDE_BARS} {ON_DARK}"),
        js=(),
        title=title(report),
        width=860,
        height=AROUND_BARS + BAR_HEIGHT * len(rates),
        show_legend=False,
        print_values=True,
        print_values_position="top",
        show_x_guides=False,
        show_y_guides=False,
        show_x_labels=False,
        value_formatter=lambda rate: f"{rate:,.0f}/s",
        margin=12,
        spacing=12,
        rounded_bars=3,
        x_labels=[label(report, name) for name, _ in rates],
        range=(0, max(rate.median for _, rate in rates) * ROOM_FOR_THE_RATE),
    )
    chart.uuid = "rivals"  # not a new one each time
    chart.add("drain", [{"value": rate.median, "color": OURS if name == SUBJECT else THEIRS} for name, rate in rates])
    path.write_bytes(chart.render())


def _style() -> Style:
    return Style(
        background="transparent",
        plot_background="transparent",
        foreground=TEXT,
        foreground_strong=TEXT,
        foreground_subtle=TEXT,
        opacity="1",
        font_family=FONT,
        title_font_size=15,
        label_font_size=14,
        major_label_font_size=14,
        value_font_size=14,
        value_colors=(TEXT,),
    )
