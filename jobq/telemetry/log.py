"""Events as log lines of the logger `jobq`: one sentence for a person, the event's fields in `extra`."""

from __future__ import annotations

import logging
from typing import assert_never

import msgspec

from jobq.telemetry import events, recurring
from jobq.telemetry.events import Event, Told
from jobq.telemetry.measured import Measured

logger = logging.getLogger("jobq")


def log_event(event: Event) -> None:
    """Write *event* to the log, if it is one that is told."""
    if isinstance(event, Measured):
        return
    level, sentence = describe(event)
    if logger.isEnabledFor(level):
        logger.log(level, "%s", sentence, extra={"event": type(event).__name__, "fields": msgspec.to_builtins(event)})


def tells_every_attempt() -> bool:
    """Say whether the log shows what ends well, too."""
    return logger.isEnabledFor(logging.DEBUG)


def describe(event: Told) -> tuple[int, str]:
    """Return the level and the sentence of *event*."""
    match event:
        case events.WorkerStarted(worker_id, slots, kinds):
            queues = ", ".join(f"{queue} ({count})" for queue, count in sorted(slots.items()))
            return logging.INFO, f"worker {worker_id} started: queues {queues}; kinds {', '.join(sorted(kinds))}"
        case events.DuplicatesUnstated(kinds):
            return logging.WARNING, (
                f"a job runs twice one day: say in on_duplicate= what that does for {', '.join(sorted(kinds))}"
            )
        case events.SchemaNewer(warning):
            return logging.WARNING, warning
        case events.DrainStarted(running, grace_s):
            return logging.INFO, f"stopping: no more claims, {running} running jobs have {grace_s:g} s to finish"
        case events.DrainEnded(finished, handed_back, cancelled, after_s):
            names = f" after {after_s:.0f} s: {', '.join(cancelled)}" if cancelled else ""
            return logging.INFO, (
                f"drained: {finished} finished, {handed_back} handed back, {len(cancelled)} cancelled{names}"
            )
        case events.WorkerStopped(exit_code, finished, handed_back, unsettled, lost):
            more = f", {unsettled} left to their lease" if unsettled else ""
            more += f", {lost} lost" if lost else ""
            return logging.INFO, f"stopped: {finished} finished, {handed_back} handed back{more}; exit code {exit_code}"
        case events.LifespanOverran(limit_s):
            return logging.ERROR, f"the lifespan did not close within {limit_s:g} s: cancelled"
        case events.JobDone(job_id, kind, attempt, run_ms):
            return logging.DEBUG, f"{kind} {job_id} is done at attempt {attempt}, after {run_ms} ms"
        case events.JobReleased(job_id, kind, _, delay_s):
            return logging.DEBUG, f"{kind} {job_id} waits again, attempt returned, for {delay_s:.1f} s"
        case events.JobRetried(job_id, kind, attempt, error_type, message, delay_s, note):
            return logging.WARNING, (
                f"{kind} {job_id} failed at attempt {attempt}, next in {delay_s:.1f} s: {_short(error_type, message)}"
                + (f" ({note})" if note else "")
            )
        case events.JobDied(job_id, kind, attempt, reason, error_type, message):
            return logging.ERROR, (
                f"{kind} {job_id} is a dead letter after {attempt} attempt{'s' * (attempt != 1)}, {reason}:"
                f" {_short(error_type, message)}"
            )
        case events.JobSnoozed(job_id, kind, delay_s, note):
            return logging.WARNING, f"{kind} {job_id} snoozed for {delay_s:.1f} s ({note})"
        case events.LeaseLost(job_id, kind, attempt):
            return logging.WARNING, f"{kind} {job_id} lost its lease at attempt {attempt}: nothing was written"
        case events.AttemptOverran(job_id, kind, ran_s, blocks_thread):
            what = "blocks its thread past its time-out" if blocks_thread else "ignores its cancellation"
            return logging.ERROR, f"{kind} {job_id} {what}, {ran_s:.1f} s after its start"
        case events.FailedAfterCompletion(job_id, kind, error_type, message):
            return logging.ERROR, (
                f"{kind} {job_id} raised after its transaction had completed it: {_short(error_type, message)}"
            )
        case events.OutcomeNotStored(job_id, kind, error, replaced):
            what = "a plain record went in its place" if replaced else "the job is left to its lease"
            return logging.ERROR, f"the outcome of {kind} {job_id} cannot be stored, {what}: {error}"
        case events.LoopBlocked(job_id, kind, location, still_s):
            what = "something" if kind is None else f"{kind} {job_id}"
            return logging.WARNING, f"{what} has blocked the event loop for {still_s:.1f} s, at {location}"
        case events.LoopUnblocked(blocked_s):
            return logging.WARNING, f"the event loop turns again after {blocked_s:.1f} s"
        case events.JobSlow(job_id, kind, attempt, ran_s, usual_s, location):
            known = "more than half of its time-out"
            if usual_s is not None:
                usual = f"{usual_s:.1f} s" if usual_s >= 1 else f"{usual_s * 1000:.0f} ms"
                known = f"99 % of its kind take up to {usual}"
            return logging.WARNING, (
                f"{kind} {job_id} has run for {ran_s:.1f} s at attempt {attempt} ({known}) and stands at {location}"
            )
        case events.SlotsStuck(queue, executor, slots, still_s, oldest):
            return logging.WARNING, (
                f"all slots of queue {queue} ({slots} {executor}) have been busy for {still_s:.0f} s, and nothing"
                f" finished; the oldest: {', '.join(oldest)}"
            )
        case events.LeaseLapsed(running, cancelled):
            level = logging.ERROR if running else logging.WARNING
            names = f": {', '.join(cancelled)}" if cancelled else ""
            return level, f"the worker's lease has lapsed: {running} running jobs are cancelled and handed back{names}"
        case events.WorkerReaped(worker_id, jobs):
            return logging.WARNING, (
                f"worker {worker_id} is gone: {jobs} {'job was' if jobs == 1 else 'jobs were'} taken back"
            )
        case events.JobReaped(job_id, kind, attempt):
            return logging.WARNING, f"{kind} {job_id} was taken back: its worker fell silent during attempt {attempt}"
        case events.StraysReleased(ids):
            return (
                logging.WARNING,
                f"handed back {len(ids)} job{'s' * (len(ids) != 1)} of a claim whose answer was never seen",
            )
        case events.SuspectsHandedBack(suspects, waited_s, running, unwritten):
            blame = ", ".join(running) or f"{unwritten} outcomes that are not written"
            return logging.WARNING, (
                f"{', '.join(suspects)} may run only alone, and found no quiet moment in {waited_s:.0f} s: handed back;"
                f" in the way: {blame}"
            )
        case events.DatabaseAway(loop, error):
            return logging.WARNING, f"{loop}: {error}; trying on"
        case events.DatabaseBack(loop, away_s):
            return logging.INFO, f"{loop}: the database is back after {away_s:.1f} s"
        case events.LoopCrashed(loop, error_type, message, traceback, restarting):
            what = "restarting it" if restarting else "stopping the worker"
            return logging.ERROR, f"{loop} crashed, {what}: {_short(error_type, message)}\n{traceback}"
        case events.HistoryLeftAlone():
            return logging.INFO, "history: the oldest slot holds young rows (was the slot length changed?): kept"
        case events.ListenUnavailable(reason, poll_s):
            return logging.WARNING, f"notifications: LISTEN unavailable, polling only, every {poll_s:g} s: {reason}"
        case events.ListenRestored():
            return logging.INFO, "notifications: they come through again"
        case events.OverviewFailed(error):
            return logging.WARNING, (
                f"metrics: how the queues stand cannot be read, the last reading is shown, no backlog noticed: {error}"
            )
        case events.AlertTold(hook, what, subjects):
            return logging.INFO, f"alerts: {hook} was told ({what}: {', '.join(subjects)})"
        case events.AlertFailed(hook, what, subjects, tries, error_type, message, traceback, again_in_s):
            return logging.ERROR, (
                f"alerts: {hook} failed at try {tries}, next in {again_in_s:g} s ({what}: {', '.join(subjects)}):"
                f" {_short(error_type, message)}\n{traceback}".rstrip()
            )
        case events.AlertsHalted(hook, error):
            return logging.WARNING, f"alerts: {hook} learns nothing, trying on: {error}"
        case events.PreparedStatementsLost(error):
            return logging.ERROR, error
        case recurring.RecurringChanged(names):
            return logging.INFO, f"recurring: new or changed: {', '.join(names)}"
        case recurring.RecurringCaughtUp(name, tick, late_s, covered):
            more = f" and stands for {covered} before it" if covered else ""
            return logging.WARNING, f"recurring {name}: the tick {tick:%Y-%m-%d %H:%M%z} runs {late_s:.0f} s late{more}"
        case recurring.RecurringMissed(name, tick, missed):
            more = f", and {missed - 1} before it" if missed > 1 else ""
            return logging.ERROR, f"recurring {name} should have run at {tick:%Y-%m-%d %H:%M%z} and did not{more}"
        case recurring.RecurringSkipped(name, tick, skipped):
            return logging.WARNING, (
                f"recurring {name}: {skipped} skipped up to {tick:%Y-%m-%d %H:%M%z}: the previous run is unfinished"
            )
        case recurring.RecurringFailed(name, tick, error):
            what = "" if tick is None else f": the tick {tick:%Y-%m-%d %H:%M%z} is not enqueued"
            return logging.ERROR, f"recurring {name}{what}: {error}; trying on"
        case _:
            assert_never(event)


def _short(error_type: str, message: str) -> str:
    first_line = message.partition("\n")[0]
    return f"{error_type}: {first_line[:200]}" if first_line else error_type
