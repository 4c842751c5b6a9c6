-- What the gateway asks on every guarded statement, and after every one that may have changed the schema, at less cost; and a constraint of nothing.

-- Functions in sql are planned anew by every call; these are asked for each relation that DDL touched.
do $do$
declare
  f record;
begin
  for f in
    select p.proname, pg_get_function_arguments(p.oid) as args, pg_get_function_result(p.oid) as result, p.prosrc from pg_proc p
     where p.pronamespace = 'sluice'::regnamespace
       and p.proname in ('rel_columns', 'rel_indexes', 'rel_constraints', 'rel_rules', 'rel_triggers', 'default_relations', 'identity_sequence')
  loop
    execute format('create or replace function sluice.%I(%s) returns %s language plpgsql stable set search_path = pg_catalog, pg_temp as %L',
                   f.proname, f.args, f.result, 'begin return (' || f.prosrc || '); end');
  end loop;
end $do$;

create or replace function sluice.watch_rel(rel oid) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into sluice.watch
  select watch_rel.rel, watch_rel.rel || coalesce(array_agg(indexrelid order by indexrelid), '{}') from pg_index where indrelid = watch_rel.rel
      on conflict on constraint watch_pkey do update set oids = excluded.oids where watch.oids <> excluded.oids;
end $$;

-- A table or an index that this transaction made has a row in pg_class that it inserted; rolled-back inserts count, too. Locks, which cost more to
-- look at, are looked at only then, or if the table was made by another transaction that the snapshot does not show.
create or replace function sluice.created_counts(out rels oid[], out n bigint[], out inserts bigint[]) language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  older boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
begin
  if pg_current_xact_id_if_assigned() is null then
    return;
  end if;
  if pg_stat_get_xact_tuples_inserted('pg_class'::regclass) > 0 then
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
  end if;
  -- A REPEATABLE READ transaction does not see watch rows of tables made after its snapshot, but can insert into those tables.
  if older then
    select rels || array_agg(l.relation), n || array_agg(pg_stat_get_xact_tuples_inserted(l.relation)),
           inserts || array_agg(pg_stat_get_xact_tuples_inserted(l.relation)) into rels, n, inserts
      from pg_locks l
     where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.relation >= 16384
       and pg_stat_get_xact_tuples_inserted(l.relation) > 0
       and not exists (select from pg_class c where c.oid = l.relation)
       and not exists (select from pg_locks x where x.pid = l.pid and x.relation = l.relation and x.mode = 'AccessExclusiveLock');
  end if;
end $$;

-- Only what fires on the event counts: every change of session_replication_role throws away all cached plans of the session. A parent's
-- triggers fire on UPDATE and DELETE, a child's on INSERT and UPDATE.
drop function sluice.shadow_owner(oid);
create function sluice.shadow_owner(rel oid, event int default 0, out owner oid, out silent boolean) language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select p.relowner, p.relkind, p.relhasrules, p.relhastriggers, p.relforcerowsecurity, p.relname,
         exists (select from sluice.watch w where w.rel = p.oid) as watched
    into c from pg_class p where p.oid = shadow_owner.rel;
  if not found or not c.watched or c.relkind not in ('r', 'm') then
    raise exception 'relation % is not a shadow', rel using errcode = '42809';
  end if;
  if c.relforcerowsecurity then
    raise exception 'row security of "%" is forced on its owner', c.relname using errcode = '0A000';
  end if;
  if to_regprocedure(format('sluice_fill_fn.clear_%s(oid)', c.relowner)) is null then
    raise exception 'owner % cannot fill yet', c.relowner using errcode = 'SL001', detail = c.relowner;
  end if;
  owner := c.relowner;
  silent := not c.relhasrules
    and (not c.relhastriggers or not exists (select from pg_trigger t where t.tgrelid = shadow_owner.rel and t.tgtype & event <> 0));
end $$;
alter function sluice.shadow_owner(oid, int) owner to sluice;
revoke execute on function sluice.shadow_owner(oid, int) from public;
grant execute on function sluice.shadow_owner(oid, int) to sluice_fill;

create or replace function sluice.fill(k bytea, rel oid, attnums int2[], cols text[], n int default null, out fillxid xid, out tids tid[])
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  was text := current_setting('session_replication_role');
begin
  perform sluice.check_key(k);
  o := sluice.shadow_owner(rel, 4);
  if not o.silent then
    perform set_config('session_replication_role', 'replica', true);
  end if;
  execute format('select * from sluice_fill_fn.fill_%s($1, $2, $3, $4)', o.owner) into fillxid, tids using rel, attnums, cols, n;
  if not o.silent then
    perform set_config('session_replication_role', was, true);
  end if;
end $$;

create or replace function sluice.clear(k bytea, rel oid) returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  was text := current_setting('session_replication_role');
  n bigint;
begin
  perform sluice.check_key(k);
  o := sluice.shadow_owner(rel, 8);
  if not o.silent then
    perform set_config('session_replication_role', 'replica', true);
  end if;
  execute format('select * from sluice_fill_fn.clear_%s($1)', o.owner) into n using rel;
  if not o.silent then
    perform set_config('session_replication_role', was, true);
  end if;
  return n;
end $$;

-- Whether this transaction may have changed a catalog; rolled-back changes, and those since the last report of statistics, count too. Every schema
-- change writes one, user code in triggers mostly none: then no relation has to be looked at.
create function sluice.catalogs_changed() returns boolean language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from pg_class c where c.oid < 16384 and c.relkind = 'r'
     and pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid) + pg_stat_get_xact_tuples_deleted(c.oid) > 0);
end $$;
alter function sluice.catalogs_changed() owner to sluice;
revoke execute on function sluice.catalogs_changed() from public;

create or replace function sluice.reconcile_candidates(k bytea) returns table (rel oid, known boolean, state jsonb) language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  if pg_current_xact_id_if_assigned() is null or not sluice.catalogs_changed() then
    return;
  end if;
  perform sluice.watch_rel(w.rel) from sluice.watch w
    where exists (select from pg_class c where c.oid = w.rel)
      and exists (select from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.relation = w.rel
                     and l.mode in ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'));
  return query
    with locked as (
      select distinct l.relation as oid from pg_locks l
       where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.relation >= 16384
         and l.mode in ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')),
    moved as (
      select r.oid from sluice.rel r join pg_class c on c.oid = r.oid join pg_namespace n on n.oid = c.relnamespace
       where (r.namespace, r.name) <> (n.nspname, c.relname)),
    touched as (select oid from locked union select oid from moved)
    select t.oid, r.oid is not null, sluice.rel_state(c.oid)
      from touched t left join pg_class c on c.oid = t.oid left join sluice.rel r on r.oid = t.oid
     where (c.oid is null and r.oid is not null)
        or (c.relkind in ('r', 'm', 'v', 'p', 'f') and c.relpersistence <> 't'
            and c.relnamespace not in (select n.oid from pg_namespace n where n.nspname in ('sluice', 'sluice_iceberg', 'pg_toast')))
     order by t.oid;
end $$;

-- What names stand for in the session's own view, for the planner. In plpgsql, whose plans are kept: planning these costs ten times what they do.
create function sluice.resolve_relations(names text[]) returns table (place bigint, rel oid, kind "char", persistence "char", system boolean, hooks boolean,
    inserts boolean, reads boolean, writes boolean, lake boolean, deletes boolean) language plpgsql stable as $$
begin
  return query
SELECT n.i, c.oid, c.relkind, c.relpersistence, s.nspname IN ('pg_catalog', 'information_schema', 'pg_toast', 'sluice'),
   c.relrowsecurity OR c.relhasrules AND c.relkind NOT IN ('v', 'm') OR EXISTS (
       SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid JOIN pg_catalog.pg_namespace f ON f.oid = p.pronamespace
        WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND NOT (f.nspname = 'sluice' AND a.amname = 'lake'))
     OR c.relkind = 'r' AND EXISTS (
       WITH RECURSIVE d(oid) AS (SELECT c.oid UNION SELECT k.conrelid FROM d JOIN pg_catalog.pg_constraint k ON k.confrelid = d.oid AND k.contype = 'f'
           AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd')))
       SELECT FROM d JOIN pg_catalog.pg_class r ON r.oid = d.oid AND r.oid <> c.oid
        WHERE r.relam <> c.relam OR EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = r.oid AND NOT t.tgisinternal))
     OR c.relkind = 'v' AND EXISTS (
       WITH RECURSIVE v(oid) AS (SELECT c.oid UNION SELECT d.refobjid FROM v, pg_catalog.pg_rewrite w, pg_catalog.pg_depend d
           WHERE w.ev_class = v.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
             AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass)
       SELECT FROM v, pg_catalog.pg_rewrite w, pg_catalog.pg_depend d
        WHERE w.ev_class = v.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
          AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid >= 16384),
   c.relkind = 'r' AND pg_catalog.has_table_privilege(c.oid, 'INSERT'),
   c.relkind IN ('r', 'm') AND c.relispopulated AND pg_catalog.has_table_privilege(c.oid, 'SELECT'),
   c.relkind = 'r' AND pg_catalog.has_table_privilege(c.oid, 'UPDATE') AND pg_catalog.has_table_privilege(c.oid, 'DELETE'),
   c.relkind IN ('r', 'm') AND c.relpersistence <> 't' AND c.relam = (SELECT m.oid FROM pg_catalog.pg_am m WHERE m.amname = 'lake'),
   c.relkind = 'r' AND pg_catalog.has_table_privilege(c.oid, 'DELETE')
  FROM pg_catalog.unnest(names) WITH ORDINALITY n(name, i)
  JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(n.name)
  JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_am a ON a.oid = c.relam;
end $$;

create function sluice.resolve_code(kinds text[], names text[]) returns table (code_kind text, code_name text) language plpgsql stable as $$
begin
  return query
SELECT n.kind, n.name FROM ROWS FROM (pg_catalog.unnest(kinds), pg_catalog.unnest(names)) n(kind, name) WHERE CASE n.kind
   WHEN 'f' THEN EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
                          WHERE p.proname = n.name AND p.oid >= 16384 AND s.nspname <> 'sluice')
   WHEN 'o' THEN EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprname = n.name AND oid >= 16384)
   ELSE EXISTS (SELECT FROM pg_catalog.pg_type WHERE typname = n.name AND oid >= 16384 AND typtype IN ('d', 'c', 'b')) END;
end $$;
alter function sluice.resolve_relations(text[]) owner to sluice;
alter function sluice.resolve_code(text[], text[]) owner to sluice;

-- Arrays of known length make a plan look cheaper than the general one: it would be made for each call. What these call has the setting, too.
alter function sluice.resolve_relations(text[]) set plan_cache_mode = force_generic_plan;
alter function sluice.resolve_code(text[], text[]) set plan_cache_mode = force_generic_plan;
alter function sluice.fill(bytea, oid, int2[], text[], int) set plan_cache_mode = force_generic_plan;
alter function sluice.change(bytea, oid, xid, tid[]) set plan_cache_mode = force_generic_plan;
alter function sluice.clear(bytea, oid) set plan_cache_mode = force_generic_plan;
alter function sluice.reconcile_candidates(bytea) set plan_cache_mode = force_generic_plan;
alter function sluice.counts(boolean) set plan_cache_mode = force_generic_plan;

-- A constraint to name in SET CONSTRAINTS where nothing is to be set (server/fill.go).
create table sluice.nothing (once int constraint deferring unique deferrable) using heap;

-- $1 the fill's xid, $2 its ctids. n: a new row; l: a copied row that was locked (or its change rolled back); g: a copied row that is gone. A rewrite
-- of the table puts new rows where copied ones were: only the fill's own count as still there.
create or replace function sluice.change_statement(rel oid) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
begin
  return (select format($s$select 'n'::"char", ctid, %2$s from only %1$s where xmin is distinct from $1
union all select 'l'::"char", ctid, null from only %1$s where xmin = $1 and xmax <> 0
union all select 'g'::"char", _g._tid, null from unnest($2) _g(_tid)
 where (select count(*) from only %1$s where xmin = $1) < cardinality($2) and not exists (select from only %1$s _r where _r.ctid = _g._tid and _r.xmin = $1)$s$,
    (select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = rel),
    sluice.row_text(rel)));
end $$;
