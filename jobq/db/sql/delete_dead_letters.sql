-- delete_dead_letters: dead -> absent
--
-- Drop dead letters for good. Returns the ids that were there.
--
-- $1 ids  bigint[]
delete from @schema@.dead_letter d
where d.id = any(array(
    select held.id
    from @schema@.dead_letter held
    where held.id = any($1::bigint[])
    order by held.id
    for update skip locked
))
returning d.id
