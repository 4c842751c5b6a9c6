package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"slices"
	"strconv"
	"strings"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer"
)

// Exactly once (docs/design/0010-once.md). A transaction with sluice.writer and sluice.sequence keeps what each statement that may write was
// asked and what it answered, and its commit stores that with the rows. Where a transaction with the same identity has committed before,
// these statements are not run: they are answered from its record, errors included, and COMMIT finds nothing to do. A statement or a value
// that is not as the first time is an error. What only the session sees (reads, settings, temporary tables) runs both times.

const (
	// keepRows is how many bytes of rows the answer to one statement may have to be kept.
	keepRows = 64 << 10
	// keepAnswers is how many bytes the record of a transaction may have.
	keepAnswers = 1 << 20
	// maxWriter is the longest sluice.writer, in bytes.
	maxWriter = 200
)

// once is the retry identity of an open transaction.
type once struct {
	id     retryID
	first  *record // of the transaction that it repeats; nil: it is the first
	next   int     // statement of first
	record record  // what was answered so far
	open   *answer // the statement under way
	fed    hash.Hash
}

// retryID is a role's writer and its sequence.
type retryID struct {
	writer   string
	sequence int64
}

// record is the answers of a transaction.
type record struct {
	list []answer
	size int
	more bool // there were more than are kept
}

// answer is one statement that may have written.
type answer struct {
	asked  digest // of its text and values
	fed    digest // of the data of a COPY
	frames []byte // messages of the backend, one behind the other; an ErrorResponse if it failed
	large  bool   // its rows are not kept
}

type digest [16]byte

func (o *once) repeats() bool { return o != nil && o.first != nil }

// asked is what the client sent: in which protocol, the text, and its Bind.
func asked(protocol byte, st *sql.Statement, text string, bind []byte) (d digest) {
	if r := st.Role(); r != nil && r.Password != nil {
		text, bind = "", nil // no trace of a password
	}
	text = strings.Trim(text, "; \t\r\n\f") // between the statements of a string
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64([]byte{protocol}, uint64(len(text))))
	h.Write([]byte(text))
	h.Write(bind)
	copy(d[:], h.Sum(nil))
	return d
}

// again answers a statement of a transaction that has committed before; out is nil if the statement has to run. bind is the client's Bind,
// nil for a simple Query.
func (s *session) again(ctx context.Context, st *sql.Statement, p planner.Plan, text string, bind []byte) (out *spool, err error) {
	if s.lanes.known && !s.retries && !s.userCode || s.be.status == 'E' {
		return nil, nil
	}
	may, sure := s.mayWrite(st, p)
	if !may {
		if s.tx != nil && s.tx.once.repeats() && st.Notifies() { // it has been sent
			return &spool{frames: [][]byte{wire.AppendCommandComplete(nil, "NOTIFY")}}, nil
		}
		return nil, nil
	}
	if err := s.identify(ctx, sure); err != nil || s.tx == nil || s.tx.once == nil {
		return nil, err
	}
	protocol := byte('Q')
	if bind != nil {
		protocol, bind = 'E', afterNames(bind)
	}
	o, d := s.tx.once, asked(protocol, st, text, bind)
	if o.fed = nil; st.CopiesStdin() {
		o.fed = sha256.New()
	}
	if o.repeats() {
		return s.replay(o, d)
	}
	o.open = &answer{asked: d}
	return nil, nil
}

// afterNames is a Bind without the names of its portal and statement.
func afterNames(bind []byte) []byte {
	for range 2 {
		bind = bind[slices.Index(bind, 0)+1:]
	}
	return bind
}

// mayWrite reports whether a statement may leave something behind that others see; sure is false if that depends on user code.
func (s *session) mayWrite(st *sql.Statement, p planner.Plan) (may, sure bool) {
	switch {
	case p.Lane == planner.Relay || s.onlyTemporary(st, p):
		return false, false
	case st.Kind == sql.Explain:
		return st.Write && st.Analyzes(), true
	case st.Write:
		return true, true
	}
	switch st.Kind {
	case sql.CopyFrom, sql.Truncate, sql.DDL, sql.Call, sql.Execute, sql.Other:
		return true, true
	}
	return p.User || p.Keep && !st.Sets(), false
}

// onlyTemporary reports whether all that a statement writes are tables of this session.
func (s *session) onlyTemporary(st *sql.Statement, p planner.Plan) bool {
	names := st.Targets
	if st.Kind == sql.DDL || st.Kind == sql.Truncate {
		if st.MakesTemporary() {
			return true
		}
		names = st.Relations
	}
	return len(names) > 0 && !p.User && !slices.ContainsFunc(names, func(n sql.Name) bool { return !s.names.relations[n].Temp })
}

// identify gives the open transaction the identity that the settings say, if it has none yet. sure says that the statement at hand writes:
// then half an identity is an error.
func (s *session) identify(ctx context.Context, sure bool) error {
	if !s.lanes.known {
		if _, err := s.laneSettings(ctx); err != nil {
			return err
		}
	}
	t := s.tx
	if !s.retries && !s.userCode || t != nil && (t.once != nil || t.looked) && !s.retriesSet {
		return nil
	}
	early := s.be.status == 'I' || s.be.lazy // nothing has run in this transaction that its end could undo
	id, half, err := s.readIdentity(ctx)
	if err != nil {
		return err
	}
	s.retries = s.retries || half || id != retryID{}
	s.userCode = s.userCode && !early
	if err := s.begun(ctx); err != nil || s.tx.readOnly {
		return err
	}
	t = s.tx
	s.retriesSet, t.looked = false, sure
	switch {
	case t.once != nil && t.once.id == id:
		return nil
	case t.once != nil || id != (retryID{}) && (t.lake.Wrote() || t.lake.HasDDL()):
		return wire.Errorf(wire.CodeActiveSQLTransaction, "the retry identity of a transaction cannot be set or changed after its first write").
			WithHint("Set sluice.writer and sluice.sequence before it.")
	case half && sure:
		return errHalfIdentity
	}
	if t.half = half; half || id == (retryID{}) {
		return nil
	}
	return s.take(ctx, id)
}

var errHalfIdentity = wire.Errorf(wire.CodeObjectNotInPrerequisiteState, "sluice.writer and sluice.sequence are not both set").
	WithHint("Together they give a transaction its retry identity: set both, or RESET both.")

// take makes id the identity of the transaction and finds out whether it is a repeat.
func (s *session) take(ctx context.Context, id retryID) error {
	ctx, stop := s.timed(ctx)
	defer stop()
	stored, repeat, err := s.tx.lake.Identify(ctx, id.writer, id.sequence)
	switch {
	case errors.Is(err, writer.ErrBelowWindow):
		return wire.Errorf(wire.CodeObjectNotInPrerequisiteState, "sequence %d is below the window of its writer", id.sequence).
			WithHint("A writer's last 1,024 transactions of the last 7 days are known. Whether this one was committed before is not: look for its rows, or use a higher sequence.")
	case err != nil:
		return err
	}
	o := &once{id: id}
	if repeat {
		if o.first, err = decodeRecord(stored); err != nil {
			return err
		}
	}
	s.tx.once = o
	return nil
}

// readIdentity is what the settings say. half: only one of them is set.
func (s *session) readIdentity(ctx context.Context) (id retryID, half bool, err error) {
	rows, err := s.be.exec(ctx, "SELECT pg_catalog.current_setting('sluice.writer', true), pg_catalog.current_setting('sluice.sequence', true)")
	if err != nil {
		return id, false, err
	}
	name, number := string(rows[0][0]), string(rows[0][1])
	switch {
	case name == "" && number == "":
		return id, false, nil
	case name == "" || number == "":
		return id, true, nil
	case len(name) > maxWriter:
		return id, false, wire.Errorf(wire.CodeInvalidParameterValue, "sluice.writer is longer than %d bytes", maxWriter)
	}
	if id.sequence, err = strconv.ParseInt(number, 10, 64); err != nil || id.sequence < 0 {
		return id, false, wire.Errorf(wire.CodeInvalidParameterValue, "invalid value for parameter \"sluice.sequence\": \"%s\"", number).
			WithHint("It is a number from 0 to 9223372036854775807.")
	}
	role, err := s.roleID(ctx)
	id.writer = role + "/" + name
	return id, false, err
}

// roleID is the oid of the role that is logged in: writers and tokens are its own, whatever SET ROLE says.
func (s *session) roleID(ctx context.Context) (string, error) {
	if s.role == "" {
		rows, err := s.be.exec(ctx, "SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) session_user")
		if err != nil {
			return "", err
		}
		s.role = string(rows[0][0])
	}
	return s.role, nil
}

// otherStatement is the error of a repeat that is none.
func (o *once) otherStatement() error {
	return wire.Errorf(wire.CodeInvalidParameterValue, "another transaction has committed with sluice.sequence %d", o.id.sequence).
		WithHint("A repeat sends the same statements with the same values in the same protocol; a new transaction needs a sequence of its own.")
}

// replay answers the next statement as the first time.
func (s *session) replay(o *once, d digest) (*spool, error) {
	list := o.first.list
	if o.next == len(list) && o.first.more || o.next < len(list) && list[o.next].asked == d && list[o.next].large {
		return nil, unsupported("the answer to this statement of a repeated transaction was too long to be kept").
			WithHint("The transaction has committed: there is no need to repeat it.")
	}
	if o.next == len(list) || list[o.next].asked != d {
		return nil, o.otherStatement()
	}
	o.next++
	return s.replayFrames(o, &list[o.next-1])
}

func (s *session) replayFrames(o *once, a *answer) (*spool, error) {
	out := &spool{}
	for _, f := range splitFrames(a.frames) {
		switch f[0] {
		case 'G':
			if err := s.replayCopy(o, a, f); err != nil {
				return nil, err
			}
		case 'E':
			e, err := wire.DecodeError(f[5:])
			if err != nil {
				return nil, err
			}
			return nil, e
		default:
			out.frames = append(out.frames, f)
		}
	}
	return out, nil
}

// replayCopy takes the client's data, which has to be that of the first time.
func (s *session) replayCopy(o *once, a *answer, start []byte) error {
	s.release()
	s.c.Raw(start)
	for {
		typ, body, err := clientCopy{s}.next()
		switch {
		case err != nil:
			return err
		case typ == 'f':
			msg, _ := wire.DecodeCopyFail(body)
			return wire.Errorf(wire.CodeQueryCanceled, "COPY from stdin failed: %s", msg)
		case typ != 'c':
			continue
		}
		if a.failed() || o.digest() == a.fed {
			return nil
		}
		return o.otherStatement()
	}
}

func (a *answer) failed() bool {
	return slices.ContainsFunc(splitFrames(a.frames), func(f []byte) bool { return f[0] == 'E' })
}

// feed takes a part of a COPY's data into account.
func (o *once) feed(body []byte) {
	if o != nil && o.fed != nil {
		o.fed.Write(body)
	}
}

func (o *once) digest() (d digest) {
	if o.fed != nil {
		copy(d[:], o.fed.Sum(nil))
	}
	return d
}

// opened notes the request for a COPY's data.
func (t *txn) opened(frame []byte) {
	if t != nil && t.once != nil && t.once.open != nil {
		t.once.open.frames = append([]byte(nil), frame...)
	}
}

// answered ends the statement under way with what the client is told.
func (t *txn) answered(frames ...[]byte) {
	if t == nil || t.once == nil || t.once.open == nil {
		return
	}
	o, a := t.once, t.once.open
	o.open, a.fed = nil, o.digest()
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	if a.large = size > keepRows; a.large {
		frames = nil
	}
	for _, f := range frames {
		a.frames = append(a.frames, f...)
	}
	o.record.add(*a)
}

func (r *record) add(a answer) {
	r.size += len(a.frames) + 64
	if r.more = r.more || r.size > keepAnswers; !r.more {
		r.list = append(r.list, a)
	}
}

// finishOnce gives the transaction its answer before it is decided. A repeat that asked less than the first time is none.
func (s *session) finishOnce() error {
	t := s.tx
	switch {
	case t == nil || t.once == nil || t.lake == nil || s.be.status == 'E':
	case !t.once.repeats():
		t.lake.SetAnswer(t.once.record.encode())
	case t.once.next < len(t.once.first.list):
		return t.once.otherStatement()
	}
	return nil
}

func splitFrames(b []byte) (frames [][]byte) {
	for len(b) > 4 {
		n := 1 + int(binary.BigEndian.Uint32(b[1:]))
		frames, b = append(frames, b[:n:n]), b[n:]
	}
	return frames
}

// A record as bytes: its version, whether there were more answers, and each: asked, fed, whether it was large, the length of its frames, frames.
const recordVersion = 1

func (r *record) encode() []byte {
	b := []byte{recordVersion, flag(r.more)}
	for i := range r.list {
		a := &r.list[i]
		b = append(append(append(b, a.asked[:]...), a.fed[:]...), flag(a.large))
		b = append(binary.AppendUvarint(b, uint64(len(a.frames))), a.frames...)
	}
	return b
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

var errRecord = errors.New("the stored answer of a transaction cannot be read")

func decodeRecord(b []byte) (*record, error) {
	if len(b) < 2 || b[0] != recordVersion {
		return nil, errRecord
	}
	r := &record{more: b[1] == 1}
	for b = b[2:]; len(b) > 0; {
		const fixed = len(digest{})*2 + 1
		if len(b) < fixed {
			return nil, errRecord
		}
		a := answer{large: b[fixed-1] == 1}
		copy(a.asked[:], b)
		copy(a.fed[:], b[len(a.asked):])
		n, used := binary.Uvarint(b[fixed:])
		if b = b[fixed:]; used <= 0 || n > uint64(len(b)-used) {
			return nil, errRecord
		}
		a.frames, b = b[used:used+int(n)], b[used+int(n):]
		r.list = append(r.list, a)
	}
	return r, nil
}

// callToken leaves the token of the open transaction for sluice.txn_token().
func (s *session) callToken(ctx context.Context) error {
	if err := s.openBlock(ctx); err != nil {
		return err
	}
	if err := s.identify(ctx, false); err != nil {
		return err
	}
	role, err := s.roleID(ctx)
	if err != nil {
		return err
	}
	return s.leaveLocal(ctx, "sluice.token", s.tx.lake.Token(role).String())
}

// openBlock makes sure that what is left for a function is seen by the statement, and by no transaction after it.
func (s *session) openBlock(ctx context.Context) error {
	if s.be.status == 'I' {
		return s.beginImplicit(ctx)
	}
	return s.begun(ctx)
}

// callOutcome leaves what became of a transaction for sluice.txn_outcome(token).
func (s *session) callOutcome(ctx context.Context, c sql.GatewayCall, b params) error {
	if c.Param > b.len() || c.Param == 0 && len(c.Args) != 1 {
		return unsupported("arguments of sluice.%s that are neither constants nor parameters are not supported", c.Name).WithHint("Ask for the value first.")
	}
	var text string
	if c.Param == 0 {
		text = c.Args[0]
	} else if val, _ := b.at(c.Param); val != nil {
		text = string(val)
	} else {
		return nil // NULL, which the function answers with NULL
	}
	outcome, err := s.outcome(ctx, text)
	if err != nil {
		return err
	}
	if err := s.openBlock(ctx); err != nil {
		return err
	}
	return s.leaveLocal(ctx, "sluice.outcome", text+" "+outcome)
}

func (s *session) outcome(ctx context.Context, text string) (string, error) {
	k, ok := writer.ParseToken(text)
	if !ok {
		return "", wire.Errorf(wire.CodeInvalidParameterValue, "invalid transaction token")
	}
	role, err := s.roleID(ctx)
	if err != nil {
		return "", err
	}
	if whose := k.Writer(); whose != "" && !strings.HasPrefix(whose, role+"/") {
		return "", wire.Errorf(wire.CodeInsufficientPrivilege, "this transaction token is of another role")
	}
	o, err := s.srv.Writer.Outcome(k)
	return o.String(), err
}

// unknown adds to a COMMIT of unknown outcome how to find out.
func (s *session) unknown(lake *writer.Txn, err error) error {
	if !errors.Is(err, writer.ErrOutcomeUnknown) || lake == nil {
		return err
	}
	token := lake.LastToken().String()
	return wire.Errorf(wire.CodeStatementCompletionUnknown, "the outcome of the commit is not known").WithDetail("Its token is %s.", token).
		WithHint("SELECT sluice.txn_outcome('%s') tells it when it is decided, at the latest after the gateway's next start. A transaction with sluice.writer and sluice.sequence can be repeated.", token)
}
