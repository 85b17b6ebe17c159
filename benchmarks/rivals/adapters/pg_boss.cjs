// /// script
// dependencies = ["pg-boss@10.4.2"]
//
// [tool.rivals]
// unfinished = "select exists (select from pgboss.job where name = 'noop' and state < 'completed')"
// ///

// pg-boss: https://timgit.github.io/pg-boss/, `work` and `insert`.
//
// - two workers that poll as often as they may, every 0.5 s, and at once after a batch that took longer
// - batchSize 5,000: with small batches the pause between polls is all that counts (500: 1,000/s). Two such workers
//   drained 100,000 jobs at 23,400/s, one at 10,100/s, one with 10,000 at 16,600/s, and a loop of `fetch` and
//   `complete` with 2,000 at 21,200/s
// - `insert` with 10,000 jobs a statement
// - finished jobs are kept, its default

"use strict";

const PgBoss = require("pg-boss");
const { main, payload, clockEnqueue, inChunks } = require("./tally.cjs");

const QUEUE = "noop";
const WORKERS = 2;
const BATCH = 5000;
const CHUNK = 10000;

async function start(dsn) {
  const boss = new PgBoss(dsn);
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

async function setup(dsn) {
  const boss = await start(dsn);
  await boss.createQueue(QUEUE);
  await boss.stop({ graceful: false });
}

async function enqueue(dsn, jobs) {
  const boss = await start(dsn);
  await clockEnqueue(() =>
    inChunks(jobs, CHUNK, async (from, to) => {
      const some = [];
      for (let number = from; number < to; number += 1) some.push({ name: QUEUE, data: payload(number) });
      await boss.insert(some);
    }),
  );
}

async function work(dsn, tally, stop) {
  const boss = await start(dsn);
  for (let worker = 0; worker < WORKERS; worker += 1)
    await boss.work(QUEUE, { batchSize: BATCH, pollingIntervalSeconds: 0.5 }, async (jobs) => {
      for (const job of jobs) tally.mark(job.data.order_id);
    });
  await stop;
  await boss.stop({ graceful: false });
}

main({ setup, enqueue, work });
