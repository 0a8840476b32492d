package dump

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A making is a run that is under way.
type making struct {
	*place
	this    run
	known   *known // what the source had
	first   bool   // nothing is known
	changes *packer
	all     *packer // nil: this run makes no Resource Dump
	reader  *content

	state *os.File // what the source has now
	out   *bufio.Writer
	line  []byte
	gaps  spool  // locs of what could not be read, one on each line
	lost  uint64 // resources that are known and were not listed
	last  string // loc of the last resource or gap

	Result
}

func newMaking(p *place, at time.Time) (m *making, err error) {
	m = &making{place: p, this: run{At: at, From: at, Until: at}, reader: newContent(), gaps: spool{place: p, name: "gaps"}}
	known, ok, err := p.openKnown()
	if err != nil {
		return nil, err
	}
	if m.known, m.first = known, !ok; ok {
		m.this.From = p.newest().Until
		m.changes = newPacker(p, &m.this, resourcesync.ChangeDump)
	}
	if m.first || p.opts.Full || at.Sub(p.full().At) >= p.opts.Every {
		m.all = newPacker(p, &m.this, resourcesync.ResourceDump)
	}
	if m.state, err = p.create("state"); err != nil {
		return nil, errors.Join(err, known.close())
	}
	m.out = bufio.NewWriterSize(m.state, 64<<10)
	return m, nil
}

// run packs what a listing has. What it leaves in its fields is not published yet.
func (m *making) run(ctx context.Context, list Listing) (err error) {
	defer func() {
		if err = errors.Join(err, m.known.close(), m.changes.close(), m.all.close()); err != nil {
			err = errors.Join(err, m.state.Close(), m.gaps.close())
		}
	}()
	for r, err := range list(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		gap, isGap := errors.AsType[*Gap](err)
		switch {
		case isGap:
			err = m.gap(gap)
		case err == nil:
			err = m.resource(r)
		}
		if err != nil {
			return err
		}
	}
	if err := m.reach(""); err != nil {
		return err
	}
	if err := m.out.Flush(); err != nil {
		return err
	}
	if m.lost > 0 && !m.this.Hole {
		if err := m.opts.Allow(m.lost, m.known.read, m.Listed); err != nil {
			return err
		}
		if err := m.deletions(); err != nil {
			return err
		}
	}
	return errors.Join(m.changes.finish(), m.all.finish())
}

// reach notes that what is known before a loc was not listed. An empty loc is the end.
func (m *making) reach(loc string) error {
	if loc != "" {
		if m.last != "" && m.opts.Compare(m.last, loc) >= 0 {
			return fmt.Errorf("the source lists %s after %s: that is not the order", loc, m.last)
		}
		m.last = loc
	}
	for m.known.line != nil && (loc == "" || m.opts.Compare(m.known.loc, loc) < 0) {
		m.lost++
		m.known.line[0] = gone
		if _, err := m.out.Write(m.known.line); err != nil {
			return err
		}
		if err := m.known.next(); err != nil {
			return err
		}
	}
	return nil
}

// gap notes that a resource cannot be read. What was known of it stays so.
func (m *making) gap(g *Gap) error {
	if g.Loc != "" {
		if err := m.reach(g.Loc); err != nil {
			return err
		}
	}
	return m.missing(g)
}

// missing tells of a gap that is reached, notes the resource, and keeps what is known of it.
func (m *making) missing(g *Gap) error {
	m.Gaps++
	m.opts.Gap(g)
	if g.Loc == "" {
		m.this.Hole = true
		return m.delay()
	}
	if err := m.gaps.add(append(append(m.gaps.space[:0], g.Loc...), '\n')); err != nil {
		return err
	}
	if m.known.line == nil || m.known.loc != g.Loc {
		return nil
	}
	if err := m.delay(); err != nil {
		return err
	}
	m.known.line[0] = present
	if _, err := m.out.Write(m.known.line); err != nil {
		return err
	}
	return m.known.next()
}

// delay gives up the new Resource Dump: it would lack a resource that the one before has, and
// destinations would delete it.
func (m *making) delay() error {
	if m.first || m.all == nil {
		return nil
	}
	m.Delayed = true
	all := m.all
	m.all = nil
	return all.close()
}

// packers returns where a resource belongs.
func (m *making) packers(changed bool) (to []*packer) {
	if m.all != nil {
		to = append(to, m.all)
	}
	if m.changes != nil && changed {
		to = append(to, m.changes)
	}
	return to
}

// resource packs a resource as far as that is necessary.
func (m *making) resource(r *Resource) error {
	c := r.Change
	c.Change, c.Datetime, c.Path = resourcesync.Updated, time.Time{}, ""
	if err := m.reach(c.Loc); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return m.missing(&Gap{c.Loc, err})
	}
	m.line = appendLine(m.line[:0], present, &c)
	known := m.known.line != nil && m.known.loc == c.Loc
	if !known {
		c.Change = resourcesync.Created
	}
	changed := !known || !m.known.same(m.line)
	if to := m.packers(changed); len(to) > 0 {
		unread, err := m.reader.pack(r, &c, to)
		if err != nil {
			return err
		}
		if unread != nil {
			return m.missing(&Gap{c.Loc, unread})
		}
	}
	m.Listed++
	switch {
	case m.first || !changed:
	case known:
		m.Updated++
	default:
		m.Created++
	}
	if _, err := m.out.Write(m.line); err != nil {
		return err
	}
	if known {
		return m.known.next()
	}
	return nil
}

// deletions packs the deletions, which are in the state.
func (m *making) deletions() error {
	if _, err := m.state.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(m.state, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if line[0] != gone {
			continue
		}
		loc, _, _ := bytes.Cut(line[1:], []byte{'\t'})
		m.Deleted++
		if err := m.changes.add(&resourcesync.Change{Loc: string(loc), Change: resourcesync.Deleted}); err != nil {
			return err
		}
	}
}

// commit makes the run that of the history, if it has anything.
func (m *making) commit() error {
	if m.Full = m.all != nil; m.Full {
		m.this.Full, m.this.Resources = true, m.all.packs
	}
	if m.changes != nil && len(m.changes.packs) > 0 {
		m.this.Changes = m.changes.packs
		m.this.Until = m.this.Changes[len(m.this.Changes)-1].Until
	} else {
		m.this.Until = m.this.From
	}
	if !m.Full && len(m.this.Changes) == 0 {
		return errors.Join(m.state.Close(), m.gaps.close())
	}
	if m.this.Unreadable = m.gaps.size > 0; m.this.Unreadable {
		if err := m.gaps.put(m.this.unreadable()); err != nil {
			return err
		}
	}
	if err := m.put(m.state, m.this.state()); err != nil {
		return err
	}
	m.this.Completed = later(m.opts.Now(), m.this.At)
	h := history{Format: format, URL: m.opts.URL}
	if !m.first { // else the changes since the run before are unknown
		h.Runs = slices.Clone(m.Runs)
	}
	h.Runs = append(h.Runs, m.this)
	h.prune(m.opts.Keep)
	m.Result.At = m.this.At
	for _, k := range slices.Concat(m.this.Resources, m.this.Changes) {
		m.Packages++
		m.Bytes += k.Length
	}
	return m.write(h)
}

// later returns a time in whole seconds, which is not before another.
func later(t, than time.Time) time.Time {
	if t = t.UTC().Truncate(time.Second); t.Before(than) {
		return than
	}
	return t
}
