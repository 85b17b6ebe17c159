-- 0002: workers say that they live; a job that killed its worker while it ran alone is told from those beside it.
--
-- Frozen: later changes are migrations of their own.

-- One row a process start. `lease_until` is in no index, so a beat is a HOT update.
create table @schema@.worker (
    lease_until timestamptz not null,
    started_at timestamptz not null,
    worker_id uuid primary key,
    pid int not null,
    host text not null,
    version text not null,
    queues text[] not null,
    kinds text[] not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

-- The fence of the last attempt that was alone in its worker, and how many such attempts ended in a crash. Only these
-- name the killer: whoever merely ran beside it is innocent.
alter table @schema@.job
    add column alone_fence int,
    add column lone_crashes int not null default 0,
    add constraint job_lone_crashes_range check (lone_crashes <= 1000000000);

-- What became of attempts, by kind and worker, appended every half minute: never a shared row that all workers wait for.
-- Durations are a histogram: how many ended attempts fell into which bucket of `core/histogram.py`.
create table @schema@.kind_stat (
    at timestamptz not null,
    worker_id uuid not null,
    done int not null,
    retried int not null,
    dead int not null,
    queue text not null,
    kind text not null,
    buckets smallint[] not null,
    counts int[] not null
);

create index kind_stat_at on @schema@.kind_stat (at);

-- Counts of dead letters by queue and kind without reading the letters.
create index dead_letter_queue on @schema@.dead_letter (queue, kind, id);
