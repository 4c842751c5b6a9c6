-- A materialized view keeps its rows in Postgres, and the lake a copy. The gateway must know whether it has any, and read them.
create or replace function sluice.rel_state(rel oid) returns jsonb language plpgsql stable
  set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = postgres set timezone = 'UTC'
  set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' as $$
declare
  state jsonb;
begin
  select jsonb_build_object(
      'oid', c.oid::bigint, 'namespace', n.nspname, 'name', c.relname, 'relkind', c.relkind::text, 'persistence', c.relpersistence::text,
      'owner', c.relowner::bigint, 'owner_name', pg_get_userbyid(c.relowner), 'am', coalesce(m.amname, ''),
      'populated', c.relispopulated, 'filenode', coalesce(pg_relation_filenode(c.oid), 0)::bigint, 'rls', c.relrowsecurity, 'force_rls', c.relforcerowsecurity,
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

-- Its rows are read like a shadow's. Filling one fails: Postgres lets nobody write it but REFRESH.
create or replace function sluice.shadow_owner(rel oid, out owner oid, out silent boolean) language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select p.relowner, p.relkind, p.relhastriggers or p.relhasrules as loud, p.relforcerowsecurity, p.relname,
         exists (select from sluice.watch w where w.rel = p.oid) as watched
    into c from pg_class p where p.oid = rel;
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
  silent := not c.loud;
end $$;
