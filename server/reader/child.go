package reader

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	duckdb "github.com/duckdb/duckdb-go/v2"

	"sluice/server/scan"
)

// limits are what a child is started with.
type limits struct {
	memory   int64 // bytes that DuckDB may use; the process gets addressRoom more
	threads  int
	roots    rootList
	confined bool // second stage: the jail is around us
}

// rootList is a flag that may be given several times.
type rootList []string

func (r *rootList) String() string     { return strings.Join(*r, ":") }
func (r *rootList) Set(v string) error { *r = append(*r, v); return nil }

func (l *limits) parse(args []string) error {
	f := flag.NewFlagSet("reader", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Int64Var(&l.memory, "memory", defaultMemory, "bytes")
	f.IntVar(&l.threads, "threads", 1, "threads of a query")
	f.Var(&l.roots, "root", "folder with files to read")
	f.BoolVar(&l.confined, "confined", false, "the jail is already closed")
	return f.Parse(args)
}

func (l *limits) args() []string {
	args := []string{fmt.Sprintf("-memory=%d", l.memory), fmt.Sprintf("-threads=%d", l.threads)}
	for _, r := range l.roots {
		args = append(args, "-root="+r)
	}
	return args
}

// answers is where a child finds the descriptor for its answers.
const answers = 3

// Main is the hidden subcommand: it closes the jail, then serves requests from standard input until that ends.
func Main(_ context.Context, args []string) error {
	var l limits
	if err := l.parse(args); err != nil {
		return err
	}
	if !l.confined {
		if err := l.confine(); err != nil { // starts the program anew where there is a jail
			return err
		}
	}
	// Rows and results are ours, the rest is DuckDB's: the collector must not let them grow to the address limit.
	debug.SetMemoryLimit(l.memory / 2)
	runtime.GOMAXPROCS(max(l.threads, 2))
	return serve(&l, os.Stdin, os.NewFile(answers, "answers"))
}

// serve works off requests. While one runs another goroutine waits for the next, so that the end of in ends the process at once.
func serve(l *limits, in io.Reader, out io.Writer) error {
	requests := make(chan *scan.Request)
	go func() {
		r := bufio.NewReaderSize(in, 1<<20)
		for {
			req, err := readRequest(r)
			if err != nil {
				os.Exit(ended(err))
			}
			requests <- req
		}
	}()
	w := bufio.NewWriterSize(out, 1<<18)
	for req := range requests {
		err := l.answer(req, w)
		if err == nil {
			err = writeFrame(w, frameDone)
		} else if e := sqlError(err); e != nil {
			err = writeFrame(w, frameError, encodeError(e))
		}
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func ended(err error) int {
	if err == io.EOF {
		return 0
	}
	fmt.Fprintln(os.Stderr, "read request:", err)
	return 1
}

// answer runs one request in a database of its own.
func (l *limits) answer(req *scan.Request, w *bufio.Writer) (err error) {
	connector, err := duckdb.NewConnector("", nil)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := registerScalars(conn); err != nil {
		return err
	}
	return conn.Raw(func(c any) error {
		q := &query{ctx: ctx, limits: l, conn: c.(driver.Conn)}
		defer q.close()
		if err := q.prepare(req); err != nil {
			return err
		}
		return q.stream(req.SQL, w)
	})
}

// query is one request while it runs.
type query struct {
	ctx     context.Context
	limits  *limits
	conn    driver.Conn
	arrow   *duckdb.Arrow
	release []func()
}

func (q *query) close() {
	for _, f := range q.release {
		f()
	}
}

func (q *query) exec(text string) error {
	e, ok := q.conn.(driver.ExecerContext)
	if !ok {
		return errors.New("driver cannot execute")
	}
	_, err := e.ExecContext(q.ctx, text, nil)
	return err
}

// prepare sets up the tables and then closes everything that DuckDB lets one close.
func (q *query) prepare(req *scan.Request) (err error) {
	if q.arrow, err = duckdb.NewArrowFromConn(q.conn); err != nil {
		return err
	}
	var paths []string
	for _, t := range req.Tables {
		for _, f := range t.Files {
			paths = append(paths, quote(f.Path))
		}
	}
	for _, s := range []string{
		"autoinstall_known_extensions = false", "autoload_known_extensions = false", "allow_community_extensions = false",
		"allow_persistent_secrets = false", "temp_directory = ''", "TimeZone = 'UTC'", "preserve_insertion_order = false",
		fmt.Sprintf("threads = %d", max(q.limits.threads, 1)), fmt.Sprintf("memory_limit = '%dB'", q.limits.memory),
		"allowed_paths = [" + strings.Join(paths, ", ") + "]", "enable_external_access = false",
	} {
		if err := q.exec("SET " + s); err != nil && !strings.HasPrefix(s, "TimeZone") { // that one is ICU's, where it is built in
			return fmt.Errorf("SET %s: %w", s, err)
		}
	}
	for i := range req.Tables {
		if err := q.bind(i, &req.Tables[i]); err != nil {
			return err
		}
	}
	return q.exec("SET lock_configuration = true")
}

// stream runs the query and sends its result.
func (q *query) stream(text string, w *bufio.Writer) error {
	r, err := q.arrow.QueryContext(q.ctx, text)
	if err != nil {
		return err
	}
	defer r.Release()
	enc := ipc.NewWriter(&frameWriter{w: w, typ: frameBytes}, ipc.WithSchema(r.Schema()))
	for r.Next() {
		if err := enc.Write(r.RecordBatch()); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	return enc.Close()
}
