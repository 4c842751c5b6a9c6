-- A rewrite (ALTER COLUMN TYPE) gives new rows the ctids of copied ones: a copied row is still there only if its ctid holds a row of the fill.
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
