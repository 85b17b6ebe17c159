-- 0005: what alerts are about, so that one worker of all tells of it once.
--
-- Frozen: later changes are migrations of their own.

-- One row for each condition that a hook is told of: jobs of a kind die ('dead', the kind), or a queue falls behind
-- ('backlog', the queue). `hook` is the name of the function that is told. What is about to be told has no `told_at`:
-- `telling_by` has it until `telling_until`, and after that whoever comes first; `tries` is the fence between them. What
-- was told is a new incident when it is seen again after the hook's quiet period. `facts` is what the alert says.
create table @schema@.incident (
    since timestamptz not null,
    seen_at timestamptz not null,
    told_at timestamptz,
    telling_until timestamptz,
    telling_by uuid,
    tries int not null default 0,
    hook text not null,
    what text not null,
    subject text not null,
    facts jsonb not null,
    primary key (hook, what, subject)
) with (
    -- Few rows, refreshed for as long as the condition lasts: keep their updates on the page and vacuum early.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);

-- How far the dead letters were read for a hook, by their `died_at`, and when. One row a hook, for all workers: so they
-- look in turns, and together no more often than one would.
create table @schema@.dead_watch (
    looked_at timestamptz not null,
    read_to timestamptz not null,
    hook text primary key
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);
