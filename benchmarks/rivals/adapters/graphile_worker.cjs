// /// script
// dependencies = ["graphile-worker@0.17.3"]
//
// [tool.rivals]
// unfinished = "select exists (select from graphile_worker._private_jobs)"
// ///

// Graphile Worker: https://worker.graphile.org/docs/performance.
//
// - 24 jobs at once, 25 connections, batched completion without delay, as in its own figures
// - a local queue of 5,000 jobs: in one run it drained 300,000 at 53,100/s, with 2,000 at 50,000/s, with the 500 of its
//   own figures at 19,600/s; in another there was no difference
// - `addJobs` with 10,000 jobs a statement
// - finished jobs are deleted, always

"use strict";

const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { main, payload, clockEnqueue, inChunks } = require("./tally.cjs");

const LOCAL_QUEUE = 5000;
const CHUNK = 10000;

const logger = new Logger(() => () => {});

async function setup(dsn) {
  const utils = await makeWorkerUtils({ connectionString: dsn, logger });
  await utils.migrate();
  await utils.release();
}

async function enqueue(dsn, jobs) {
  const utils = await makeWorkerUtils({ connectionString: dsn, logger });
  await clockEnqueue(() =>
    inChunks(jobs, CHUNK, async (start, end) => {
      const specs = [];
      for (let number = start; number < end; number += 1) specs.push({ identifier: "noop", payload: payload(number) });
      await utils.addJobs(specs);
    }),
  );
  await utils.release();
}

async function work(dsn, tally, stop) {
  const preset = {
    worker: {
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: LOCAL_QUEUE },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  };
  const runner = await run({
    connectionString: dsn,
    preset,
    logger,
    noHandleSignals: true,
    taskList: { noop: async ({ order_id }) => tally.mark(order_id) },
  });
  await stop;
  await runner.stop();
}

main({ setup, enqueue, work });
