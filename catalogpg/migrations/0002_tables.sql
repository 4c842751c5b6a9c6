-- The JDBC catalog, layout V1, with the lengths of Java's JdbcCatalog.
create table sluice_iceberg.iceberg_tables (
  catalog_name               varchar(255) not null,
  table_namespace            varchar(255) not null,
  table_name                 varchar(255) not null,
  metadata_location          varchar(1000),
  previous_metadata_location varchar(1000),
  iceberg_type               varchar(5),
  primary key (catalog_name, table_namespace, table_name)
) using heap;
create table sluice_iceberg.iceberg_namespace_properties (
  catalog_name   varchar(255) not null,
  namespace      varchar(255) not null,
  property_key   varchar(255) not null,
  property_value varchar(1000),
  primary key (catalog_name, namespace, property_key)
) using heap;
alter table sluice_iceberg.iceberg_tables owner to sluice_ptr;
alter table sluice_iceberg.iceberg_namespace_properties owner to sluice_ptr;
insert into sluice_iceberg.iceberg_namespace_properties values (current_database(), 'public', 'exists', 'true');

-- What the lake knows of a relation beyond Postgres' own catalogs. Written only by DDL, in the transaction of the DDL.
create table sluice.rel (
  oid           oid primary key,
  kind          text not null,                       -- lake, heap, view, matview
  namespace     text not null,                       -- as of the last reconcile, to see renames of schemas
  name          text not null,
  version       int not null,                        -- of the schema, grows with every change
  filenode      oid,                                 -- as of the last reconcile, to see TRUNCATE
  columns       jsonb not null default '[]',         -- per attnum: field id, element id, exact id, initial text
  last_field_id int not null default 0,
  options       jsonb not null default '{}'
) using heap;
alter table sluice.rel owner to sluice;
grant select on sluice.rel to sluice_ptr, sluice_fill;

-- Where a lake table stands. Written only by flips, and apart from sluice.rel so that an open DDL transaction never makes a flush wait.
create table sluice.pointer (
  oid       oid primary key,
  namespace text not null,                           -- the row of iceberg_tables that holds the metadata location
  name      text not null,
  next_file bigint not null default 1,
  next_row  bigint not null default 1,
  row_map   bytea,
  snapshot  bigint not null default 0
) using heap;
alter table sluice.pointer owner to sluice_ptr;

create table sluice.progress (
  stream   text primary key,
  position bigint not null,
  flush_id text not null
) using heap;
alter table sluice.progress owner to sluice_ptr;

-- The commit log. A row without id is a tombstone: that flip did not commit and never can.
create table sluice.commit (
  flush_id text primary key,
  id       bigint unique,
  stream   text,
  position bigint,
  time     timestamptz not null default clock_timestamp(),
  tables   jsonb
) using heap;
create table sluice.commit_counter (id bigint not null) using heap;
insert into sluice.commit_counter values (0);
alter table sluice.commit owner to sluice_ptr;
alter table sluice.commit_counter owner to sluice_ptr;

-- Fates of transactions that Postgres decides; committed = false is a tombstone.
create table sluice.decision (
  txid      uuid primary key,
  committed boolean not null,
  time      timestamptz not null default clock_timestamp()
) using heap;
alter table sluice.decision owner to sluice_ptr;

-- Keys die with their backends, hence no need to log them.
create unlogged table sluice.session_key (
  pid     int primary key,
  started timestamptz not null,
  digest  bytea not null
) using heap;
alter table sluice.session_key owner to sluice_ptr;

-- The shadows whose scans are counted, each with its indexes. One row per shadow: a single row would make all DDL wait for each other.
create table sluice.watch (
  rel  oid primary key,
  oids oid[] not null
) using heap;
alter table sluice.watch owner to sluice;
grant select on sluice.watch to sluice_fill, sluice_ptr;
