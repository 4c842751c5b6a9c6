-- citext has a cast from text, without a function.
create or replace function sluice.fill_column(rel oid, attnum int2, i int, out source text, out value text, out target text) language plpgsql stable
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
  -- A user's own cast would replace the type's input function, unless it takes the text as it is.
  if a.atttypid >= 16384 and exists (select from pg_cast where castsource = 'text'::regtype and casttarget in (a.atttypid, a.typarray)
                                          and castmethod <> 'b') then
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

-- What names stand for in code: the operators of the given extensions run no SQL and read no table.
drop function sluice.resolve_code(text[], text[]);
create function sluice.resolve_code(kinds text[], names text[], extensions text[]) returns table (code_kind text, code_name text) language plpgsql stable as $$
begin
  return query
SELECT n.kind, n.name FROM ROWS FROM (pg_catalog.unnest(kinds), pg_catalog.unnest(names)) n(kind, name) WHERE CASE n.kind
   WHEN 'f' THEN EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
                          WHERE p.proname = n.name AND p.oid >= 16384 AND s.nspname <> 'sluice')
   WHEN 'o' THEN EXISTS (SELECT FROM pg_catalog.pg_operator o WHERE o.oprname = n.name AND o.oid >= 16384 AND NOT EXISTS (
                          SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
                           WHERE d.classid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND d.objid = o.oid AND d.deptype = 'e'
                             AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND e.extname = ANY (extensions)))
   ELSE EXISTS (SELECT FROM pg_catalog.pg_type WHERE typname = n.name AND oid >= 16384 AND typtype IN ('d', 'c', 'b')) END;
end $$;
alter function sluice.resolve_code(text[], text[], text[]) owner to sluice;
alter function sluice.resolve_code(text[], text[], text[]) set plan_cache_mode = force_generic_plan;

-- All columns as text by their output functions: what the wire shows, whatever casts to text the user has made. refcursor has that of text.
create or replace function sluice.row_text(rel oid) returns text language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
begin
  return (select 'array[' || coalesce(string_agg(format(case when y.oid = 'refcursor'::regtype then 'textin(%s(%I::text))' else 'textin(%s(%I))' end, y.typoutput, a.attname), ', '
                                                 order by a.attnum), '') || ']::text[]'
    from pg_attribute a join pg_type y on y.oid = a.atttypid
   where a.attrelid = rel and a.attnum > 0 and not a.attisdropped);
end $$;
