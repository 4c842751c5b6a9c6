-- Objects that were about to be written for a flip. What belongs to no flip that committed is garbage, or of a flip under way.
create table sluice.staged (
  flush_id text not null,
  location text not null,
  time     timestamptz not null default clock_timestamp(),
  primary key (flush_id, location)
) using heap;
alter table sluice.staged owner to sluice_ptr;
