package reader

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/server/scan"
)

// defaultMemory is what DuckDB may use in one child, in bytes.
const defaultMemory = 1 << 30

// Options are the limits of a Pool.
type Options struct {
	Roots    []string // folders that hold data files: children may read nothing else of the user's
	Children int      // at most so many queries at a time, the others wait; default 2
	Memory   int64    // of DuckDB in one child, in bytes; default 1 GiB
	Threads  int      // of one query; default 2
	Log      *slog.Logger
	// Command is how a child is started, the arguments of Main left out; default is the running program's subcommand reader.
	Command []string
}

// Pool keeps children and gives each query one of its own. It is safe for concurrent use.
type Pool struct {
	opts  Options
	slots chan struct{} // taken by running queries

	mu     sync.Mutex // guards idle and closed
	idle   []*child
	closed bool
}

// NewPool makes a pool. Children are started when queries need them.
func NewPool(o Options) *Pool {
	o.Children = cmp.Or(o.Children, 2)
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.Threads = cmp.Or(o.Threads, 2)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Pool{opts: o, slots: make(chan struct{}, o.Children)}
}

// errClosed is the answer to queries after Close.
var errClosed = &scan.Error{Code: "57P01", Message: "the reader is shut down"}

// Query runs r and calls fn with the result batch by batch; memory of a batch is Go's and may be kept. When ctx ends the child is
// killed. An error of the query is a *scan.Error; a child that died is 58030.
func (p *Pool) Query(ctx context.Context, r *scan.Request, fn func(arrow.RecordBatch) error) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c, err := p.take()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, c.kill)
	err = c.query(r, fn)
	if stop(); ctx.Err() != nil {
		c.end()
		return context.Cause(ctx)
	}
	return p.give(c, err)
}

// take is an idle child or a new one.
func (p *Pool) take() (*child, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c, nil
	}
	return p.start()
}

// give takes a child back, if it can be used again: one that ran out of memory or did not finish its answer cannot.
func (p *Pool) give(c *child, err error) error {
	var e *scan.Error
	if err != nil && !(errors.As(err, &e) && e.Code != "53200") {
		c.end()
		if errors.As(err, new(*brokenError)) {
			err = c.died(err, p.opts.Log)
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.end()
		return err
	}
	p.idle = append(p.idle, c)
	return err
}

// Close ends all idle children; those at work end with their query.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.end()
	}
	p.idle = nil
}

// child is one process.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	w      *bufio.Writer
	out    *os.File
	r      *bufio.Reader
	stderr *firstWords
	once   sync.Once
}

func (p *Pool) start() (*child, error) {
	command := p.opts.Command
	if command == nil {
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start reader: %w", err)
		}
		command = []string{program, "reader"}
	}
	l := limits{memory: p.opts.Memory, threads: p.opts.Threads, roots: p.opts.Roots}
	c := &child{cmd: exec.Command(command[0], append(command[1:len(command):len(command)], l.args()...)...), stderr: &firstWords{}}
	c.cmd.Env, c.cmd.Stderr, c.cmd.Dir = []string{}, c.stderr, "/"
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start reader: %w", err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("start reader: %w", err)
	}
	defer childOut.Close()
	c.cmd.ExtraFiles = []*os.File{childOut}
	c.in, c.w, c.out, c.r = in, bufio.NewWriterSize(in, 1<<18), out, bufio.NewReaderSize(out, 1<<18)
	if err := c.cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start reader: %w", err)
	}
	return c, nil
}

// kill is SIGKILL: nothing softer is prompt.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// end kills the child and waits for it, so that no process and no descriptor is left.
func (c *child) end() {
	c.once.Do(func() {
		c.kill()
		c.in.Close()
		_ = c.cmd.Wait()
		c.out.Close()
	})
}

// died is the error of a query whose child is gone.
func (c *child) died(err error, log *slog.Logger) error {
	log.Warn("reader died", "state", c.cmd.ProcessState.String(), "error", err, "stderr", c.stderr.String())
	if c.stderr.outOfMemory() {
		return &scan.Error{Code: "53200", Message: "out of memory"}
	}
	return &scan.Error{Code: "58030", Message: "the process that ran this query ended"}
}

// query sends a request and reads its answer.
func (c *child) query(r *scan.Request, fn func(arrow.RecordBatch) error) error {
	err := writeRequest(c.w, r)
	if err == nil {
		err = c.w.Flush()
	}
	if err != nil {
		return &brokenError{err}
	}
	a := &answerReader{r: c.r}
	if err := records(a, fn); err != nil {
		if a.end != nil && a.end != io.EOF {
			return a.end // what the child said, not what the decoder made of it
		}
		return err
	}
	return a.drain()
}

func records(r io.Reader, fn func(arrow.RecordBatch) error) error {
	dec, err := ipc.NewReader(r, ipc.WithAllocator(memory.NewGoAllocator()))
	if err != nil {
		return err
	}
	defer dec.Release()
	for dec.Next() {
		if err := fn(dec.RecordBatch()); err != nil {
			return err
		}
	}
	return dec.Err()
}

// firstWords keeps the beginning of what a child says on standard error, where a runtime tells why it gives up.
type firstWords struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

const keptStderr = 1 << 10

func (t *firstWords) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := keptStderr - t.buf.Len(); room > 0 {
		t.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (t *firstWords) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// outOfMemory reports whether the process gave up because it got no more memory.
func (t *firstWords) outOfMemory() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range []string{"out of memory", "cannot allocate memory", "bad_alloc"} {
		if bytes.Contains(t.buf.Bytes(), []byte(s)) {
			return true
		}
	}
	return false
}
