package catalogpg_test

import (
	"testing"

	"sluice/catalogpg"
	"sluice/sql"
)

// TestRoleText prints statements anew: every name and value of the text comes out quoted, whatever is in it.
func TestRoleText(t *testing.T) {
	for in, want := range map[string]string{
		`create user "a""; drop table x; --" nocreatedb encrypted password 'it''s \' valid until E'\'x' sysid 7`: `CREATE ROLE "a""; drop table x; --" LOGIN PASSWORD  E'it''s \\' VALID UNTIL '''x'`,
		`create role a superuser replication noinherit connection limit -1 in role "B" role c, d admin e`:        `CREATE ROLE "a" SUPERUSER REPLICATION NOINHERIT CONNECTION LIMIT -1 IN ROLE "B" ROLE "c", "d" ADMIN "e"`,
		`create user a nologin`:                                   `CREATE ROLE "a" NOLOGIN`,
		`alter user a password null`:                              `ALTER ROLE "a" PASSWORD NULL`,
		`alter group g add user "u 1", u2`:                        `ALTER GROUP "g" ADD USER "u 1", "u2"`,
		`alter group g drop user u`:                               `ALTER GROUP "g" DROP USER "u"`,
		`alter role a rename to "B"`:                              `ALTER ROLE "a" RENAME TO "B"`,
		`alter role a set search_path to "$user", 'x''y', public`: `ALTER ROLE "a" SET "search_path" TO '$user', 'x''y', 'public'`,
		`alter role a in database "D" set my."x" = -1.5`:          `ALTER ROLE "a" IN DATABASE "D" SET "my"."x" TO '-1.5'`,
		`alter role a set work_mem to default`:                    `ALTER ROLE "a" RESET "work_mem"`,
		`alter role a reset all`:                                  `ALTER ROLE "a" RESET ALL`,
		`drop role if exists a, "B"`:                              `DROP ROLE IF EXISTS "a", "B"`,
		`comment on role a is 'x\y'`:                              `COMMENT ON ROLE "a" IS  E'x\\y'`,
		`comment on role a is null`:                               `COMMENT ON ROLE "a" IS NULL`,
		`grant a, "B" to c, d with admin option`:                  `GRANT "a", "B" TO "c", "d" WITH ADMIN OPTION`,
		`revoke admin option for a from c cascade`:                `REVOKE ADMIN OPTION FOR "a" FROM "c" CASCADE`,
		`reassign owned by a to b`:                                ``,
		`drop owned by a`:                                         ``,
	} {
		stmts, err := sql.Parse(in)
		if err != nil || len(stmts) != 1 {
			t.Fatalf("%s: %v", in, err)
		}
		if got := catalogpg.RoleText(stmts[0].Role()); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}
