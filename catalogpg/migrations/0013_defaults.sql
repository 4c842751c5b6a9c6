-- What a default needs beside its text: the relations that it names, by their names in it, and the sequence of an identity column. Both by
-- oid, since names change and texts that were read before do not.
create function sluice.default_relations(def oid, rel oid) returns jsonb language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_object_agg(d.refobjid::regclass::text, d.refobjid::bigint), '{}')
    from pg_depend d
   where d.classid = 'pg_attrdef'::regclass and d.objid = def and d.refclassid = 'pg_class'::regclass and d.refobjid <> rel $$;

create function sluice.identity_sequence(rel oid, attnum int2) returns bigint language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce((select d.objid::bigint from pg_depend d
    where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = rel
      and d.refobjsubid = identity_sequence.attnum and d.deptype = 'i'), 0) $$;

alter function sluice.default_relations(oid, oid) owner to sluice;
alter function sluice.identity_sequence(oid, int2) owner to sluice;
revoke execute on function sluice.default_relations(oid, oid), sluice.identity_sequence(oid, int2) from public;

create or replace function sluice.rel_columns(rel oid) returns jsonb language sql stable
  set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_agg(jsonb_build_object(
      'attnum', a.attnum, 'name', a.attname, 'type', a.atttypid::bigint, 'type_name', format_type(a.atttypid, a.atttypmod),
      'typmod', a.atttypmod, 'type_kind', t.typtype::text, 'type_category', t.typcategory::text,
      'base', b.oid::bigint, 'base_typmod', b.typmod,
      'elem', (select case when e.typcategory = 'A' and e.typlen = -1 then e.typelem else 0 end from pg_type e where e.oid = b.oid)::bigint,
      'dims', a.attndims, 'not_null', a.attnotnull, 'generated', a.attgenerated::text, 'identity', a.attidentity::text,
      'default', pg_get_expr(d.adbin, d.adrelid),
      'default_relations', case when d.oid is not null then sluice.default_relations(d.oid, rel) end,
      'sequence', case when a.attidentity <> '' then sluice.identity_sequence(rel, a.attnum) else 0 end,
      'missing', case when a.atthasmissing then (a.attmissingval::text::text[])[1] end,
      'has_missing', a.atthasmissing, 'collation', a.attcollation::bigint,
      'collation_name', coalesce((select o.collname from pg_collation o where o.oid = a.attcollation), ''),
      'comment', coalesce(col_description(a.attrelid, a.attnum), '')) order by a.attnum), '[]')
    from pg_attribute a
    join pg_type t on t.oid = a.atttypid
    cross join lateral sluice.base_type(a.atttypid, a.atttypmod) b
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
   where a.attrelid = rel and a.attnum > 0 and not a.attisdropped $$;
