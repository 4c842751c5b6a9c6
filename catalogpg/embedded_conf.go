package catalogpg

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// setting is one line of the cluster's configuration, with its reason.
type setting struct{ name, value, why string }

func settings(socket string, major int) []setting {
	parallel := "force_parallel_mode"
	if major >= 16 {
		parallel = "debug_parallel_query"
	}
	return []setting{
		{"listen_addresses", "''", "only the private socket"},
		{"unix_socket_directories", QuoteLiteral(socket), ""},
		{"unix_socket_permissions", "0700", ""},
		{"port", "5432", "names the socket, nothing more"},
		{"max_connections", "300", "attached sessions"},
		{"max_prepared_transactions", "64", ""},
		{"max_locks_per_transaction", "128", "DROP SCHEMA … CASCADE"},
		{"shared_buffers", "'64MB'", "the relations are empty"},
		{"fsync", "on", "R21"},
		{"full_page_writes", "on", "R21"},
		{"synchronous_commit", "on", "R21"},
		{"password_encryption", "'scram-sha-256'", ""},
		{"track_counts", "on", "the guard counts scans"},
		{"max_worker_processes", "0", "the guard does not see scans of parallel workers, and users can SET all other limits"},
		{"max_logical_replication_workers", "0", "would need a worker"},
		{"max_parallel_workers_per_gather", "0", ""},
		{"max_parallel_maintenance_workers", "0", ""},
		{parallel, "off", ""},
		{"max_wal_senders", "0", "nobody replicates this cluster"},
		{"wal_level", "minimal", ""},
		{"max_wal_size", "'256MB'", ""},
		{"min_wal_size", "'64MB'", ""},
		{"jit", "off", "compiling costs more than our queries"},
		{"autovacuum_naptime", "'10s'", "rolled-back fills leave dead rows"},
		{"log_destination", "'stderr'", "goes to postgres.log"},
		{"log_min_messages", "'log'", "not the errors that users make"},
		{"log_min_error_statement", "'panic'", "statements may hold secrets"},
		{"log_parameter_max_length", "0", "parameters hold the session key"},
		{"log_parameter_max_length_on_error", "0", ""},
		{"timezone", "'UTC'", ""},
		{"datestyle", "'ISO, MDY'", ""},
	}
}

// writeConf writes the whole configuration anew at every start: what someone changed in it is not kept.
func writeConf(cluster, socket string, major int, as account) error {
	var b strings.Builder
	b.WriteString("# Written by sluice at every start.\n")
	for _, s := range settings(socket, major) {
		fmt.Fprintf(&b, "%s = %s", s.name, s.value)
		if s.why != "" {
			fmt.Fprintf(&b, "  # %s", s.why)
		}
		b.WriteByte('\n')
	}
	if err := writeOwned(filepath.Join(cluster, "postgresql.conf"), b.String(), as); err != nil {
		return err
	}
	// Who can enter the socket's folder is us; the gateway has authenticated the user before it attaches.
	return writeOwned(filepath.Join(cluster, "pg_hba.conf"), "local all all trust\n", as)
}

func writeOwned(path, text string, as account) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.Chown(path, int(as.uid), int(as.gid)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}
