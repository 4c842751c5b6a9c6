package catalogpg

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// SettingError names the setting under which the catalog could lose or forget what it acknowledged.
type SettingError struct {
	Setting string
	Value   string
	Reason  string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("refuse catalog postgres: %s = %s: %s", e.Setting, e.Value, e.Reason)
}

// patched holds the first minor version of each major one that has no known data loss we depend on not having.
// 15.3 and older: MERGE and partition pruning wrote wrong rows.
var patched = map[int]int{15: 4}

// required are the settings of rule R21: an acknowledged commit must survive a crash.
var required = []struct{ name, reason string }{
	{"fsync", "commits would be lost in a crash"},
	{"full_page_writes", "a crash could tear pages"},
	{"synchronous_commit", "commits would be acknowledged before they are durable"},
	{"track_counts", "scans of shadow relations would go unseen"},
}

// querier is a connection or a pool of them.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// check refuses a server that cannot keep our promises (rule R21). It runs on the first connection, before anything is written, and again
// in the lake's database, which may have settings of its own.
func check(ctx context.Context, conn querier, database string) error {
	rows, err := conn.Query(ctx, `select name, case when name = 'synchronous_commit' then coalesce(
			(select split_part(c, '=', 2) from pg_db_role_setting s, unnest(s.setconfig) c
			  where c like 'synchronous_commit=%' and s.setrole = 0
			    and s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
			  order by s.setdatabase desc limit 1), reset_val) else setting end
		from pg_settings
		where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'track_counts', 'server_version_num', 'is_superuser')
		union all select 'standby', pg_is_in_recovery()::text
		union all select 'encoding', pg_encoding_to_char(encoding) from pg_database
			where datname = current_database() and datname = $1`, database)
	if err != nil {
		return fmt.Errorf("check catalog: %w", err)
	}
	found := map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { found[name] = value; return nil })
	if err != nil {
		return fmt.Errorf("check catalog: %w", err)
	}
	return judge(found)
}

func judge(found map[string]string) error {
	for _, r := range required {
		if found[r.name] == "off" {
			return &SettingError{r.name, "off", r.reason}
		}
	}
	if found["standby"] == "true" {
		return &SettingError{"standby", "on", "a standby takes no writes"}
	}
	if enc, ok := found["encoding"]; ok && enc != "UTF8" {
		return &SettingError{"server_encoding", enc, "the lake is UTF8"}
	}
	version, _ := strconv.Atoi(found["server_version_num"])
	major, minor := version/10000, version%10000
	if major < oldest {
		return &SettingError{"server_version", fmt.Sprintf("%d.%d", major, minor), fmt.Sprintf("version %d or newer is needed", oldest)}
	}
	if minor < patched[major] {
		return &SettingError{"server_version", fmt.Sprintf("%d.%d", major, minor),
			fmt.Sprintf("update to %d.%d or newer", major, patched[major])}
	}
	return nil
}
