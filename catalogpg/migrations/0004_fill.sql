-- All of these are plpgsql, also where sql would do: its plans are kept, those of sql functions are made anew by every call (ten times the
-- cost).
--
-- The statements below are built here and run in a function that belongs to the table's owner (schema sluice_fill_fn, one set per owner),
-- because CHECK and generated expressions run with the rights of whoever inserts.

-- The search_path of the owner's functions: pg_catalog, and the table's own schema if nobody but its owner rules there. CHECK functions
-- commonly name their neighbours without schema; a path that others can write to would give them the owner's rights.
create function sluice.fill_path(rel oid) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
begin
  return (select 'pg_catalog, '
      || coalesce((select quote_ident(n.nspname) || ', ' from pg_namespace n
                    where n.oid = c.relnamespace
                      and c.relowner in (n.nspowner, (select d.datdba from pg_database d
                                                       where d.datname = current_database() and n.nspowner = 'pg_database_owner'::regrole))
                      and not exists (select from aclexplode(n.nspacl) a
                                       where a.privilege_type = 'CREATE' and a.grantee not in (n.nspowner, c.relowner))), '')
      || 'pg_temp'
    from pg_class c where c.oid = rel);
end $$;

-- How column number i of the call becomes a column of rows: an array of the column's own type where unnest can do it (fast), else text
-- that is cast (arrays, composites and domains: unnest would take the first two apart). $1 is the text[] of array literals.
create function sluice.fill_column(rel oid, attnum int2, i int, out source text, out value text, out target text) language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  a record;
begin
  select t.attname, t.atttypid, t.atttypmod, y.typtype, y.typcategory, y.typarray, y.typdelim, t.attgenerated into a
    from pg_attribute t join pg_type y on y.oid = t.atttypid
   where t.attrelid = rel and t.attnum = fill_column.attnum and t.attnum > 0 and not t.attisdropped;
  if not found then
    raise exception 'column number % of relation % does not exist', attnum, rel using errcode = '42703';
  end if;
  -- A user's own cast would replace the type's input function.
  if a.atttypid >= 16384 and exists (select from pg_cast where castsource = 'text'::regtype and casttarget in (a.atttypid, a.typarray)) then
    raise exception 'type % has a cast from text, which filling cannot go round', format_type(a.atttypid, null) using errcode = '0A000';
  end if;
  target := quote_ident(a.attname);
  if a.typtype in ('b', 'e', 'r', 'm') and a.typcategory <> 'A' and a.typarray <> 0 and a.typdelim = ',' then
    source := format('unnest($1[%s]::%s)', i, format_type(a.typarray, -1));
    value := 'c' || i;
  else
    source := format('unnest($1[%s]::text[])', i);
    value := format('c%s::%s', i, format_type(a.atttypid, a.atttypmod));
  end if;
end $$;

-- insert … select from rows from (unnest, unnest …): one row per element, in order. Returns the fill's xid and the ctids.
create function sluice.fill_statement(rel oid, attnums int2[]) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  t text := (select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = rel);
  s record;
begin
  if cardinality(attnums) = 0 then
    return format('with i as (insert into %s select from generate_series(1, $2) returning ctid, xmin) '
               || 'select (select xmin from i limit 1), coalesce((select array_agg(ctid) from i), ''{}'')', t);
  end if;
  select string_agg(f.source, ', ' order by u.i) as sources, string_agg(f.value, ', ' order by u.i) as vals,
         string_agg(f.target, ', ' order by u.i) as targets, string_agg('c' || u.i, ', ' order by u.i) as names
    into s from unnest(attnums) with ordinality u(attnum, i), sluice.fill_column(rel, u.attnum, u.i::int) f;
  return format('with i as (insert into %s (%s) overriding system value select %s from rows from (%s) u(%s) returning ctid, xmin) '
             || 'select (select xmin from i limit 1), coalesce((select array_agg(ctid) from i), ''{}'')',
                t, s.targets, s.vals, s.sources, s.names);
end $$;

-- All columns as text by their output functions: what the wire shows, whatever casts to text the user has made.
create function sluice.row_text(rel oid) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
begin
  return (select 'array[' || coalesce(string_agg(format('textin(%s(%I))', y.typoutput, a.attname), ', ' order by a.attnum), '') || ']::text[]'
    from pg_attribute a join pg_type y on y.oid = a.atttypid
   where a.attrelid = rel and a.attnum > 0 and not a.attisdropped);
end $$;

-- $1 the fill's xid, $2 its ctids. n: a new row; l: a copied row that was locked (or its change rolled back); g: a copied row that is gone.
create function sluice.change_statement(rel oid) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
begin
  return (select format($s$select 'n'::"char", ctid, %2$s from only %1$s where xmin is distinct from $1
union all select 'l'::"char", ctid, null from only %1$s where xmin = $1 and xmax <> 0
union all select 'g'::"char", _g._tid, null from unnest($2) _g(_tid)
 where (select count(*) from only %1$s where xmin = $1) < cardinality($2) and not exists (select from only %1$s _r where _r.ctid = _g._tid)$s$,
    (select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = rel),
    sluice.row_text(rel)));
end $$;

create function sluice.clear_statement(rel oid) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
begin
  return (select format('delete from only %I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = rel);
end $$;

-- The owner of a shadow whose functions are called next. Everything else is refused: a fill must never reach a table that holds rows.
create function sluice.shadow_owner(rel oid, out owner oid, out silent boolean) language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select p.relowner, p.relkind, p.relhastriggers or p.relhasrules as loud, p.relforcerowsecurity, p.relname,
         exists (select from sluice.watch w where w.rel = p.oid) as watched
    into c from pg_class p where p.oid = rel;
  if not found or not c.watched or c.relkind <> 'r' then
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

-- Triggers are switched off only where there are any: every change of session_replication_role throws away all cached plans of the session.
create function sluice.fill(k bytea, rel oid, attnums int2[], cols text[], n int default null, out fillxid xid, out tids tid[])
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  was text := current_setting('session_replication_role');
begin
  perform sluice.check_key(k);
  o := sluice.shadow_owner(rel);
  if not o.silent then
    perform set_config('session_replication_role', 'replica', true);
  end if;
  execute format('select * from sluice_fill_fn.fill_%s($1, $2, $3, $4)', o.owner) into fillxid, tids using rel, attnums, cols, n;
  if not o.silent then
    perform set_config('session_replication_role', was, true);
  end if;
end $$;

create function sluice.change(k bytea, rel oid, fillxid xid, tids tid[]) returns table (kind "char", tid tid, vals text[])
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  return query execute format('select * from sluice_fill_fn.change_%s($1, $2, $3)', (sluice.shadow_owner(rel)).owner)
    using rel, fillxid, tids;
end $$;

create function sluice.clear(k bytea, rel oid) returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  was text := current_setting('session_replication_role');
  n bigint;
begin
  perform sluice.check_key(k);
  o := sluice.shadow_owner(rel);
  perform set_config('session_replication_role', 'replica', true);
  execute format('select * from sluice_fill_fn.clear_%s($1)', o.owner) into n using rel;
  perform set_config('session_replication_role', was, true);
  return n;
end $$;

-- Makes the three functions of one owner; only the control connection calls it. Their settings pin how values are read and written as text.
create function sluice.make_owner(owner oid) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $make$
declare
  settings text := $s$security definer set search_path = pg_catalog, pg_temp set datestyle = 'ISO, MDY' set intervalstyle = postgres
    set timezone = 'UTC' set extra_float_digits = 1 set bytea_output = hex set lc_monetary = 'C' set xmloption = content
    set array_nulls = on$s$;
  f record;
begin
  if (select rolsuper from pg_roles where oid = owner) is not false then
    raise exception 'role % is a superuser or does not exist: its tables cannot be lake tables', owner using errcode = '0A000';
  end if;
  for f in
    select * from (values
      (format('fill_%s(oid, int2[], text[], int)', owner),
       format($b$create or replace function sluice_fill_fn.fill_%s(rel oid, attnums int2[], cols text[], n int, out fillxid xid, out tids tid[])
  language plpgsql volatile %s as $f$
declare
  s text := sluice.fill_statement(rel, attnums);
begin
  perform set_config('search_path', sluice.fill_path(rel), true);
  execute s into fillxid, tids using cols, n;
end $f$ $b$, owner, settings)),
      (format('change_%s(oid, xid, tid[])', owner),
       format($b$create or replace function sluice_fill_fn.change_%s(rel oid, fillxid xid, tids tid[])
  returns table (kind "char", tid tid, vals text[]) language plpgsql volatile %s as $f$
begin
  return query execute sluice.change_statement(rel) using fillxid, tids;
end $f$ $b$, owner, settings)),
      (format('clear_%s(oid)', owner),
       format($b$create or replace function sluice_fill_fn.clear_%s(rel oid) returns bigint language plpgsql volatile %s as $f$
declare
  n bigint;
begin
  execute sluice.clear_statement(rel);
  get diagnostics n = row_count;
  return n;
end $f$ $b$, owner, settings))) v(sig, body)
  loop
    execute f.body;
    execute format('alter function sluice_fill_fn.%s owner to %I', f.sig, pg_get_userbyid(owner));
    execute format('revoke all on function sluice_fill_fn.%s from public', f.sig);
    execute format('grant execute on function sluice_fill_fn.%s to sluice_fill', f.sig);
  end loop;
end $make$;

-- Before DROP ROLE or ALTER ROLE … SUPERUSER.
create function sluice.forget_owner(owner oid) returns void language plpgsql volatile
  set client_min_messages = warning set search_path = pg_catalog, pg_temp as $$
begin
  execute format('drop function if exists sluice_fill_fn.fill_%1$s(oid, int2[], text[], int), sluice_fill_fn.change_%1$s(oid, xid, tid[]), '
              || 'sluice_fill_fn.clear_%1$s(oid)', owner);
end $$;

alter function sluice.fill_path(oid) owner to sluice;
alter function sluice.fill_column(oid, int2, int) owner to sluice;
alter function sluice.fill_statement(oid, int2[]) owner to sluice;
alter function sluice.row_text(oid) owner to sluice;
alter function sluice.change_statement(oid) owner to sluice;
alter function sluice.clear_statement(oid) owner to sluice;
alter function sluice.shadow_owner(oid) owner to sluice;
revoke execute on function sluice.shadow_owner(oid), sluice.make_owner(oid), sluice.forget_owner(oid) from public;
grant execute on function sluice.shadow_owner(oid) to sluice_fill;
alter function sluice.fill(bytea, oid, int2[], text[], int) owner to sluice_fill;
alter function sluice.change(bytea, oid, xid, tid[]) owner to sluice_fill;
alter function sluice.clear(bytea, oid) owner to sluice_fill;
