package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	fsckpkg "sluice/writer/fsck"
	"sluice/writer/wal"
)

// fsck is the subcommand: it proves the invariants from catalog and objects, while no gateway runs.
func fsck(ctx context.Context, args []string, out io.Writer) error {
	cfg, _, err := parseConfig("fsck", args, os.Getenv, out)
	if err != nil {
		return err
	}
	log := cfg.logger(os.Stderr)
	p, err := openParts(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer p.close(log)
	state, err := p.catalog.Load(ctx)
	if err != nil {
		return err
	}
	defs, err := p.tables.Defs(ctx, p.catalog, state)
	if err != nil {
		return err
	}
	in := fsckpkg.Input{Catalog: p.catalog, Format: p.format, Objects: p.objects, Log: filepath.Join(cfg.Data, "wal")}
	for i := range defs {
		in.Tables = append(in.Tables, defs[i].Def())
	}
	problems, err := fsckpkg.Check(ctx, in)
	for _, x := range problems {
		fmt.Fprintln(out, x)
	}
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("fsck: %d problems", len(problems))
	}
	if err == nil {
		fmt.Fprintf(out, "fsck: %d tables, no problem\n", len(defs))
	}
	return err
}

// dump is the subcommand: it prints log folders.
func dump(_ context.Context, args []string, out io.Writer) error {
	_, folders, err := parseConfig("dump", args, os.Getenv, out)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		return fmt.Errorf("%w: no folder given", errUsage)
	}
	for _, f := range folders {
		if err := wal.Print(out, f); err != nil {
			return err
		}
	}
	return nil
}
