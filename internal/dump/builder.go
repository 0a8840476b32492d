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

// A builder performs one run.
type builder struct {
	*directory
	current   run
	previous  stateReader // state of the previous run
	changes   *packer     // nil if there is no previous state
	resources *packer     // nil if this run creates no Resource Dump
	reader    *contentReader
	state     lineFile // resources that the source has now
	gaps      lineFile // locs of unreadable resources
	line      []byte
	unlisted  uint64 // number of previous resources that were not listed
	lastLoc   string // loc of the last resource or gap

	Result
}

// A lineFile is a temporary file that is written line by line.
type lineFile struct {
	file *os.File
	out  *bufio.Writer
}

// createLines creates a temporary file for lines.
func (p *directory) createLines(name string) (lineFile, error) {
	f, err := p.createTemp(name)
	return lineFile{f, bufio.NewWriterSize(f, 64<<10)}, err
}

// startRun starts a run. Its time is later than that of every other run, even of a killed one, so
// no two files with different content ever have the same name.
func (p *directory) startRun() (*builder, error) {
	at := p.opts.Now().UTC().Truncate(time.Second)
	if next := p.Started.Add(time.Second); at.Before(next) {
		at = next
	}
	h := p.history
	h.Started = at
	return &builder{directory: p, current: run{At: at, From: at, Until: at}, reader: newContentReader()}, p.writeHistory(h)
}

// packListing packs the resources of a listing. It does not publish the files.
func (m *builder) packListing(ctx context.Context, list Listing) error {
	defer m.closeFiles()
	if err := m.openFiles(); err != nil {
		return err
	}
	for r, err := range list(ctx) {
		if err == nil {
			err = ctx.Err()
		}
		gap, isGap := errors.AsType[*Gap](err)
		switch {
		case isGap:
			err = m.addGap(gap)
		case err == nil:
			err = m.addResource(r)
		}
		if err != nil {
			return err
		}
	}
	if err := m.advanceTo(""); err != nil {
		return err
	}
	if err := errors.Join(m.state.out.Flush(), m.gaps.out.Flush()); err != nil {
		return err
	}
	if m.unlisted > 0 && !m.current.Hole {
		if err := m.opts.Allow(m.unlisted, m.previous.count, m.Listed); err != nil {
			return err
		}
		if err := m.packDeletions(); err != nil {
			return err
		}
	}
	return m.finish()
}

// openFiles opens the files of a run, and decides which dumps it creates.
func (m *builder) openFiles() (err error) {
	if err := m.previous.open(m.directory); err != nil {
		return err
	}
	if m.previous.file != nil {
		m.current.From = m.newest().Until
		m.changes = newPacker(m.directory, &m.current, resourcesync.ChangeDump)
	}
	if m.changes == nil || m.opts.Full || m.current.At.Sub(m.newestFull()) >= m.opts.Every {
		m.resources = newPacker(m.directory, &m.current, resourcesync.ResourceDump)
	}
	if m.state, err = m.createLines("state"); err != nil {
		return err
	}
	m.gaps, err = m.createLines("gaps")
	return err
}

// finish moves the files of a run into place, unless nothing has changed.
func (m *builder) finish() error {
	for _, p := range m.packers(true) {
		if err := p.finishPackage(); err != nil {
			return err
		}
	}
	if m.Full = m.resources != nil; m.Full {
		m.current.Full, m.current.Resources = true, m.resources.packages
	}
	m.current.Until = m.current.From
	if m.changes != nil && len(m.changes.packages) > 0 {
		m.current.Changes = m.changes.packages
		m.current.Until = m.current.Changes[len(m.current.Changes)-1].Until
	}
	if !m.Full && len(m.current.Changes) == 0 {
		return nil
	}
	m.At = m.current.At
	for _, k := range slices.Concat(m.current.Resources, m.current.Changes) {
		m.Packages++
		m.Bytes += k.Length
	}
	if m.current.Unreadable {
		if err := m.install(m.gaps.file, m.current.unreadable()); err != nil {
			return err
		}
	}
	return m.install(m.state.file, m.current.state())
}

// closeFiles closes the files that are still open. All of them are read-only or no longer needed,
// so errors do not matter.
func (m *builder) closeFiles() {
	for _, f := range []*os.File{m.previous.file, m.state.file, m.gaps.file} {
		_ = f.Close()
	}
	for _, p := range m.packers(true) {
		_ = p.abort()
	}
}

// commit adds the run to the history, unless nothing has changed.
func (m *builder) commit() error {
	if m.At.IsZero() {
		return nil
	}
	m.current.Completed = notBefore(m.opts.Now(), m.current.At)
	h := m.history
	if m.changes == nil {
		h.Runs = nil // the changes since the previous run are unknown
	}
	h.addRun(m.current, m.opts.Keep)
	return m.writeHistory(h)
}

// advanceTo marks the previous resources before loc as gone, because they were not listed. An empty
// loc is the end of the listing.
func (m *builder) advanceTo(loc string) error {
	if loc != "" {
		if m.lastLoc != "" && m.opts.Compare(m.lastLoc, loc) >= 0 {
			return fmt.Errorf("source is not in order: listed %s after %s", loc, m.lastLoc)
		}
		m.lastLoc = loc
	}
	for m.previous.line != nil && (loc == "" || m.opts.Compare(m.previous.loc, loc) < 0) {
		m.unlisted++
		if err := m.keepPrevious(gone); err != nil {
			return err
		}
	}
	return nil
}

// keepPrevious copies the line of the current previous resource to the state, with a mark.
func (m *builder) keepPrevious(mark byte) error {
	m.previous.line[0] = mark
	if _, err := m.state.out.Write(m.previous.line); err != nil {
		return err
	}
	return m.previous.next()
}

// addGap records a gap at its position in the order.
func (m *builder) addGap(g *Gap) error {
	if g.Loc != "" {
		if err := m.advanceTo(g.Loc); err != nil {
			return err
		}
	}
	return m.recordGap(g)
}

// recordGap reports a gap whose position was reached, lists the resource as unreadable, and keeps
// its previous state.
func (m *builder) recordGap(g *Gap) error {
	m.Gaps++
	m.opts.Gap(g)
	if g.Loc == "" {
		m.current.Hole = true
		return m.delayFullDump()
	}
	m.current.Unreadable = true
	if _, err := m.gaps.out.WriteString(g.Loc + "\n"); err != nil {
		return err
	}
	if !m.previous.isAt(g.Loc) {
		return nil
	}
	if err := m.delayFullDump(); err != nil {
		return err
	}
	return m.keepPrevious(present)
}

// delayFullDump cancels the new Resource Dump: it would lack a resource of the previous one, which
// destinations would then delete.
func (m *builder) delayFullDump() error {
	if m.changes == nil || m.resources == nil {
		return nil
	}
	m.Delayed = true
	all := m.resources
	m.resources = nil
	return all.abort()
}

// packers returns the packers to which a resource must be added.
func (m *builder) packers(changed bool) (to []*packer) {
	if m.resources != nil {
		to = append(to, m.resources)
	}
	if m.changes != nil && changed {
		to = append(to, m.changes)
	}
	return to
}

// addResource records a resource, and packs it if necessary.
func (m *builder) addResource(r *Resource) error {
	c := r.Change
	c.Change, c.Datetime, c.Path = resourcesync.Updated, time.Time{}, ""
	if err := m.advanceTo(c.Loc); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return m.recordGap(&Gap{c.Loc, err})
	}
	m.line = appendLine(m.line[:0], present, &c)
	known := m.previous.isAt(c.Loc)
	if !known {
		c.Change = resourcesync.Created
	}
	changed := !known || !m.previous.equalsLine(m.line)
	if to := m.packers(changed); len(to) > 0 {
		unread, err := m.reader.pack(r, &c, to)
		if err != nil {
			return err
		}
		if unread != nil {
			return m.recordGap(&Gap{c.Loc, unread})
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
		return m.previous.next()
	}
	return nil
}

// packDeletions adds the resources that are marked as gone in the state to the Change Dump.
func (m *builder) packDeletions() error {
	if _, err := m.state.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	now := stateReader{file: m.state.file, in: bufio.NewReaderSize(m.state.file, 64<<10), includeGone: true}
	for {
		if err := now.next(); err != nil || now.line == nil {
			return err
		}
		if now.line[0] != gone {
			continue
		}
		m.Deleted++
		if err := m.changes.addEntry(&resourcesync.Change{Loc: now.loc, Change: resourcesync.Deleted}); err != nil {
			return err
		}
	}
}

// notBefore returns t in whole seconds, or than if t is before it.
func notBefore(t, than time.Time) time.Time {
	if t = t.UTC().Truncate(time.Second); t.Before(than) {
		return than
	}
	return t
}
