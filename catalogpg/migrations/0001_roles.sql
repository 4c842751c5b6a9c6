-- Roles are of the cluster, not of the database: a second database finds them there.
do $$
declare
  r text;
begin
  foreach r in array array['sluice', 'sluice_fill', 'sluice_ptr'] loop
    begin
      execute format('create role %I nologin', r);
    exception when duplicate_object then
      null;
    end;
  end loop;
end $$;

-- sluice_fill may switch triggers off and nothing else. sluice_ptr reads the start time of every backend to check keys.
grant set on parameter session_replication_role to sluice_fill;
grant pg_read_all_stats to sluice_ptr;

create schema sluice authorization sluice;
create schema sluice_iceberg authorization sluice_ptr;
create schema sluice_fill_fn;
grant usage on schema sluice to public;

create table sluice.migration (
  number  int primary key,
  name    text not null,
  digest  text not null,
  applied timestamptz not null default clock_timestamp()
) using heap;
grant usage on schema sluice, sluice_iceberg to sluice_ptr;
grant usage on schema sluice_fill_fn to sluice_fill;

-- The access method of lake tables: heap under another name. pg_class.relam then tells lake tables from tables USING heap, also for
-- those made in functions, by CREATE TABLE AS or LIKE, without reading any statement.
do $$
begin
  create access method lake type table handler heap_tableam_handler;
exception when duplicate_object then
  null;
end $$;
do $$
begin
  execute format('alter database %I set default_table_access_method = lake', current_database());
  execute format('alter database %I set max_parallel_workers_per_gather = 0', current_database());
end $$;
