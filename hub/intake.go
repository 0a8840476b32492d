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

// An intake is the body of a publish while it is read. It knows the sender, and holds memory
// for the publish until the publish is done. It reserves the memory from a budget step by
// step, because the decompressed size of a body is not known in advance.
type intake struct {
	ctx       context.Context
	user      *limit.User
	share     *limit.Share
	maxMemory int64 // maximum bytes of memory for one publish
	reserved  int64 // lower bound of the bytes that share holds

	body      io.Reader // decompressed body
	source    *deadlineReader
	read      int64 // number of bytes read
	uncharged int64 // bytes read but not yet counted against the user's limit
	err       error // error of the first failed read, returned by all later reads because the bytes of that read are lost

	slots     chan struct{} // Hub.decodeSlots
	holdsSlot bool          // whether the intake holds an element of slots
}

// Memory is reserved in steps. Most publishes need only the first.
const (
	minReservation  = 32 << 10
	reservationStep = 256 << 10
)

// largeBody is the maximum number of bytes of a publish that is decoded without a slot.
const largeBody = 1 << 20

// newIntake returns an intake for the caller of ctx, without a body. Unless newIntake fails,
// the caller must call release.
func (h *Hub) newIntake(ctx context.Context) (*intake, error) {
	in := &intake{ctx: ctx, user: limit.FromContext(ctx), maxMemory: h.opts.Intake.MaxShare(ctx), reserved: minReservation, slots: h.decodeSlots}
	if err := in.admit(); err != nil {
		return nil, err
	}
	var err error
	in.share, err = h.opts.Intake.Acquire(ctx, minReservation)
	return in, err
}

// admit counts a publish against the user's limits. It returns an error if a limit is reached.
func (in *intake) admit() error {
	for _, kind := range []limit.Kind{limit.Changes, limit.Bytes} {
		if err := in.user.Check(kind); err != nil {
			return err
		}
	}
	return in.user.Use(limit.Publishes, 1)
}

// maxThrottle is the longest time that a batch of a stream waits for a limit.
const maxThrottle = 30 * time.Second

// throttle admits a further batch of a stream. If a limit is reached, it first waits for up to
// maxThrottle: slowing a stream down is better than ending it.
func (in *intake) throttle() error {
	wait := max(in.user.Wait(limit.Publishes), in.user.Wait(limit.Changes), in.user.Wait(limit.Bytes))
	if wait > 0 && wait <= maxThrottle {
		if err := backoff.Sleep(in.ctx, wait); err != nil {
			return err
		}
	}
	return in.admit()
}

// Read reads from the body. The caller decodes what Read returned before it calls Read again.
// So for a large publish, Read acquires a slot before it returns, which leaves processor time
// for other publishes, and releases the slot while it waits for the publisher, who may be
// slow.
func (in *intake) Read(p []byte) (int, error) {
	in.releaseSlot()
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.body.Read(p)
	in.err = err
	in.uncharged += int64(n)
	if in.read += int64(n); in.read > largeBody {
		select {
		case in.slots <- struct{}{}:
			in.holdsSlot = true
		case <-in.ctx.Done():
			in.err = in.ctx.Err()
			return 0, in.err
		}
	}
	return n, err
}

// releaseSlot releases the slot if the intake holds one.
func (in *intake) releaseSlot() {
	if in.holdsSlot {
		in.holdsSlot = false
		<-in.slots
	}
}

// reserve reserves memory for the given total number of bytes from the budget. It returns an
// error if the budget or the limit of one publish is exhausted.
func (in *intake) reserve(bytes int64) error {
	if bytes <= in.reserved {
		return nil
	}
	if bytes > in.maxMemory {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("the publish needs more than %d bytes of memory after decompression; send several smaller ones", in.maxMemory)}
	}
	want := min(bytes+reservationStep, in.maxMemory)
	if err := in.share.Grow(want); err != nil {
		return err
	}
	in.reserved = want
	return nil
}

// charge counts changes, and the bytes read since the last call, against the user's limits.
// All of these bytes have been decoded.
func (in *intake) charge(changes int) {
	in.releaseSlot()
	in.user.Spend(limit.Bytes, in.uncharged)
	in.user.Spend(limit.Changes, int64(changes))
	in.uncharged = 0
}

// releaseBatch releases the memory of a batch before the next one is read.
func (in *intake) releaseBatch() {
	in.share.Shrink(minReservation)
	in.reserved = min(in.reserved, minReservation)
}

// release charges the remaining bytes and returns the memory to the budget.
func (in *intake) release() {
	in.charge(0)
	in.share.Release()
}

// decompress returns the body of a request, decompressed and limited in size. A stream has no
// limit as a whole; receiveLines limits its batches.
func (h *Hub) decompress(w http.ResponseWriter, r *http.Request, source *deadlineReader, stream bool) (io.Reader, error) {
	var body io.ReadCloser = source
	if !stream {
		body = http.MaxBytesReader(w, body, h.opts.MaxBody)
	}
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gunzip.NewReader(body)
		if err != nil {
			return nil, problem.BodyError(err)
		}
		return z, nil
	default:
		return nil, h.unsupported(fmt.Sprintf("unsupported Content-Encoding %q; send gzip or none", e))
	}
}

// minRate is the minimum rate, in bytes per second, at which a body must arrive after the
// first ReadTimeout. Without it, a publisher could hold a connection for days by sending a
// byte now and then.
const minRate = 1 << 10

// A deadlineReader sets a deadline for each read of a request body. It allows for slow
// publishers, but not for those that stop sending or never finish. Reads fail after ctx is
// done.
type deadlineReader struct {
	io.ReadCloser
	ctx     context.Context
	timeout time.Duration
	conn    *http.ResponseController
	start   time.Time
	read    int64 // bytes read since start
	done    bool  // whether a read returned io.EOF or another error
}

func (r *deadlineReader) Read(b []byte) (int, error) {
	// After the end of the body, net/http itself reads from the connection, to detect
	// that the publisher disconnects. It would mistake an expired deadline for that.
	if !r.done {
		now := time.Now()
		if r.start.IsZero() {
			r.start = now
		}
		deadline := r.start.Add(r.timeout + time.Duration(r.read)*time.Second/minRate)
		if idle := now.Add(r.timeout); idle.Before(deadline) {
			deadline = idle
		}
		_ = r.conn.SetReadDeadline(deadline) // not every ResponseWriter supports it
		if err := r.ctx.Err(); err != nil {  // must follow SetReadDeadline: the code that cancels ctx sets an earlier deadline afterwards
			return 0, err
		}
	}
	n, err := r.ReadCloser.Read(b)
	r.read += int64(n)
	r.done = r.done || err != nil
	return n, err
}

// resetRate restarts the measurement of the rate, because a whole change has arrived.
func (r *deadlineReader) resetRate() { r.start, r.read = time.Time{}, 0 }
