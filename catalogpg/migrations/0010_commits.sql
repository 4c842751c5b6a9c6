-- A table without a snapshot has none, not number 0.
create or replace view sluice.commits as
  select c.id, c.time, c.position, c.flush_id,
         (select coalesce(jsonb_agg(jsonb_build_object(
                   'oid', t.x->'id', 'namespace', n.nspname, 'name', r.relname, 'snapshot_id', nullif(t.x->'snapshot', '0'),
                   'metadata_location', nullif(t.x->>'to', ''), 'previous_metadata_location', nullif(t.x->>'from', '')) order by t.i), '[]')
            from jsonb_array_elements(c.tables) with ordinality t(x, i)
            left join pg_class r on r.oid = (t.x->>'id')::oid
            left join pg_namespace n on n.oid = r.relnamespace
           where sluice.sees((t.x->>'id')::oid)) as tables
    from sluice.commit c
   where c.id is not null;
