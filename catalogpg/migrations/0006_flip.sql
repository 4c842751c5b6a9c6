-- The flip: all pointers of one edit move, or none. {"id", "stream", "position", "tables": [{"id", "from", "to", "version", "next_file",
-- "next_row", "row_map" (base64), "snapshot"}]}, tables in id order. from '' makes a table's row, to '' deletes it; a row whose name
-- differs from sluice.rel's is renamed. The commit counter is taken first: flips run one after the other and cannot deadlock.
create function sluice.flip_all(flip jsonb) returns bigint language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  commit_id bigint;
  moved jsonb := '[]';
  later jsonb[] := '{}';
  t record;
begin
  update sluice.commit_counter c set id = c.id + 1 returning c.id into commit_id;
  insert into sluice.commit (flush_id, id, stream, position) values (flip->>'id', commit_id, flip->>'stream', (flip->>'position')::bigint);
  for t in
    select e.x, (e.x->>'id')::oid as oid, e.x->>'from' as "from", e.x->>'to' as "to", p.namespace, p.name,
           r.namespace as new_namespace, r.name as new_name, r.version
      from jsonb_array_elements(flip->'tables') with ordinality e(x, i)
      left join sluice.pointer p on p.oid = (e.x->>'id')::oid
      left join sluice.rel r on r.oid = (e.x->>'id')::oid
     order by e.i
  loop
    if (t.x->>'version')::int <> 0 and t.version is distinct from (t.x->>'version')::int then
      perform sluice.flip_conflict(t.oid, 'its schema is version ' || coalesce(t.version::text, 'none'));
    end if;
    if t."from" = '' then
      later := later || (t.x || jsonb_build_object('namespace', t.new_namespace, 'name', t.new_name));
    elsif t."to" = '' or (t.namespace, t.name) is distinct from (t.new_namespace, t.new_name) then
      delete from sluice_iceberg.iceberg_tables i
       where i.catalog_name = current_database() and i.table_namespace = t.namespace and i.table_name = t.name
         and i.metadata_location = t."from" and coalesce(i.iceberg_type, 'TABLE') = 'TABLE';
      if not found then
        perform sluice.flip_conflict(t.oid, 'its pointer has moved');
      end if;
      if t."to" <> '' then
        later := later || (t.x || jsonb_build_object('namespace', t.new_namespace, 'name', t.new_name));
      end if;
    else
      update sluice_iceberg.iceberg_tables i set metadata_location = t."to", previous_metadata_location = t."from"
       where i.catalog_name = current_database() and i.table_namespace = t.namespace and i.table_name = t.name
         and i.metadata_location = t."from" and coalesce(i.iceberg_type, 'TABLE') = 'TABLE';
      if not found then
        perform sluice.flip_conflict(t.oid, 'its pointer has moved');
      end if;
    end if;
    if t."to" = '' then
      delete from sluice.pointer p where p.oid = t.oid;
    else
      perform sluice.flip_pointer(t.oid, coalesce(t.new_namespace, t.namespace), coalesce(t.new_name, t.name), t.x);
    end if;
    moved := moved || jsonb_build_array(jsonb_build_object('id', t.oid::bigint, 'from', t."from", 'to', t."to", 'snapshot', t.x->'snapshot'));
  end loop;
  -- Names are free only now: a flip may swap them.
  perform sluice.flip_insert(x) from unnest(later) x;
  perform sluice.flip_progress(flip->>'stream', (flip->>'position')::bigint, flip->>'id');
  update sluice.commit c set tables = moved where c.flush_id = flip->>'id';
  perform pg_notify('sluice_commits', commit_id || ':' || coalesce(flip->>'position', '0'));
  return commit_id;
end $$;

create function sluice.flip_conflict(rel oid, why text) returns void language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'could not serialize access to table % due to a concurrent commit: %', rel, why using errcode = '40001', detail = rel;
end $$;

create function sluice.flip_pointer(rel oid, namespace text, name text, x jsonb) returns void language sql volatile
  set search_path = pg_catalog, pg_temp as $$
  insert into sluice.pointer values (rel, namespace, name, (x->>'next_file')::bigint, (x->>'next_row')::bigint, decode(x->>'row_map', 'base64'),
                                     (x->>'snapshot')::bigint)
      on conflict (oid) do update set (namespace, name, next_file, next_row, row_map, snapshot) =
        (excluded.namespace, excluded.name, excluded.next_file, excluded.next_row, excluded.row_map, excluded.snapshot) $$;

create function sluice.flip_insert(x jsonb) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  if x->>'name' is null then
    raise exception 'table % is not known', x->>'id' using errcode = '42P01';
  end if;
  insert into sluice_iceberg.iceberg_namespace_properties values (current_database(), x->>'namespace', 'exists', 'true')
      on conflict do nothing;
  insert into sluice_iceberg.iceberg_tables
  values (current_database(), x->>'namespace', x->>'name', x->>'to', nullif(x->>'from', ''), 'TABLE')
      on conflict do nothing;
  if not found then
    raise exception 'table "%.%" already exists in the Iceberg catalog', x->>'namespace', x->>'name' using errcode = '42P07';
  end if;
end $$;

-- Progress never goes back.
create function sluice.flip_progress(stream text, pos bigint, flush_id text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(pos, 0) = 0 then
    return;
  end if;
  insert into sluice.progress values (stream, pos, flush_id)
      on conflict on constraint progress_pkey do update set position = excluded.position, flush_id = excluded.flush_id
        where progress.position <= excluded.position;
  if not found then
    raise exception 'could not serialize access: stream "%" is beyond position %', stream, pos using errcode = '40001';
  end if;
end $$;

create function sluice.flip(k bytea, flip jsonb) returns bigint language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  return sluice.flip_all(flip);
end $$;
alter function sluice.flip_all(jsonb) owner to sluice_ptr;
alter function sluice.flip_conflict(oid, text) owner to sluice_ptr;
alter function sluice.flip_pointer(oid, text, text, jsonb) owner to sluice_ptr;
alter function sluice.flip_insert(jsonb) owner to sluice_ptr;
alter function sluice.flip_progress(text, bigint, text) owner to sluice_ptr;
alter function sluice.flip(bytea, jsonb) owner to sluice_ptr;
revoke execute on function sluice.flip_all(jsonb), sluice.flip_conflict(oid, text), sluice.flip_pointer(oid, text, text, jsonb),
  sluice.flip_insert(jsonb), sluice.flip_progress(text, bigint, text) from public;
