package dump

import (
	"bufio"
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
	known   known    // what the source had
	changes *packer  // nil: nothing is known
	all     *packer  // nil: this run makes no Resource Dump
	reader  *content // of contents
	state   lines    // what the source has now
	gaps    lines    // locs of what could not be read
	line    []byte
	lost    uint64 // resources that are known and were not listed
	last    string // loc of the last resource or gap

	Result
}

// lines are a temporary file that is written line by line.
type lines struct {
	file *os.File
	out  *bufio.Writer
}

func (p *place) lines(name string) (lines, error) {
	f, err := p.create(name)
	return lines{f, bufio.NewWriterSize(f, 64<<10)}, err
}

// begin begins a run. Its time is later than that of every other run, even one that was
// killed, so no two files with other bytes ever have the same name.
func (p *place) begin() (*making, error) {
	at := p.opts.Now().UTC().Truncate(time.Second)
	if next := p.Begun.Add(time.Second); at.Before(next) {
		at = next
	}
	h := p.history
	h.Begun = at
	return &making{place: p, this: run{At: at, From: at, Until: at}, reader: newContent()}, p.write(h)
}

// run packs what a listing has. What it leaves is not published yet.
func (m *making) run(ctx context.Context, list Listing) error {
	defer m.close()
	if err := m.open(); err != nil {
		return err
	}
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
	if err := errors.Join(m.state.out.Flush(), m.gaps.out.Flush()); err != nil {
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
	return m.end()
}

// open opens the files of a run, and decides what it packs.
func (m *making) open() (err error) {
	if err := m.known.open(m.place); err != nil {
		return err
	}
	if m.known.file != nil {
		m.this.From = m.newest().Until
		m.changes = newPacker(m.place, &m.this, resourcesync.ChangeDump)
	}
	if m.changes == nil || m.opts.Full || m.this.At.Sub(m.full()) >= m.opts.Every {
		m.all = newPacker(m.place, &m.this, resourcesync.ResourceDump)
	}
	if m.state, err = m.lines("state"); err != nil {
		return err
	}
	m.gaps, err = m.lines("gaps")
	return err
}

// end puts the files of a run in their places, if it has found anything.
func (m *making) end() error {
	for _, p := range m.packers(true) {
		if err := p.end(); err != nil {
			return err
		}
	}
	if m.Full = m.all != nil; m.Full {
		m.this.Full, m.this.Resources = true, m.all.packs
	}
	m.this.Until = m.this.From
	if m.changes != nil && len(m.changes.packs) > 0 {
		m.this.Changes = m.changes.packs
		m.this.Until = m.this.Changes[len(m.this.Changes)-1].Until
	}
	if !m.Full && len(m.this.Changes) == 0 {
		return nil
	}
	m.At = m.this.At
	for _, k := range slices.Concat(m.this.Resources, m.this.Changes) {
		m.Packages++
		m.Bytes += k.Length
	}
	if m.this.Unreadable {
		if err := m.put(m.gaps.file, m.this.unreadable()); err != nil {
			return err
		}
	}
	return m.put(m.state.file, m.this.state())
}

// close closes what is still open: files that are only read, or that nobody needs any more.
func (m *making) close() {
	for _, f := range []*os.File{m.known.file, m.state.file, m.gaps.file} {
		_ = f.Close()
	}
	for _, p := range m.packers(true) {
		_ = p.close()
	}
}

// commit makes the run that of the history, if it has found anything.
func (m *making) commit() error {
	if m.At.IsZero() {
		return nil
	}
	m.this.Completed = later(m.opts.Now(), m.this.At)
	h := m.history
	if m.changes == nil {
		h.Runs = nil // the changes since the run before are unknown
	}
	h.add(m.this, m.opts.Keep)
	return m.write(h)
}

// reach notes that what is known before a loc was not now. An empty loc is the end.
func (m *making) reach(loc string) error {
	if loc != "" {
		if m.last != "" && m.opts.Compare(m.last, loc) >= 0 {
			return fmt.Errorf("the source lists %s after %s: that is not the order", loc, m.last)
		}
		m.last = loc
	}
	for m.known.line != nil && (loc == "" || m.opts.Compare(m.known.loc, loc) < 0) {
		m.lost++
		if err := m.keep(gone); err != nil {
			return err
		}
	}
	return nil
}

// keep notes that what is known of the present resource stays, with a mark.
func (m *making) keep(mark byte) error {
	m.known.line[0] = mark
	if _, err := m.state.out.Write(m.known.line); err != nil {
		return err
	}
	return m.known.next()
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
	m.this.Unreadable = true
	if _, err := m.gaps.out.WriteString(g.Loc + "\n"); err != nil {
		return err
	}
	if !m.known.has(g.Loc) {
		return nil
	}
	if err := m.delay(); err != nil {
		return err
	}
	return m.keep(present)
}

// delay gives up the new Resource Dump: it would lack a resource that the one before has, and
// destinations would delete it.
func (m *making) delay() error {
	if m.changes == nil || m.all == nil {
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
	known := m.known.has(c.Loc)
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
	case m.changes == nil || !changed:
	case known:
		m.Updated++
	default:
		m.Created++
	}
	if _, err := m.state.out.Write(m.line); err != nil {
		return err
	}
	if known {
		return m.known.next()
	}
	return nil
}

// deletions packs the deletions, which are in the state.
func (m *making) deletions() error {
	if _, err := m.state.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	now := known{file: m.state.file, in: bufio.NewReaderSize(m.state.file, 64<<10), hole: true}
	for {
		if err := now.next(); err != nil || now.line == nil {
			return err
		}
		if now.line[0] != gone {
			continue
		}
		m.Deleted++
		if err := m.changes.add(&resourcesync.Change{Loc: now.loc, Change: resourcesync.Deleted}); err != nil {
			return err
		}
	}
}

// later returns a time in whole seconds, which is not before another.
func later(t, than time.Time) time.Time {
	if t = t.UTC().Truncate(time.Second); t.Before(than) {
		return than
	}
	return t
}
