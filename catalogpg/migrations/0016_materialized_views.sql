-- A materialized view keeps its rows in Postgres, and the lake a copy. Whether it has any is in sluice.rel_state (0017); here the gateway may read them.
-- Its rows are read like a shadow's. Filling one fails: Postgres lets nobody write it but REFRESH.
create or replace function sluice.shadow_owner(rel oid, out owner oid, out silent boolean) language plpgsql stable
  set search_path = pg_catalog, pg_temp as $$
declare
  c record;
begin
  select p.relowner, p.relkind, p.relhastriggers or p.relhasrules as loud, p.relforcerowsecurity, p.relname,
         exists (select from sluice.watch w where w.rel = p.oid) as watched
    into c from pg_class p where p.oid = rel;
  if not found or not c.watched or c.relkind not in ('r', 'm') then
    raise exception 'relation % is not a shadow', rel using errcode = '42809';
  end if;
  if c.relforcerowsecurity then
    raise exception 'row security of "%" is forced on its owner', c.relname using errcode = '0A000';
  end if;
  if to_regprocedure(format('sluice_fill_fn.clear_%s(oid)', c.relowner)) is null then
    raise exception 'owner % cannot fill yet', c.relowner using errcode = 'SL001', detail = c.relowner;
  end if;
  owner := c.relowner;
  silent := not c.loud;
end $$;
