-- Exactly once: what transactions with a retry identity answered, stored by the flip that moves their rows. A writer's name is the oid of its
-- role, a slash, and the name that the client gave; with nothing behind the slash it stands for transactions that only had a token, whose
-- sequence is their position in the log.
create table sluice.result (
  writer   text not null,
  sequence bigint not null,
  stream   text not null,
  position bigint not null,
  txid     uuid not null,
  time     bigint not null,                          -- of the commit, microseconds since 1970
  answer   bytea not null,
  primary key (writer, sequence)
) using heap;

-- Answers up to low are not kept. The row of the writer '' is of all that were forgotten altogether: low is their highest position.
create table sluice.result_window (
  writer text primary key,
  stream text not null,
  low    bigint not null
) using heap;
alter table sluice.result owner to sluice_ptr;
alter table sluice.result_window owner to sluice_ptr;

-- Whether a name stands for transactions that only had a token: their numbers mean something in their own stream only.
create function sluice.only_tokens(writer text) returns boolean language sql immutable
  return strpos(writer, '/') in (0, length(writer));
alter function sluice.only_tokens(text) owner to sluice_ptr;

-- {"stream", "results": {"forgotten", "dropped": [writer], "list": [{"writer", "sequence", "position", "txid", "time", "answer" (base64)}],
-- "low": {writer: sequence}}}
create function sluice.flip_results(flip jsonb) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  r jsonb := flip->'results';
begin
  if r is null then
    return;
  end if;
  delete from sluice.result x using jsonb_array_elements_text(r->'dropped') d(writer) where x.writer = d.writer;
  delete from sluice.result_window x using jsonb_array_elements_text(r->'dropped') d(writer) where x.writer = d.writer;
  insert into sluice.result as x
    select l.writer, l.sequence, flip->>'stream', l.position, l.txid, l.time, decode(l.answer, 'base64')
      from jsonb_to_recordset(r->'list') l(writer text, sequence bigint, position bigint, txid uuid, time bigint, answer text)
      on conflict on constraint result_pkey do update
        set (stream, position, txid, time, answer) = (excluded.stream, excluded.position, excluded.txid, excluded.time, excluded.answer);
  insert into sluice.result_window as x
    select w.key, flip->>'stream', w.value::bigint
      from (select * from jsonb_each_text(r->'low') union all
            select '', r->>'forgotten' where (r->>'forgotten')::bigint > 0) w
      on conflict on constraint result_window_pkey do update set (stream, low) = (excluded.stream, excluded.low);
  delete from sluice.result x using jsonb_each_text(r->'low') w where x.writer = w.key and x.sequence <= w.value::bigint;
end $$;
alter function sluice.flip_results(jsonb) owner to sluice_ptr;
revoke execute on function sluice.flip_results(jsonb) from public;

alter function sluice.flip_all(jsonb) rename to flip_tables;
create function sluice.flip_all(flip jsonb) returns bigint language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  commit_id bigint := sluice.flip_tables(flip);      -- takes the commit counter: from here on this is the only flip
begin
  perform sluice.flip_results(flip);
  return commit_id;
end $$;
alter function sluice.flip_all(jsonb) owner to sluice_ptr;
revoke execute on function sluice.flip_all(jsonb) from public;

-- The gateway sees these calls in the statement, finds out before it runs it, and leaves the answers here.
create function sluice.txn_token() returns text language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(current_setting('sluice.token', true), '') = '' then
    raise exception 'sluice.txn_token() cannot be called inside functions, views and prepared statements' using errcode = '0A000',
      hint = 'Call it in a SELECT of its own.';
  end if;
  return current_setting('sluice.token');
end $$;
alter function sluice.txn_token() owner to sluice;
comment on function sluice.txn_token() is 'names the current transaction for sluice.txn_outcome, also after its connection or the gateway is gone';
create function sluice.txn_outcome(token text) returns text language plpgsql volatile strict
  set search_path = pg_catalog, pg_temp as $$
declare
  found text := current_setting('sluice.outcome', true);
begin
  if found is null or not starts_with(found, token || ' ') then
    raise exception 'sluice.txn_outcome() can be called once in a statement, and not inside functions, views and prepared statements'
      using errcode = '0A000', hint = 'Call it in a SELECT of its own.';
  end if;
  return substr(found, length(token) + 2);
end $$;
alter function sluice.txn_outcome(text) owner to sluice;
comment on function sluice.txn_outcome(text) is 'committed, aborted, in progress, or expired: not known any more';
