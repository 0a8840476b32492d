package hub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/gunzip"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// An intake is the body of a publish that is being read: who sends it, and the memory
// that it takes until it is published. It takes the memory from a budget step by step,
// because nobody knows in advance how large the unpacked body is.
type intake struct {
	ctx   context.Context
	user  *limit.User
	share *limit.Share
	most  int64 // the most bytes of memory that one publish may take
	have  int64 // bytes that share has at least

	body    io.Reader // unpacked
	patient *patientReader
	read    int64 // bytes that were read
	unpaid  int64 // of these, bytes not yet counted for the user's limit
	err     error // error of the first failed read; it stays, because the bytes of that read are lost

	turns chan struct{} // Hub.turns
	turn  bool          // whether it has a turn
}

// Memory is taken in steps. Most publishes need only the first.
const (
	firstRoom = 32 << 10
	roomStep  = 256 << 10
)

// large is the most bytes of a publish that is decoded without waiting for a turn.
const large = 1 << 20

// take begins an intake for the caller of ctx. The caller must call release.
func (h *Hub) take(ctx context.Context) (*intake, error) {
	in := &intake{ctx: ctx, user: limit.FromContext(ctx), most: h.opts.Intake.Most(ctx), have: firstRoom, turns: h.turns}
	if err := in.admit(); err != nil {
		return nil, err
	}
	var err error
	in.share, err = h.opts.Intake.Take(ctx, firstRoom)
	return in, err
}

// admit counts a publish for the user's limits. It returns an error if a limit
// is reached.
func (in *intake) admit() error {
	for _, kind := range []limit.Kind{limit.Changes, limit.Bytes} {
		if err := in.user.Check(kind); err != nil {
			return err
		}
	}
	return in.user.Use(limit.Publishes, 1)
}

// longestPace bounds how long a stream waits for a limit.
const longestPace = 30 * time.Second

// pace counts a further batch of a stream. If a limit is reached, it waits for a while:
// slowing a stream down is better than ending it.
func (in *intake) pace() error {
	wait := max(in.user.Wait(limit.Publishes), in.user.Wait(limit.Changes), in.user.Wait(limit.Bytes))
	if wait > 0 && wait <= longestPace {
		if err := backoff.Sleep(in.ctx, wait); err != nil {
			return err
		}
	}
	return in.admit()
}

// Read reads the body. The caller decodes what Read returns before the next call. A large
// publish therefore waits for a turn first, so that decoding leaves processor time for
// others. It gives up the turn while it waits for a publisher, who may be slow.
func (in *intake) Read(p []byte) (int, error) {
	in.yield()
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.body.Read(p)
	in.err = err
	in.unpaid += int64(n)
	if in.read += int64(n); in.read > large {
		select {
		case in.turns <- struct{}{}:
			in.turn = true
		case <-in.ctx.Done():
			in.err = in.ctx.Err()
			return 0, in.err
		}
	}
	return n, err
}

// yield gives up the turn, if the intake has one.
func (in *intake) yield() {
	if in.turn {
		in.turn = false
		<-in.turns
	}
}

// room takes memory for so many bytes from the budget. It returns an error if
// there is none.
func (in *intake) room(bytes int64) error {
	if bytes <= in.have {
		return nil
	}
	if bytes > in.most {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("one publish takes at most %d bytes of the hub's memory, unpacked, and this one takes more: send it in several", in.most)}
	}
	want := min(bytes+roomStep, in.most)
	if err := in.share.Grow(want); err != nil {
		return err
	}
	in.have = want
	return nil
}

// pay counts, for the user's limits, the bytes that were read and the changes
// in them. All of these bytes are decoded.
func (in *intake) pay(changes int) {
	in.yield()
	in.user.Spend(limit.Bytes, in.unpaid)
	in.user.Spend(limit.Changes, int64(changes))
	in.unpaid = 0
}

// shrink releases the memory of a batch before the next one.
func (in *intake) shrink() {
	in.share.Keep(firstRoom)
	in.have = min(in.have, firstRoom)
}

// release ends the intake.
func (in *intake) release() {
	in.pay(0)
	in.share.Release()
}

// body returns the request's body, limited in size and unpacked. A stream has
// no limit for the whole; receiveLines limits its parts.
func (h *Hub) body(w http.ResponseWriter, r *http.Request, patient *patientReader, stream bool) (io.Reader, error) {
	var body io.ReadCloser = patient
	if !stream {
		body = http.MaxBytesReader(w, body, h.opts.MaxBody)
	}
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gunzip.NewReader(body)
		if err != nil {
			return nil, problem.Unreadable(err)
		}
		return z, nil
	default:
		return nil, h.unsupported(fmt.Sprintf("the Content-Encoding is %q; send gzip or none", e))
	}
}

// leastRate is the least bytes a second at which a body must come, after the first
// ReadTimeout. Without it, a publisher could hold a connection for days by sending a byte
// now and then.
const leastRate = 1 << 10

// A patientReader reads a request's body with a deadline for each read. So a publisher
// may be slow, but neither silent nor endless. Reading ends when ctx ends.
type patientReader struct {
	io.ReadCloser
	ctx     context.Context
	timeout time.Duration
	conn    *http.ResponseController
	begun   time.Time
	read    int64 // bytes since then
	over    bool  // the end of the body, or an error, was read
}

func (p *patientReader) Read(b []byte) (int, error) {
	// After the end of the body, net/http itself reads, to notice that the publisher
	// goes away. It would take a passed deadline for a publisher that went away.
	if !p.over {
		now := time.Now()
		if p.begun.IsZero() {
			p.begun = now
		}
		deadline := p.begun.Add(p.timeout + time.Duration(p.read)*time.Second/leastRate)
		if silent := now.Add(p.timeout); silent.Before(deadline) {
			deadline = silent
		}
		_ = p.conn.SetReadDeadline(deadline) // not every ResponseWriter can
		if err := p.ctx.Err(); err != nil {  // checked after SetReadDeadline, because the code that ends ctx then sets an earlier deadline
			return 0, err
		}
	}
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	p.over = p.over || err != nil
	return n, err
}

// renew lets the next Read count bytes anew, because a whole change has come.
func (p *patientReader) renew() { p.begun, p.read = time.Time{}, 0 }
