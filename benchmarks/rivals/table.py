"""The table of the comparison, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.rivals.systems import SUBJECT

if TYPE_CHECKING:
    from benchmarks.report import Figure, Report

COLUMNS = f"{'':<26}{'drain/s':>10}  {'lowest to highest':<18}{'enqueue/s':>10}{'jobq is':>9}{'jobs':>11}  runs on"


def table(report: Report) -> str:
    """Return a line for each system, the fastest first, and what does not count."""
    jobs = report.parameters["jobs"]
    runtimes = report.parameters["runtimes"]
    assert isinstance(jobs, dict)
    assert isinstance(runtimes, dict)
    lines = [title(report), "", COLUMNS]
    for name, rate in sorted(drain_rates(report).items(), key=lambda item: -item[1].median):
        between = f"{rate.lowest:,.0f} to {rate.highest:,.0f}"
        enqueue = report.spread[f"{name}.enqueue_per_s"].median
        ratio = report.spread.get(f"{name}.ratio")
        times = "" if ratio is None else f"{ratio.median:.2f} x"
        lines.append(
            f"{label(report, name):<26}{rate.median:>10,.0f}  {between:<18}{enqueue:>10,.0f}{times:>9}"
            f"{jobs[name]:>11,}  {runtimes[name]}"
        )
    lines += _remarks(report)
    return "\n".join(lines)


def drain_rates(report: Report) -> dict[str, Figure]:
    """Return the rate of each system that was measured."""
    ending = ".drain_per_s"
    return {name.removesuffix(ending): one for name, one in report.spread.items() if name.endswith(ending)}


def label(report: Report, name: str) -> str:
    """Return a system with its version, where it has one."""
    version = report.versions.get(name, "")
    return name if name == SUBJECT else f"{name} {version}"


def title(report: Report) -> str:
    """Say what was measured, and on what."""
    return (
        f"Jobs run per second by one worker process, no-op handlers\n"
        f"PostgreSQL {report.versions['postgresql'].split(' ')[0]} and worker on {report.machine['cpus']} CPUs, "
        f"durable settings; jobq {report.versions['jobq']}, Python {report.versions['python']}"
    )


def _remarks(report: Report) -> list[str]:
    remarks = [""]
    for parameter, said in (("left_out", "left out"), ("void_trials", "void")):
        texts = report.parameters[parameter]
        assert isinstance(texts, dict)
        remarks += [f"{said}: {name}: {text}" for name, text in texts.items()]
    return [*remarks, f"VOID: {report.void}"] if report.void else remarks
