// What the adapters for Node have in common: their three commands, their clock, and the count of what ran.
// The same as `adapter.py`, which says what each command does.

"use strict";

const NOTE = "x".repeat(70); // makes a payload of about 100 bytes

function say(values) {
  process.stdout.write(`${JSON.stringify(values)}\n`);
}

class Tally {
  constructor(jobs) {
    this.jobs = jobs;
    this.calls = 0;
    this.firstAt = 0;
    this.seen = new Uint8Array(jobs);
  }

  mark(number) {
    if (this.calls === 0) this.firstAt = Date.now() / 1000;
    this.calls += 1;
    this.seen[number] = 1;
    if (this.calls === this.jobs) say({ first_at: this.firstAt, all_at: Date.now() / 1000 });
  }

  tell() {
    say({ calls: this.calls, distinct: this.seen.reduce((sum, one) => sum + one, 0) });
  }
}

function payload(number) {
  return { order_id: number, note: NOTE };
}

// Time `block`, in which all jobs are made and enqueued.
async function clockEnqueue(block) {
  const started = process.hrtime.bigint();
  await block();
  say({ enqueue_s: Number(process.hrtime.bigint() - started) / 1e9 });
}

// Call `block` with [start, end) of each chunk of `size` numbers below `jobs`, one after the other.
async function inChunks(jobs, size, block) {
  for (let start = 0; start < jobs; start += size) await block(start, Math.min(start + size, jobs));
}

async function main({ setup, enqueue, work }) {
  const dsn = process.env.RIVALS_DSN;
  const [command, jobs] = process.argv.slice(2);
  if (command === "setup") await setup(dsn);
  else if (command === "enqueue") await enqueue(dsn, Number(jobs));
  else if (command === "work") {
    const tally = new Tally(Number(jobs));
    const stop = new Promise((resolve) => process.on("SIGTERM", resolve));
    await work(dsn, tally, stop);
    tally.tell();
  } else throw new Error(`setup, enqueue N or work N, not ${command}`);
  process.exit(0);
}

module.exports = { main, payload, clockEnqueue, inChunks };
