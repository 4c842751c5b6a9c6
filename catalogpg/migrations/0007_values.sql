-- The canonical text of a value, whatever the session's settings are: the cast that makes v is the caller's and follows them, the output
-- here does not.
create function sluice.canonical(v anyelement) returns text language sql stable
  set search_path = pg_catalog set datestyle = 'ISO, MDY' set timezone = 'UTC' set intervalstyle = postgres set extra_float_digits = 1
  set bytea_output = hex set lc_monetary = 'C' as $$ select format('%s', v) $$;
alter function sluice.canonical(anyelement) owner to sluice;

-- Fails as the gateway says, so that a block whose lake statement failed is aborted in Postgres too.
create function sluice.fail(code text, message text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
begin
  raise exception using errcode = code, message = message;
end $$;
alter function sluice.fail(text, text) owner to sluice;

-- sluice.flush(): the gateway sees the call in the statement, flushes before it runs it, and leaves the position here.
create function sluice.flush() returns bigint language sql volatile
  set search_path = pg_catalog, pg_temp as $$ select nullif(current_setting('sluice.flushed', true), '')::bigint $$;
alter function sluice.flush() owner to sluice;
