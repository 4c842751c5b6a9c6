-- Is this call from the gateway? The key was stored by the control connection when it attached this backend.
create function sluice.check_key(k bytea) returns void language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (select from sluice.session_key s
                  where s.pid = pg_backend_pid() and s.digest = sha256(k)
                    and s.started = (select a.backend_start from pg_stat_get_activity(pg_backend_pid()) a)) then
    raise exception 'not a gateway call' using errcode = '42501';
  end if;
end $$;
alter function sluice.check_key(bytea) owner to sluice_ptr;
revoke execute on function sluice.check_key(bytea) from public;
grant execute on function sluice.check_key(bytea) to sluice, sluice_fill;

-- Scans of and inserts into all shadows by this backend, as one number: for a quick "nothing happened". plpgsql, because a cached
-- plan makes it 20 times cheaper. The counters are not transactional and reach back before this transaction: compare before and after.
create function sluice.watch_sum() returns bigint language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  n bigint;
begin
  select sum(pg_stat_get_xact_numscans(x)) + sum(pg_stat_get_xact_tuples_inserted(x)) into n from sluice.watch w, unnest(w.oids) x;
  return coalesce(n, 0) + coalesce((select sum(s) from sluice.created_counts() c, unnest(c.n) s), 0);
end $$;

-- The same for lake tables that this transaction made or altered and that are not on the watch list yet.
create function sluice.created_counts(out rels oid[], out n bigint[], out inserts bigint[]) language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  if pg_current_xact_id_if_assigned() is null then
    return;
  end if;
  select array_agg(q.rel), array_agg(q.s), array_agg(q.i) into rels, n, inserts from (
    select t.oid as rel, sum(pg_stat_get_xact_numscans(l.relation) + pg_stat_get_xact_tuples_inserted(l.relation))::bigint as s,
           sum(pg_stat_get_xact_tuples_inserted(l.relation))::bigint as i
      from pg_locks l
      left join pg_index i on i.indexrelid = l.relation
      join pg_class t on t.oid = coalesce(i.indrelid, l.relation)
      join pg_am m on m.oid = t.relam
     where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode = 'AccessExclusiveLock' and l.relation >= 16384
       and t.relkind in ('r', 'm') and t.relpersistence <> 't' and m.amname = 'lake'
       and not exists (select from sluice.watch w where w.rel = t.oid)
     group by t.oid) q where q.s > 0;
  -- A REPEATABLE READ transaction does not see watch rows of tables made after its snapshot, but can insert into those tables.
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    select rels || array_agg(l.relation), n || array_agg(pg_stat_get_xact_tuples_inserted(l.relation)),
           inserts || array_agg(pg_stat_get_xact_tuples_inserted(l.relation)) into rels, n, inserts
      from pg_locks l
     where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.relation >= 16384
       and pg_stat_get_xact_tuples_inserted(l.relation) > 0
       and not exists (select from pg_class c where c.oid = l.relation)
       and not exists (select from pg_locks x where x.pid = l.pid and x.relation = l.relation and x.mode = 'AccessExclusiveLock');
  end if;
end $$;

-- Which shadows: the relations with a count, the counts of scans and inserts, and of inserts alone. Counts of indexes are added to their
-- table's.
create function sluice.counts(created boolean default true, out rels oid[], out n bigint[], out inserts bigint[]) language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select coalesce(array_agg(q.rel), '{}'), coalesce(array_agg(q.s), '{}'), coalesce(array_agg(q.i), '{}') into rels, n, inserts from (
    select w.rel, (select sum(pg_stat_get_xact_numscans(x) + pg_stat_get_xact_tuples_inserted(x)) from unnest(w.oids) x)::bigint as s,
           pg_stat_get_xact_tuples_inserted(w.rel) as i
      from sluice.watch w) q where q.s > 0;
  if created then
    c := sluice.created_counts();
    rels := rels || c.rels;
    n := n || c.n;
    inserts := inserts || c.inserts;
  end if;
end $$;
alter function sluice.watch_sum() owner to sluice;
alter function sluice.created_counts() owner to sluice;
alter function sluice.counts(boolean) owner to sluice;
revoke execute on function sluice.created_counts() from public;

-- What this transaction did besides shadows: relations it may have written (locks fall with a rolled-back savepoint), advisory locks of
-- the transaction, and the number of catalog rows changed (compare before and after: this one is not transactional).
create function sluice.effects(k bytea) returns jsonb language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  rels jsonb;
  catalog bigint;
  advisory bigint;
begin
  perform sluice.check_key(k);
  select coalesce(jsonb_agg(jsonb_build_object('oid', q.relation::bigint, 'kind', c.relkind::text, 'persistence', c.relpersistence::text,
                                               'modes', q.modes) order by q.relation), '[]') into rels
    from (select l.relation, jsonb_agg(distinct l.mode) as modes
            from pg_locks l
           where l.pid = pg_backend_pid() and l.locktype = 'relation'
             and (l.relation >= 16384 or l.relation = 'pg_largeobject'::regclass)
             and l.mode in ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                            'AccessExclusiveLock')
           group by l.relation) q
    left join pg_class c on c.oid = q.relation
   where not exists (select from sluice.watch w where w.oids @> array[q.relation])
     and (c.relnamespace is null or c.relnamespace not in (select oid from pg_namespace where nspname in ('sluice', 'sluice_iceberg', 'pg_toast')))
     and c.relkind is distinct from 'i';
  select coalesce(sum(pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)), 0)
    into catalog from pg_class where relkind = 'r' and oid < 16384;
  select count(*) into advisory from pg_locks where pid = pg_backend_pid() and locktype = 'advisory';
  return jsonb_build_object('xid', pg_current_xact_id_if_assigned()::text, 'rels', rels, 'catalog', catalog, 'advisory', advisory);
end $$;
alter function sluice.effects(bytea) owner to sluice;

-- The fate of a transaction with effects in Postgres: this row commits with it.
create function sluice.decide(k bytea, txid uuid) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  insert into sluice.decision values (txid, true);
end $$;
alter function sluice.decide(bytea, uuid) owner to sluice_ptr;
