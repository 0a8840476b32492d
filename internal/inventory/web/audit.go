package web

import (
	"bytes"
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

// lookWait is how long a look waits for a state that is not before the asked
// cursor.
const lookWait = 5 * time.Second

// answerRoom is the memory of the answer about one range, in bytes: 64 resources with
// locs of usual length, decoded and as text.
const answerRoom = 32 << 10

// ServeAudit answers GET, HEAD and POST of {base}/sets/{set}/audit. An error means that
// nothing was answered.
func (s *Server) ServeAudit(w http.ResponseWriter, r *http.Request, set string) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.serveLook(w, r, set)
	case http.MethodPost:
		return s.serveQuestion(w, r, set)
	}
	return problem.NotAllowed(r, "GET, HEAD, POST")
}

// serveLook answers with the look of all resources, or of those with a prefix.
func (s *Server) serveLook(w http.ResponseWriter, r *http.Request, set string) error {
	q := r.URL.Query()
	if err := once(q, "from", "prefix"); err != nil {
		return err
	}
	from, err := cursor(q, "from")
	if err != nil {
		return err
	}
	held, err := s.states.State(r.Context(), set, from, lookWait)
	if err != nil {
		return err
	}
	defer held.Release()
	look, err := audit.Summarize(r.Context(), held.State, inventory.Prefix(q.Get("prefix")))
	if err != nil {
		return fmt.Errorf("summarize set %q: %w", set, err)
	}
	look.Set, look.Complete = set, held.Complete
	answer(w, r, append(look.AppendJSON(nil), '\n'))
	return nil
}

// serveQuestion answers which of the asked ranges differ from the client's. A question with
// a name is a proof of that destination, if nothing differs.
func (s *Server) serveQuestion(w http.ResponseWriter, r *http.Request, set string) error {
	q := r.URL.Query()
	if err := once(q, "details", "name"); err != nil {
		return err
	}
	name, named := q.Get("name"), q.Has("name")
	if named && !goodName(name) {
		return resourcesync.Invalidf("name: want 1 to %d bytes of printable characters", maxName)
	}
	details := q.Get("details")
	if details != "" && details != "0" && details != "1" {
		return resourcesync.Invalidf("details: want 1 or 0")
	}
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
	body, equal, err := s.reply(r, set, question, compress)
	if err != nil {
		return err
	}
	if proof.Set = set; named && equal && s.opts.Proofs != nil {
		s.opts.Proofs.RecordProof(r, name, proof)
	}
	share, err := s.opts.Streams.Acquire(r.Context(), int64(len(body)))
	if err != nil {
		return err
	}
	defer share.Release()
	if compress {
		w.Header().Set("Content-Encoding", "gzip")
	}
	answer(w, r, body)
	return nil
}

// maxName is how many bytes the name of a destination has at most.
const maxName = 100

// goodName reports whether a destination may have a name. People see it.
func goodName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
}

// reply returns the answer to a question as text, or as compressed text, and whether all
// ranges are equal.
func (s *Server) reply(r *http.Request, set string, question audit.Question, compress bool) (body []byte, equal bool, err error) {
	share, err := s.opts.Answers.Acquire(r.Context(), min(int64(len(question.Ranges))*answerRoom, 2*audit.MaxReply))
	if err != nil {
		return nil, false, err
	}
	defer share.Release()
	held, err := s.states.At(r.Context(), set, question.At)
	if err != nil {
		return nil, false, gone(err, "the hub no longer has the state at "+question.At.String()+"; get a new summary (GET), and compare at its cursor")
	}
	defer held.Release()
	reply, err := audit.Answer(r.Context(), held.State, question)
	if err != nil {
		return nil, false, fmt.Errorf("audit of set %q at %v: %w", set, question.At, err)
	}
	reply.Set = set
	body = append(reply.AppendJSON(nil), '\n')
	if compress {
		body = zip(body)
	}
	return body, len(reply.Ranges) == 0, nil
}

// writers are reused, because a new one takes several hundred KB.
var writers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for an unknown level
	return w
}}

// zip compresses a text.
func zip(text []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(text)/2 + 64)
	z := writers.Get().(*gzip.Writer)
	defer writers.Put(z)
	z.Reset(&b)
	_, _ = z.Write(text) // a Buffer does not fail
	_ = z.Close()
	return b.Bytes()
}

// answer sends a body of JSON.
func answer(w http.ResponseWriter, r *http.Request, body []byte) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = bytes.NewReader(body).WriteTo(w) // the client may be gone
	}
}
