-- Statements about roles. Users' roles have no CREATEROLE: the gateway prints the statement anew from its parse tree and has it run here, in
-- the user's own transaction, with the rights of sluice_roles, which has CREATEROLE and nothing else. What such a role may not do (touch
-- superusers, give attributes it lacks, set superusers' parameters), Postgres refuses.
do $$
begin
  create role sluice_roles nologin createrole;
exception when duplicate_object then
  null;
end $$;
-- From version 16 on CREATEROLE reaches only roles that one has ADMIN on: those it makes itself, and the lake's owner.
do $$
begin
  if current_setting('server_version_num')::int >= 160000 then
    execute format('grant %I to sluice_roles with admin true, inherit false, set false',
                   (select pg_get_userbyid(datdba) from pg_database where datname = current_database()));
  end if;
end $$;

grant usage on schema sluice to sluice_roles;
grant execute on function sluice.check_key(bytea) to sluice_roles;
-- A role's fill functions go with it: the schema's owner may drop what others own in it.
alter schema sluice_fill_fn owner to sluice_roles;
grant execute on function sluice.forget_owner(oid) to sluice_roles;

-- forget: roles that are about to go, or to lose what they own. statement may be empty.
create function sluice.role_do(k bytea, statement text, forget text[]) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform sluice.check_key(k);
  perform sluice.forget_owner(r.oid) from pg_roles r where r.rolname = any (forget);
  if statement <> '' then
    execute statement;
  end if;
end $$;
alter function sluice.role_do(bytea, text, text[]) owner to sluice_roles;
