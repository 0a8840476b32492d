package harvest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/resourcesync"
)

const (
	batchSize = 1000                  // changes that are published at once
	raceMax   = 10                    // how often a round gives way to another hub that was faster
	raceWait  = 10 * time.Millisecond // before it looks again, doubled each time: the other hub's changes may not be readable yet
)

// A round is one fetch of a set's list, by one goroutine.
type round struct {
	*Fetcher
	set       string
	host      string    // host of the list, for the log
	watermark watermark // what the set's log has of the source
	upto      time.Time // every change of the source up to then is in the log, or is in no list any more
	added     int       // number of changes that were published
}

// run reads the list, or the lists that an index names, and publishes what is
// new in them. What it published before an error stays.
func (r *round) run(ctx context.Context) error {
	state, err := r.log.State(ctx, r.set)
	if err != nil {
		return fmt.Errorf("read the set's description: %w", err)
	}
	if u, err := url.Parse(state.ChangeList); err == nil {
		r.host = u.Host
	}
	top, err := r.reader.Read(ctx, state.ChangeList)
	if err != nil {
		return err
	}
	if r.watermark, err = readWatermark(ctx, r.log, r.set); err != nil {
		return fmt.Errorf("read the newest changes of the set: %w", err)
	}
	r.upto = r.watermark.datetime
	if !top.Index {
		return r.take(ctx, top)
	}
	for _, l := range listsOf(top) {
		if !r.watermark.reaches(l.until) {
			continue
		}
		doc, err := r.reader.Read(ctx, l.url)
		if err == nil && doc.Index {
			err = errors.New("it is an index again")
		}
		if err == nil {
			err = r.take(ctx, doc)
		}
		if err != nil {
			return fmt.Errorf("list %d of the index: %w", l.number, err)
		}
	}
	return nil
}

// take publishes what is new in one list. If the list begins later than what
// the log has of the source, changes may be missing, and take can only log
// that.
//
// The key of each batch names what the log had of the source before that batch.
// So when two hubs fetch at the same time, only one of them adds a batch under
// a key. If the other one has the same batch, it is told that the batch is
// there already. If the other one read an older or a newer list, its batch
// differs, and it gets feed.ErrKeyReused. Then take looks again at what the log
// has by now.
func (r *round) take(ctx context.Context, doc *resourcesync.Document) error {
	if !r.upto.IsZero() && doc.From.After(r.upto) {
		r.opts.Logger.Warn("fetch: the Change List of the source begins after the newest change of the set; changes in between may be missing",
			"set", r.set, "host", r.host, "has", r.upto, "from", doc.From)
	}
	r.upto = doc.Until
	for try := range raceMax {
		news, err := r.watermark.news(doc)
		if err != nil {
			return err
		}
		err = r.add(ctx, news)
		if !errors.Is(err, feed.ErrKeyReused) {
			return err
		}
		if !backoff.Wait(ctx, raceWait<<try) {
			return ctx.Err()
		}
		if r.watermark, err = readWatermark(ctx, r.log, r.set); err != nil {
			return fmt.Errorf("read the newest changes of the set: %w", err)
		}
	}
	return errors.New("other hubs published first at each attempt")
}

// add publishes changes in batches, and raises the watermark after each.
func (r *round) add(ctx context.Context, changes []resourcesync.Change) error {
	for batch := range slices.Chunk(changes, batchSize) {
		last, added, err := r.publish(ctx, r.set, "fetch "+r.watermark.cursor.String(), hashOf(batch), batch)
		if err != nil {
			return fmt.Errorf("publish what was fetched: %w", err)
		}
		r.added += added
		for i := range batch {
			r.watermark.add(&batch[i], last)
		}
	}
	return nil
}

// hashOf returns a digest of changes: the SHA-256 of their JSON, one change on
// each line.
func hashOf(changes []resourcesync.Change) (sum [32]byte) {
	h := sha256.New()
	var line []byte
	for i := range changes {
		line = append(resourcesync.AppendJSONMembers(line[:0], &changes[i]), '\n')
		_, _ = h.Write(line) // never fails
	}
	h.Sum(sum[:0])
	return sum
}
