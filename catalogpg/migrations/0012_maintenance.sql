-- sluice.compact(table): the gateway sees the call in the statement, merges the table's files before it runs it, and leaves the counts here, as
-- it does for sluice.flush(). The columns are called as those of Iceberg's rewrite_data_files.
create function sluice.compact(rel regclass, out rewritten_data_files_count bigint, out added_data_files_count bigint, out rewritten_bytes_count bigint)
  language sql volatile set search_path = pg_catalog, pg_temp as $$
  select (c->>0)::bigint, (c->>1)::bigint, (c->>2)::bigint from (select nullif(current_setting('sluice.compacted', true), '')::jsonb) x(c) $$;
alter function sluice.compact(regclass) owner to sluice;

-- sluice.expire(table, age): snapshots older than age go, and then the objects that only they reach; their number is the result.
create function sluice.expire(rel regclass, older_than interval) returns bigint language sql volatile
  set search_path = pg_catalog, pg_temp as $$ select nullif(current_setting('sluice.expired', true), '')::bigint $$;
alter function sluice.expire(regclass, interval) owner to sluice;
