-- Transactions that PREPARE TRANSACTION keeps until somebody decides them: what they do to the lake. The decision row is in the prepared
-- transaction of Postgres.
create table sluice.prepared (
  number bigint generated always as identity,
  txid   uuid primary key,
  gid    text not null,
  state  bytea not null
) using heap;
alter table sluice.prepared owner to sluice_ptr;
