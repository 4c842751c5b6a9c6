package server

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer/table"
)

// The options of CREATE TABLE … WITH that are the lake's. A value that means nothing is an error, never ignored.

// lakeOptions is their names.
var lakeOptions = map[string]bool{"format": true, "format_version": true, "partition_by": true, "bucket_key": true, "buckets": true,
	"delete_mode": true, "target_file_size": true, "merge_engine": true, "fields": true, "delete_behavior": true, "unique_scope": true}

func badOption(name, value string) error {
	return wire.Errorf(wire.CodeInvalidParameterValue, "invalid value for option \"%s\": \"%s\"", name, value)
}

// setOptions keeps the options of a new table, checks them and derives its partition spec. fits says whether the format can partition
// a table so; nil: it is not asked.
func (r *rel) setOptions(opts []sql.Option, fits func(*table.Schema) error) error {
	for _, o := range opts {
		if _, twice := r.Options[o.Name]; twice {
			return wire.Errorf(wire.CodeInvalidParameterValue, "parameter \"%s\" specified more than once", o.Name)
		}
		r.Options[o.Name] = o.Value
	}
	for name, value := range r.Options {
		if err := checkOption(name, value); err != nil {
			return err
		}
	}
	err := r.partition()
	if err == nil {
		err = r.setRules()
	}
	if err != nil || len(r.Schema.Spec) == 0 || fits == nil {
		return err
	}
	if err := fits(r.Schema); err != nil {
		return wire.Errorf(wire.CodeInvalidParameterValue, "the table cannot be partitioned so: %v", err)
	}
	return nil
}

func checkOption(name, value string) error {
	switch name {
	case "format":
		if value == "paimon" || value == "hudi" {
			return unsupported("format %s is not supported yet", value).WithHint("Use format = 'iceberg'.")
		}
		if value != "iceberg" {
			return badOption(name, value)
		}
	case "format_version":
		if value != "2" && value != "3" {
			return badOption(name, value)
		}
	case "delete_mode":
		if value == "copy-on-write" {
			return unsupported("delete_mode copy-on-write is not supported yet").WithHint("Use delete_mode = 'merge-on-read'.")
		}
		if value != "merge-on-read" {
			return badOption(name, value)
		}
	case "delete_behavior":
		if value != "allow" && value != "ignore" && value != "disable" {
			return badOption(name, value)
		}
	case "unique_scope":
		if value != "table" && value != "partition" {
			return badOption(name, value)
		}
	case "target_file_size":
		if !regexp.MustCompile(`^(?i)[1-9][0-9]* *(b|kb|mb|gb)?$`).MatchString(strings.TrimSpace(value)) {
			return badOption(name, value)
		}
	}
	return nil
}

var partitionTerm = regexp.MustCompile(`^(?:(year|month|day|hour|bucket|truncate)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),\s]+)\s*\)|([^(),\s]+))$`)

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// partition makes the spec of partition_by, bucket_key and buckets (Iceberg spec, Partition Transforms).
func (r *rel) partition() error {
	next := 1000
	add := func(option, column, transform, suffix string) error {
		at := r.Schema.Index(strings.Trim(column, `"`))
		if at < 0 {
			return wire.Errorf(wire.CodeUndefinedColumn, "column \"%s\" named in %s does not exist", column, option)
		}
		c := &r.Schema.Columns[at]
		name := fmt.Sprintf("p%d", c.FieldID) // for names that engines may not take
		if plainName.MatchString(c.Name) {
			name = c.Name
		}
		r.Schema.Spec = append(r.Schema.Spec, table.PartitionField{Source: c.FieldID, FieldID: next, Name: name + suffix, Transform: transform})
		next++
		return nil
	}
	for _, term := range splitTerms(r.Options["partition_by"]) {
		m := partitionTerm.FindStringSubmatch(term)
		if m == nil || (m[2] != "") != (m[1] == "bucket" || m[1] == "truncate") {
			return badOption("partition_by", term)
		}
		transform, column := "identity", m[4]
		if m[1] != "" {
			transform, column = m[1], m[3]
		}
		if m[2] != "" {
			transform += "[" + m[2] + "]"
		}
		suffix := ""
		if m[1] != "" {
			suffix = "_" + m[1]
		}
		if err := add("partition_by", column, transform, suffix); err != nil {
			return err
		}
	}
	return r.buckets(add)
}

func (r *rel) buckets(add func(option, column, transform, suffix string) error) error {
	n, key := r.Options["buckets"], r.Options["bucket_key"]
	if n == "" && key == "" {
		return nil
	}
	if n == "" {
		return wire.Errorf(wire.CodeInvalidParameterValue, "option \"bucket_key\" needs \"buckets\"")
	}
	if count, err := strconv.Atoi(n); err != nil || count < 1 || count > 100_000 {
		return badOption("buckets", n)
	}
	if key == "" && len(r.Schema.Key) == 1 {
		key = r.Schema.Columns[r.Schema.Key[0]].Name
	}
	if key == "" && len(r.Schema.Key) == 0 {
		return nil // no row has a bucket by its values: the writer takes turns
	}
	if key == "" {
		return wire.Errorf(wire.CodeInvalidParameterValue, "option \"buckets\" needs a bucket_key, or a primary key of one column")
	}
	if at := r.Schema.Index(key); at >= 0 && !r.Columns[at].attr.NotNull {
		return wire.Errorf(wire.CodeInvalidParameterValue, "bucket_key \"%s\" must be NOT NULL", key)
	}
	return add("bucket_key", key, "bucket["+n+"]", "_bucket")
}

// splitTerms splits at the commas that are outside parentheses.
func splitTerms(text string) (terms []string) {
	depth, begin := 0, 0
	for i, c := range text + "," {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			if t := strings.TrimSpace(text[begin:i]); t != "" {
				terms = append(terms, t)
			}
			begin = i + 1
		}
	}
	return terms
}
