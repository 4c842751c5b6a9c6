package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

var errNotWired = errors.New("not wired")

// fsck is the subcommand. WIRING: call writer/fsck with the store and the catalog that cfg names, print each finding on a line,
// return an error if there is one.
func fsck(_ context.Context, args []string, out io.Writer) error {
	_, _, err := parseConfig("fsck", args, os.Getenv, out)
	if err != nil {
		return err
	}
	return errNotWired
}

// dump is the subcommand. WIRING: tell the kind of each file by its magic and print it.
func dump(_ context.Context, args []string, out io.Writer) error {
	_, files, err := parseConfig("dump", args, os.Getenv, out)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%w: no file given", errUsage)
	}
	return errNotWired
}

// reader is the hidden subcommand. WIRING: run server/reader's child on standard input and output.
func reader(context.Context, []string, io.Writer) error { return errNotWired }
