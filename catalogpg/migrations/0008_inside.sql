-- What the lake shows of itself (DESIGN section 9). The tables below are empty: the gateway copies rows into them when a statement scans
-- them, in the same way as into shadows, and that copy is undone with the statement. Nobody may write them.

-- The view sluice.progress needs the name.
alter table sluice.progress rename to stream;
create or replace function sluice.flip_progress(stream text, pos bigint, flush_id text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(pos, 0) = 0 then
    return;
  end if;
  insert into sluice.stream as s values (flip_progress.stream, pos, flip_progress.flush_id)
      on conflict on constraint progress_pkey do update set position = excluded.position, flush_id = excluded.flush_id
        where s.position <= excluded.position;
  if not found then
    raise exception 'could not serialize access: stream "%" is beyond position %', flip_progress.stream, pos using errcode = '40001';
  end if;
end $$;

create table sluice.tables (
  namespace         name,
  name              name,
  oid               oid,
  rows_estimate     bigint,
  files             bigint,
  file_bytes        bigint,
  tail_rows         bigint,
  tail_bytes        bigint,
  snapshot_id       bigint,
  metadata_location text,
  flushed_position  bigint
) using heap;
comment on table sluice.tables is 'lake tables that you have a privilege on';
comment on column sluice.tables.rows_estimate is 'live rows, from counts';
comment on column sluice.tables.tail_rows is 'rows that are not in files yet';
comment on column sluice.tables.snapshot_id is 'newest Iceberg snapshot; null before the first flush';
comment on column sluice.tables.flushed_position is 'commits up to here are in the table''s files';

create table sluice.files (
  namespace    name,
  name         name,
  oid          oid,
  file_id      bigint,
  location     text,
  rows         bigint,
  deleted_rows bigint,
  bytes        bigint
) using heap;
comment on table sluice.files is 'data files of lake tables that you have a privilege on';
comment on column sluice.files.deleted_rows is 'rows of the file that were deleted since, flushed or not';

create table sluice.snapshots (
  namespace       name,
  name            name,
  oid             oid,
  snapshot_id     bigint,
  parent_id       bigint,
  sequence_number bigint,
  committed_at    timestamptz,
  operation       text,
  is_current      boolean,
  summary         jsonb
) using heap;
comment on table sluice.snapshots is 'snapshots in the metadata of lake tables that you have a privilege on';

create table sluice.wal (
  stream           text,
  first_position   bigint,
  last_position    bigint,
  visible_position bigint,
  flushed_position bigint,
  segments         int,
  bytes            bigint,
  held_bytes       bigint,
  held_reason      text
) using heap;
comment on table sluice.wal is 'the log of this gateway';
comment on column sluice.wal.first_position is 'oldest commit that the log can replay';
comment on column sluice.wal.bytes is 'on disk, spare segments included';
comment on column sluice.wal.held_bytes is 'frames in segments that are still needed';
comment on column sluice.wal.held_reason is 'why the log is not trimmed up to its end; null: it is';

create table sluice.sessions (
  pid              int,
  backend_pid      int,
  usename          name,
  datname          name,
  application_name text,
  client_addr      inet,
  client_port      int,
  session_start    timestamptz,
  xact_start       timestamptz,
  state            text,
  state_change     timestamptz,
  lane             text,
  wait_relid       oid,
  wait_lock        text,
  wait_mode        text,
  blocked_by       int[]
) using heap;
comment on table sluice.sessions is 'client sessions; of other roles only who they are';
comment on column sluice.sessions.pid is 'of the gateway''s session, as clients know it';
comment on column sluice.sessions.backend_pid is 'of its Postgres backend, as in pg_stat_activity';
comment on column sluice.sessions.lane is 'of the last statement, as planned';
comment on column sluice.sessions.wait_lock is 'what kind of lock of the gateway it waits for: relation, tuple, key';
comment on column sluice.sessions.blocked_by is 'pids of sessions in front of it';

create table sluice.progress (
  pid     int,
  usename name,
  command text,
  relid   oid,
  rows    bigint,
  bytes   bigint,
  started timestamptz
) using heap;
comment on table sluice.progress is 'long work that runs now: COPY of sessions whose role is yours, FLUSH of the gateway (without pid)';

do $$
declare
  t text;
begin
  foreach t in array array['tables', 'files', 'snapshots', 'wal', 'sessions', 'progress'] loop
    execute format('alter table sluice.%I owner to sluice', t);
    execute format('grant select on sluice.%I to public', t);
    perform sluice.watch_rel(format('sluice.%I', t)::regclass);
  end loop;
end $$;

-- Whether the current role sees a table in these views: it has any privilege on it. What is gone is seen by the database's owner.
-- (RETURN and BEGIN ATOMIC: parsed now, whatever the caller's search_path is, and still inlined.)
create function sluice.sees(rel oid) returns boolean language sql stable
  return case when exists (select from pg_class c where c.oid = rel)
    then has_table_privilege(rel, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
      or has_any_column_privilege(rel, 'SELECT, INSERT, UPDATE, REFERENCES')
    else (select pg_has_role(d.datdba, 'USAGE') from pg_database d where d.datname = current_database()) end;
alter function sluice.sees(oid) owner to sluice;

-- The commit log: every flip, in order and without gaps. Each also says NOTIFY sluice_commits, 'id:position'; that is a hint, this the truth.
create view sluice.commits as
  select c.id, c.time, c.position, c.flush_id,
         (select coalesce(jsonb_agg(jsonb_build_object(
                   'oid', t.x->'id', 'namespace', n.nspname, 'name', r.relname, 'snapshot_id', t.x->'snapshot',
                   'metadata_location', nullif(t.x->>'to', ''), 'previous_metadata_location', nullif(t.x->>'from', '')) order by t.i), '[]')
            from jsonb_array_elements(c.tables) with ordinality t(x, i)
            left join pg_class r on r.oid = (t.x->>'id')::oid
            left join pg_namespace n on n.oid = r.relnamespace
           where sluice.sees((t.x->>'id')::oid)) as tables
    from sluice.commit c
   where c.id is not null;
alter view sluice.commits owner to sluice_ptr;
grant select on sluice.commits to public;
comment on view sluice.commits is 'flips of the catalog: which tables moved, from which metadata to which, in one step';

-- Where every table stood after a commit: metadata locations of one moment, for readers of many tables.
create function sluice.tables_at(commit_id bigint) returns table (oid oid, namespace name, name name, snapshot_id bigint, metadata_location text)
  language sql stable
begin atomic
  select q.oid, q.namespace, q.name, q.snapshot_id, q.metadata_location
    from (select distinct on (t.oid) t.oid, t.namespace, t.name, t.snapshot_id, t.metadata_location
            from sluice.commits c, jsonb_to_recordset(c.tables) t(oid oid, namespace name, name name, snapshot_id bigint, metadata_location text)
           where c.id <= tables_at.commit_id
           order by t.oid, c.id desc) q
   where q.metadata_location is not null;
end;
alter function sluice.tables_at(bigint) owner to sluice;
