-- Rules of a table that an INSERT or DELETE obeys besides Postgres' own: merge engines and delete behaviour. In the exact lane triggers carry
-- them out, so that generated columns, CHECK, foreign keys, RETURNING and the arithmetic of types are Postgres' own. They run with the rights of
-- whoever writes.

-- What the statement under way is to the table with a merge engine: '-' for ON CONFLICT and MERGE, which keep their meaning;
-- 'insert OID COLUMNS' or 'copy OID COLUMNS', with the numbers of the columns it names; else it is not known who inserts.
-- $1 of the trigger: deletes the row with the key of the proposed one and returns what both become; $2: whether there is such a row.
create function sluice.merge() returns trigger language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  mode text := coalesce(current_setting('sluice.merge', true), '');
  proposed record := new;
  context text;
  n bigint;
begin
  if mode = '-' then
    return new;
  end if;
  -- One line is this function alone; a second one is COPY's, or the function that runs the INSERT.
  get diagnostics context = pg_context;
  if split_part(mode, ' ', 2) = tg_relid::text and (mode like 'copy %' or strpos(context, e'\n') = 0) then
    execute tg_argv[0] into new using new, mode;
    get diagnostics n = row_count;
    if n = 0 then
      new := proposed;
    end if;
    return new;
  end if;
  execute tg_argv[1] into n using new;
  if n > 0 then
    raise exception 'rows of table "%" with a merge engine can be merged by INSERT and COPY statements of their own only', tg_table_name
      using errcode = '0A000', hint = 'The key exists, and the INSERT is in a function, a trigger, a WITH query or behind a view.';
  end if;
  return new;
end $$;

-- A row that may not be deleted stays. What a merge replaces is not deleted by anybody.
create function sluice.keep_row() returns trigger language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  context text;
begin
  get diagnostics context = pg_context;
  if context ~ '\nPL/pgSQL function sluice\.merge\(\) line [0-9]+ at EXECUTE' then
    return old;
  end if;
  return null;
end $$;

create function sluice.refuse_delete() returns trigger language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  context text;
begin
  get diagnostics context = pg_context;
  if context !~ '\nPL/pgSQL function sluice\.merge\(\) line [0-9]+ at EXECUTE' then
    raise exception 'rows of table "%" cannot be deleted', tg_table_name
      using errcode = '55000', hint = 'Its option delete_behavior is disable.';
  end if;
  return null;
end $$;

alter function sluice.merge() owner to sluice;
alter function sluice.keep_row() owner to sluice;
alter function sluice.refuse_delete() owner to sluice;

-- The triggers of a table that run our functions, each with all that decides what it does.
create function sluice.rel_rules(rel oid) returns text language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format('%s %s %s %s%s', t.tgname, t.tgtype, p.proname, md5(t.tgargs),
           case when t.tgenabled <> 'O' or t.tgqual is not null or t.tgattr <> '' then ' changed' else '' end), e'\n' order by t.tgname), '')
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid
   where t.tgrelid = rel and not t.tgisinternal and p.pronamespace = 'sluice'::regnamespace $$;

alter function sluice.rel_rules(oid) owner to sluice;
revoke execute on function sluice.rel_rules(oid) from public;

create or replace function sluice.rel_state(rel oid) returns jsonb language plpgsql stable
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
      'comment', coalesce(obj_description(c.oid, 'pg_class'), ''))
    into state
    from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_am m on m.oid = c.relam
   where c.oid = rel;
  if not found then
    return null;
  end if;
  return state || sluice.rel_triggers(rel)
    || jsonb_build_object('columns', sluice.rel_columns(rel), 'indexes', sluice.rel_indexes(rel), 'constraints', sluice.rel_constraints(rel));
end $$;

-- The user's triggers, whether one of them looks at DELETE, and ours.
create function sluice.rel_triggers(rel oid) returns jsonb language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('triggers', coalesce(jsonb_agg(t.tgname order by t.tgname), '[]'),
                            'delete_triggers', coalesce(bool_or(t.tgtype & 8 <> 0), false), 'lake_triggers', sluice.rel_rules(rel))
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid
   where t.tgrelid = rel and not t.tgisinternal and p.pronamespace <> 'sluice'::regnamespace $$;

alter function sluice.rel_triggers(oid) owner to sluice;
revoke execute on function sluice.rel_triggers(oid) from public;
