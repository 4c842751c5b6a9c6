-- What is under all domains.
create function sluice.base_type(t oid, mod int, out oid oid, out typmod int) language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  y record;
begin
  oid := t;
  typmod := mod;
  loop
    select p.typtype, p.typbasetype, p.typtypmod into y from pg_type p where p.oid = base_type.oid;
    exit when y.typtype is distinct from 'd';
    oid := y.typbasetype;
    typmod := y.typtypmod;
  end loop;
end $$;

create function sluice.rel_columns(rel oid) returns jsonb language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_agg(jsonb_build_object(
      'attnum', a.attnum, 'name', a.attname, 'type', a.atttypid::bigint, 'type_name', format_type(a.atttypid, a.atttypmod),
      'typmod', a.atttypmod, 'type_kind', t.typtype::text, 'type_category', t.typcategory::text,
      'base', b.oid::bigint, 'base_typmod', b.typmod,
      'elem', (select case when e.typcategory = 'A' and e.typlen = -1 then e.typelem else 0 end from pg_type e where e.oid = b.oid)::bigint,
      'dims', a.attndims, 'not_null', a.attnotnull, 'generated', a.attgenerated::text, 'identity', a.attidentity::text,
      'default', pg_get_expr(d.adbin, d.adrelid), 'missing', case when a.atthasmissing then (a.attmissingval::text::text[])[1] end,
      'has_missing', a.atthasmissing, 'collation', a.attcollation::bigint,
      'collation_name', coalesce((select o.collname from pg_collation o where o.oid = a.attcollation), ''),
      'comment', coalesce(col_description(a.attrelid, a.attnum), '')) order by a.attnum), '[]')
    from pg_attribute a
    join pg_type t on t.oid = a.atttypid
    cross join lateral sluice.base_type(a.atttypid, a.atttypmod) b
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
   where a.attrelid = rel and a.attnum > 0 and not a.attisdropped $$;

create function sluice.rel_indexes(rel oid) returns jsonb language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_agg(jsonb_build_object(
      'oid', i.indexrelid::bigint, 'name', c.relname, 'am', m.amname, 'unique', i.indisunique, 'primary', i.indisprimary,
      'exclusion', i.indisexclusion, 'immediate', i.indimmediate, 'valid', i.indisvalid, 'nulls_not_distinct', i.indnullsnotdistinct,
      'attnums', to_jsonb((i.indkey::int2[])[0:i.indnkeyatts - 1]), 'include', to_jsonb((i.indkey::int2[])[i.indnkeyatts:]),
      'default_ops', (select bool_and(o.opcdefault) from unnest(i.indclass) k join pg_opclass o on o.oid = k),
      'collations', (select jsonb_agg(k::bigint) from unnest(i.indcollation) k),
      'expressions', coalesce(pg_get_expr(i.indexprs, i.indrelid), ''), 'predicate', coalesce(pg_get_expr(i.indpred, i.indrelid), '')
    ) order by i.indexrelid), '[]')
    from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
   where i.indrelid = rel $$;

create function sluice.rel_constraints(rel oid) returns jsonb language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_agg(jsonb_build_object(
      'oid', k.oid::bigint, 'name', k.conname, 'type', k.contype::text, 'attnums', coalesce(to_jsonb(k.conkey), '[]'),
      'index', k.conindid::bigint, 'ref', k.confrelid::bigint, 'ref_attnums', coalesce(to_jsonb(k.confkey), '[]'),
      'on_update', k.confupdtype::text, 'on_delete', k.confdeltype::text, 'match', k.confmatchtype::text,
      'validated', k.convalidated, 'deferrable', k.condeferrable, 'deferred', k.condeferred, 'no_inherit', k.connoinherit,
      'def', pg_get_constraintdef(k.oid)) order by k.oid), '[]')
    from pg_constraint k where k.conrelid = rel $$;

-- One relation as the gateway needs it; null if it is gone. Expressions are printed under a pinned search_path, values under pinned settings.
create function sluice.rel_state(rel oid) returns jsonb language plpgsql stable
  set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = postgres set timezone = 'UTC'
  set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' as $$
declare
  state jsonb;
begin
  select jsonb_build_object(
      'oid', c.oid::bigint, 'namespace', n.nspname, 'name', c.relname, 'relkind', c.relkind::text, 'persistence', c.relpersistence::text,
      'owner', c.relowner::bigint, 'owner_name', pg_get_userbyid(c.relowner), 'am', coalesce(m.amname, ''),
      'filenode', coalesce(pg_relation_filenode(c.oid), 0)::bigint, 'rls', c.relrowsecurity, 'force_rls', c.relforcerowsecurity,
      'partition', c.relispartition, 'of_type', c.reloftype::bigint, 'reloptions', coalesce(to_jsonb(c.reloptions), '[]'),
      'parents', coalesce((select jsonb_agg(i.inhparent::bigint order by i.inhseqno) from pg_inherits i where i.inhrelid = c.oid), '[]'),
      'children', exists (select from pg_inherits i where i.inhparent = c.oid),
      'rules', (select count(*) from pg_rewrite w where w.ev_class = c.oid and w.rulename <> '_RETURN'),
      'policies', (select count(*) from pg_policy p where p.polrelid = c.oid),
      'triggers', coalesce((select jsonb_agg(t.tgname order by t.tgname) from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal), '[]'),
      'comment', coalesce(obj_description(c.oid, 'pg_class'), ''))
    into state
    from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_am m on m.oid = c.relam
   where c.oid = rel;
  if not found then
    return null;
  end if;
  return state || jsonb_build_object('columns', sluice.rel_columns(rel), 'indexes', sluice.rel_indexes(rel),
                                     'constraints', sluice.rel_constraints(rel));
end $$;

alter function sluice.rel_state(oid) owner to sluice;
alter function sluice.rel_columns(oid) owner to sluice;
alter function sluice.base_type(oid, int) owner to sluice;
alter function sluice.rel_indexes(oid) owner to sluice;
alter function sluice.rel_constraints(oid) owner to sluice;
revoke execute on function sluice.rel_state(oid), sluice.rel_columns(oid), sluice.base_type(oid, int), sluice.rel_indexes(oid),
  sluice.rel_constraints(oid) from public;

-- Counts of rel and its indexes are watched from here on; other sessions see it when this transaction commits.
create function sluice.watch_rel(rel oid) returns void language sql volatile
  set search_path = pg_catalog, pg_temp as $$
  insert into sluice.watch
  select rel, rel || coalesce(array_agg(indexrelid order by indexrelid), '{}') from pg_index where indrelid = watch_rel.rel
      on conflict on constraint watch_pkey do update set oids = excluded.oids where watch.oids <> excluded.oids $$;
alter function sluice.watch_rel(oid) owner to sluice;
revoke execute on function sluice.watch_rel(oid) from public;

-- The relations this transaction's DDL touched: those it holds strong locks on, and those that a schema rename moved. State null: dropped.
-- Known relations whose indexes changed are watched anew on the way.
create function sluice.reconcile_candidates(k bytea) returns table (rel oid, known boolean, state jsonb) language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  if pg_current_xact_id_if_assigned() is null then
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
alter function sluice.reconcile_candidates(bytea) owner to sluice;

-- Records the lake state of a relation in the user's own transaction. Keys that are missing keep their value.
create function sluice.rel_put(k bytea, rel oid, put jsonb) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  perform sluice.rel_set(rel, put);
end $$;

create function sluice.rel_set(rel oid, put jsonb) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  r sluice.rel;
begin
  select * into r from sluice.rel x where x.oid = rel;
  r.oid := rel;
  r.kind := coalesce(put->>'kind', r.kind, 'lake');
  r.version := coalesce((put->>'version')::int, r.version, 1);
  r.columns := coalesce(put->'columns', r.columns, '[]');
  r.last_field_id := coalesce((put->>'last_field_id')::int, r.last_field_id, 0);
  r.options := coalesce(put->'options', r.options, '{}');
  select n.nspname, c.relname, coalesce(pg_relation_filenode(c.oid), 0) into r.namespace, r.name, r.filenode
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = rel;
  if not found then
    raise exception 'relation % does not exist', rel using errcode = '42P01';
  end if;
  insert into sluice.rel values (r.*)
      on conflict (oid) do update set (kind, namespace, name, version, filenode, columns, last_field_id, options) =
        (excluded.kind, excluded.namespace, excluded.name, excluded.version, excluded.filenode, excluded.columns, excluded.last_field_id,
         excluded.options);
  if r.kind in ('lake', 'matview') then
    perform sluice.watch_rel(rel);
  else
    delete from sluice.watch w where w.rel = rel_set.rel;
  end if;
  perform pg_notify('sluice_ddl', rel || ':' || r.version);
end $$;

create function sluice.rel_drop(k bytea, rel oid) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  delete from sluice.rel r where r.oid = rel;
  delete from sluice.watch w where w.rel = rel_drop.rel;
  perform pg_notify('sluice_ddl', rel || ':0');
end $$;
alter function sluice.rel_put(bytea, oid, jsonb) owner to sluice;
alter function sluice.rel_set(oid, jsonb) owner to sluice;
revoke execute on function sluice.rel_set(oid, jsonb) from public;
alter function sluice.rel_drop(bytea, oid) owner to sluice;
