package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// summaryWait is the time to wait for a state at the requested cursor.
const summaryWait = 5 * time.Second

// rangeAnswerBytes is the memory for the answer about one range: 64 resources with locs of usual
// length, decoded and as text.
const rangeAnswerBytes = 32 << 10

// ServeAudit answers GET, HEAD and POST of {base}/sets/{set}/audit. If it returns an error, no answer
// was written.
func (s *Server) ServeAudit(w http.ResponseWriter, r *http.Request, set string) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.serveSummary(w, r, set)
	case http.MethodPost:
		return s.serveQuestion(w, r, set)
	}
	return problem.NotAllowed(r, "GET, HEAD, POST")
}

// serveSummary answers with the summary of all resources, or of those with a prefix.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request, set string) error {
	q, err := parseQuery(r, "from", "prefix")
	if err != nil {
		return err
	}
	from, err := parseCursor(q, "from")
	if err != nil {
		return err
	}
	state, err := s.states.State(r.Context(), set, from, summaryWait)
	if err != nil {
		return err
	}
	defer state.Release()
	summary, err := summarize(r.Context(), set, state, inventory.Prefix(q.Get("prefix")))
	if err != nil {
		return err
	}
	writeJSON(w, r, append(summary.AppendJSON(nil), '\n'))
	return nil
}

// serveQuestion answers which of the client's ranges differ. If the question has a name and nothing
// differs, it is a proof by that destination.
func (s *Server) serveQuestion(w http.ResponseWriter, r *http.Request, set string) error {
	q, err := parseQuery(r, "details", "name")
	if err != nil {
		return err
	}
	name, named := q.Get("name"), q.Has("name")
	if named && !validName(name) {
		return resourcesync.Invalidf("name: want 1 to %d bytes of printable characters", maxName)
	}
	details := q.Get("details")
	if details != "" && details != "0" && details != "1" {
		return resourcesync.Invalidf("details: want 1 or 0")
	}
	room := int64(audit.MaxQuestion)
	if r.ContentLength >= 0 {
		room = min(room, r.ContentLength)
	}
	received, err := s.opts.Streams.Acquire(r.Context(), 2*room) // the text, and the question in it
	if err != nil {
		return err
	}
	defer received.Release()
	question, err := audit.ReadQuestion(http.MaxBytesReader(w, r.Body, audit.MaxQuestion+1))
	if err != nil {
		return err
	}
	question.Details = details == "1"
	var proof audit.Proof
	if named {
		if proof, err = audit.ProofOf(question); err != nil {
			return err
		}
	}
	w.Header().Add("Vary", "Accept-Encoding")
	compress := accept.Gzip(r.Header)
	body, equal, err := s.answer(r.Context(), set, question, compress)
	if err != nil {
		return err
	}
	if proof.Set = set; named && equal && s.opts.Proofs != nil {
		s.opts.Proofs.RecordProof(r, name, proof)
	}
	received.Release() // a request does not wait for memory of a budget while it has some
	share, err := s.opts.Streams.Acquire(r.Context(), int64(len(body)))
	if err != nil {
		return err
	}
	defer share.Release()
	if compress {
		w.Header().Set("Content-Encoding", "gzip")
	}
	writeJSON(w, r, body)
	return nil
}

const maxName = 100 // bytes

// validName reports whether a destination may have a name, which is shown to people.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
}

// answer returns the answer to a question, and whether all ranges are equal.
func (s *Server) answer(ctx context.Context, set string, question audit.Question, compress bool) (body []byte, equal bool, err error) {
	share, err := s.opts.Answers.Acquire(ctx, min(int64(len(question.Ranges))*rangeAnswerBytes, 2*audit.MaxReply))
	if err != nil {
		return nil, false, err
	}
	defer share.Release()
	state, err := s.stateAt(ctx, set, question.At, "state", "get a new summary (GET), and compare at its cursor")
	if err != nil {
		return nil, false, err
	}
	defer state.Release()
	reply, err := audit.Answer(ctx, state.State, question)
	if err != nil {
		return nil, false, fmt.Errorf("audit of set %q at %v: %w", set, question.At, err)
	}
	reply.Set = set
	body = append(reply.AppendJSON(nil), '\n')
	if compress {
		body = gzipped(body)
	}
	return body, len(reply.Ranges) == 0, nil
}

// gzipWriters are reused, because a new one takes several hundred KB.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for an unknown level
	return w
}}

func gzipped(text []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(text)/2 + 64)
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(&b)
	_, _ = z.Write(text) // a Buffer does not fail
	_ = z.Close()
	return b.Bytes()
}

func writeJSON(w http.ResponseWriter, r *http.Request, body []byte) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails if the client has disconnected
	}
}
