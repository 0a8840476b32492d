package hub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/budget"
	"github.com/rshub/rshub/limit"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// An intake is the body of a publish on its way in: who sends it, and the memory that it
// takes until it is published. The memory is taken from a budget as it is needed, because
// nobody knows before what a body unpacks to.
type intake struct {
	ctx   context.Context
	user  *limit.User
	share *budget.Share
	most  int64 // bytes of memory that one publish may take
	have  int64 // bytes that share has at least

	body    io.Reader // unpacked
	patient *patientReader
	read    int64 // bytes that were read
	unpaid  int64 // of these, what does not count for the user's limit yet
	err     error // of the first read that failed; it stays, because what was read then is lost

	turns chan struct{} // of the hub
	turn  bool          // it has one
}

// Memory is taken in steps, so that most publishes do not ask for more than the first.
const (
	firstRoom = 32 << 10
	roomStep  = 256 << 10
)

// large is how many bytes a publish may have that is decoded without waiting for its turn.
const large = 1 << 20

// take begins an intake for the caller of ctx. It must be ended with release.
func (h *Hub) take(ctx context.Context) (*intake, error) {
	in := &intake{ctx: ctx, user: limit.FromContext(ctx), most: h.opts.Intake.Most(ctx), have: firstRoom, turns: h.turns}
	if err := in.admit(); err != nil {
		return nil, err
	}
	var err error
	in.share, err = h.opts.Intake.Take(ctx, firstRoom)
	return in, err
}

// admit counts a publish, if no limit is reached.
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

// pace counts a further batch of a stream. If a limit is reached it waits: a publisher that
// is slowed down needs no error.
func (in *intake) pace() error {
	wait := max(in.user.Wait(limit.Publishes), in.user.Wait(limit.Changes), in.user.Wait(limit.Bytes))
	if wait > 0 && wait <= longestPace {
		if err := backoff.Sleep(in.ctx, wait); err != nil {
			return err
		}
	}
	return in.admit()
}

// Read reads the body. What it returns is decoded until the next call: a large publish waits
// for its turn before that, so that decoding leaves a processor for others. It has no turn
// while it waits for its publisher, who may be slow.
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

// yield ends the turn, if there is one.
func (in *intake) yield() {
	if in.turn {
		in.turn = false
		<-in.turns
	}
}

// room makes room for so many bytes of memory, or returns why there is none.
func (in *intake) room(bytes int64) error {
	if bytes <= in.have {
		return nil
	}
	if bytes > in.most {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: fmt.Sprintf("one publish takes at most %d bytes of the hub's memory, unpacked, and this one takes more: send it in several", in.most)}
	}
	want := min(bytes+roomStep, in.most)
	if err := in.share.Grow(want); err != nil {
		return err
	}
	in.have = want
	return nil
}

// pay counts what was read, and changes that were in it. All of it is decoded.
func (in *intake) pay(changes int) {
	in.yield()
	in.user.Spend(limit.Bytes, in.unpaid)
	in.user.Spend(limit.Changes, int64(changes))
	in.unpaid = 0
}

// renew gives the memory of a batch back, for the next one.
func (in *intake) renew() {
	in.share.Keep(firstRoom)
	in.have = min(in.have, firstRoom)
}

// release ends the intake.
func (in *intake) release() {
	in.pay(0)
	in.share.Release()
}

// leastRate is how many bytes a second of a body must come, after the first time in which
// a publisher may be silent. Else somebody could hold a connection for days with a byte
// now and then.
const leastRate = 1 << 10

// A patientReader reads a request's body with a deadline for each read. So a
// publisher may be slow, but neither silent nor endless. When ctx ends, so does the reading.
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
	// goes away. It would mistake a deadline that passes for that.
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
		if err := p.ctx.Err(); err != nil {  // after that: who ends ctx sets an earlier deadline afterwards
			return 0, err
		}
	}
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	p.over = p.over || err != nil
	return n, err
}

// renew begins to count anew: something whole has come.
func (p *patientReader) renew() { p.begun, p.read = time.Now(), 0 }

// mayMake counts a set that the caller of ctx makes.
func mayMake(ctx context.Context) error { return limit.FromContext(ctx).Use(limit.Sets, 1) }

// fits returns an error if a publish to a set would have it keep more than it may.
func (h *Hub) fits(set string) error {
	if h.opts.Full == nil {
		return nil
	}
	most, full := h.opts.Full(set)
	if !full {
		return nil
	}
	return problem.New(http.StatusInsufficientStorage, "set-full", fmt.Sprintf("set %s keeps as much as one set may, or the sets of whoever made it do together, %d bytes; it takes no more changes until retention removes some", set, most))
}
