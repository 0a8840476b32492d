package relay

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

const (
	overlap   = time.Hour // of two looks at Change Lists: a source may add a change late
	maxRecent = 20_000    // changes that a Mark remembers
	maxAhead  = time.Hour // how far a datetime may lie in the future; one that is far off would hide all that come
)

// A Mark says which changes of a source were published.
type Mark struct {
	Begin    time.Time            `json:"begin"`            // changes before were never read: everything was compared as of then
	Datetime time.Time            `json:"datetime"`         // of the newest one; zero: none
	Recent   map[string]time.Time `json:"recent,omitempty"` // those of the overlap before it, by a hash; if it is empty, all after Datetime are new
}

// since returns the datetime from which on the source has to be read.
func (m *Mark) since() time.Time {
	if len(m.Recent) == 0 || m.Datetime.IsZero() {
		return m.Datetime
	}
	if from := m.Datetime.Add(-overlap); from.After(m.Begin) {
		return from
	}
	return m.Begin
}

// keyOf returns what tells a change from the others of a source. Where a source has datetimes
// in whole seconds, two changes of one resource may have the same: what they say of its
// content tells them apart.
func keyOf(c *resourcesync.Change) string {
	length := int64(-1)
	if c.Length != nil {
		length = *c.Length
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%s\n%d", c.Loc, c.Change, c.Datetime.Format(time.RFC3339Nano), c.Lastmod.Format(time.RFC3339Nano), c.Hash, length))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// errGap means that the Change Lists begin after what was published.
var errGap = errors.New("changes between are missing")

// changeList looks at a source that has Change Lists.
func (r *Relay) changeList(ctx context.Context, full bool) (Result, error) {
	compares := r.st.Source.ResourceList != ""
	if !full || !compares {
		res, err := r.increments(ctx, compares)
		if err == nil && full {
			r.st.Full = r.opts.Now() // there is nothing to compare with
		}
		if err != errGap {
			return res, err
		}
	}
	was := r.st.Mark.Datetime
	base, dated, err := r.baseline(ctx)
	if err != nil {
		return base, err
	}
	// If there is a gap after the Resource List, too, the source may just have renewed its
	// lists, so the next look compares once more. If it finds the same list, all that there is
	// is published.
	res, err := r.increments(ctx, dated && !r.st.Mark.Datetime.Equal(was))
	if err == errGap {
		return base, nil
	}
	if err != nil {
		return res, err
	}
	base.Created, base.Updated, base.Deleted = base.Created+res.Created, base.Updated+res.Updated, base.Deleted+res.Deleted
	if base.Cursor.Position < res.Cursor.Position {
		base.Cursor = res.Cursor
	}
	return base, nil
}

// baseline compares everything by the Resource List. Its time is where the Change Lists go
// on: what changed before is in it. dated says whether the list says its time.
func (r *Relay) baseline(ctx context.Context) (res Result, dated bool, err error) {
	begun := r.opts.Now()
	seen := harvest.Seen{}
	trust := r.st.Trust.begin()
	res, err = r.compare(ctx, r.believed(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust), nil)
	if err != nil {
		return res, false, err
	}
	r.st.Trust = trust.end(r.opts.Note)
	at := seen.At
	if at.IsZero() {
		at = begun.Add(-24 * time.Hour)
	}
	r.st.Mark, r.st.Seen = Mark{Begin: at.UTC(), Datetime: at.UTC()}, harvest.Seen{}
	if !res.Cursor.IsZero() {
		// The list may have undone changes that are later than itself. They are published again,
		// so they must not get the keys that they had before.
		r.st.Cursor = res.Cursor.String()
	}
	return res, !seen.At.IsZero(), r.opts.Save(r.st)
}

// increments publishes the changes that are new in the Change Lists, in their order, while
// it reads them. If it is interrupted, the same changes get the same keys the next time. If the
// lists begin after what was published, it says so, and if stops, it publishes nothing and
// returns errGap.
func (r *Relay) increments(ctx context.Context, stops bool) (res Result, err error) {
	res.How = Changes
	was, seen := r.st.Mark, r.st.Seen
	next := Mark{Begin: was.Begin, Datetime: was.Datetime, Recent: map[string]time.Time{}}
	p := &publication{Relay: r, base: was.Datetime.Format(time.RFC3339Nano), res: &res}
	horizon := r.opts.Now().Add(maxAhead)
	var reach harvest.Reach
	gap := func() bool { return !was.Datetime.IsZero() && reach.From.After(was.Datetime) }
	for c, err := range r.lister.Changes(ctx, r.st.Source.ChangeList, was.since(), &seen, &reach) {
		if errors.Is(err, harvest.ErrUnchanged) {
			res.How = Unchanged
			return res, nil
		}
		if err != nil {
			return res, err
		}
		if gap() && stops {
			break
		}
		if c.Datetime.After(horizon) {
			return res, fmt.Errorf("the change of %s at %s lies in the future: later changes would be missed", resourcesync.Shorten(c.Loc), c.Datetime.Format(time.RFC3339))
		}
		key := keyOf(c)
		if c.Datetime.After(next.Datetime) {
			next.Datetime = c.Datetime
		}
		next.Recent[key] = c.Datetime
		if len(next.Recent) > 2*maxRecent {
			next.trim()
		}
		if _, had := was.Recent[key]; had {
			continue
		}
		pass(c)
		if err := p.add(ctx, c); err != nil {
			return res, err
		}
	}
	if gap() {
		r.opts.Note(fmt.Sprintf("the Change List begins at %s, and what was published ends at %s: %v", reach.From.Format(time.RFC3339), was.Datetime.Format(time.RFC3339), errGap))
		if stops {
			return res, errGap
		}
	}
	if err := p.send(ctx); err != nil {
		return res, err
	}
	next.trim()
	r.st.Mark, r.st.Seen = next, seen
	return res, nil
}

// trim forgets what lies before the overlap.
func (m *Mark) trim() {
	for key, at := range m.Recent {
		if at.Before(m.Datetime.Add(-overlap)) {
			delete(m.Recent, key)
		}
	}
	if len(m.Recent) > maxRecent { // only the newest: what is read again then is published again, which does no harm
		for key, at := range m.Recent {
			if at.Before(m.Datetime) {
				delete(m.Recent, key)
			}
		}
	}
}

// A publication publishes changes in batches.
type publication struct {
	*Relay
	base    string // names the state before, so that the same changes at another time have another key
	res     *Result
	number  int
	changes []resourcesync.Change
}

func (p *publication) add(ctx context.Context, c *resourcesync.Change) error {
	if p.changes = append(p.changes, *c); len(p.changes) == reconcile.MaxBatch {
		return p.send(ctx)
	}
	return nil
}

func (p *publication) send(ctx context.Context) error {
	if len(p.changes) == 0 {
		return nil
	}
	p.number++
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%d\n", p.base, p.st.Cursor, p.number)
	var line []byte
	for i := range p.changes {
		line = append(resourcesync.AppendJSONMembers(line[:0], &p.changes[i]), '\n')
		h.Write(line)
	}
	at, err := p.hub.Publish(ctx, hex.EncodeToString(h.Sum(nil)[:16]), p.changes)
	if err != nil {
		return err
	}
	if at != (feed.Cursor{}) {
		p.res.Cursor = at
	}
	for i := range p.changes {
		switch p.changes[i].Change {
		case resourcesync.Created:
			p.res.Created++
		case resourcesync.Updated:
			p.res.Updated++
		case resourcesync.Deleted:
			p.res.Deleted++
		}
	}
	p.changes = p.changes[:0]
	return nil
}
