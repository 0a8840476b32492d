package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
)

// auditCounts has the numbers of problems that audits have found, and of the files of the mirrors.
type auditCounts struct {
	kinds           map[mirror.ProblemKind]int
	total, repaired int
	files, bytes    int64
}

// runAudit audits a mirror, or the mirrors of all sets of a hub, and prints the problems. It returns
// errDifferences if some of them are not repaired.
func (p *program) runAudit(ctx context.Context) error {
	n := &auditCounts{kinds: map[mirror.ProblemKind]int{}}
	p.counts = n
	err := p.auditHome(ctx)
	if _, ok := errors.AsType[*setsError](err); err != nil && !ok {
		return err
	}
	p.report.Note("rsmirror: %d missing, %d stale, %d damaged, %d extra, %d unknown; %d repaired; the mirror has %d files, %s", n.kinds[mirror.Missing],
		n.kinds[mirror.Stale], n.kinds[mirror.Damaged], n.kinds[mirror.Extra], n.kinds[mirror.Unknown], n.repaired, n.files, formatBytes(n.bytes))
	if err == nil && n.total > n.repaired {
		return errDifferences
	}
	return err
}

// auditHome audits what the directory has: one mirror, or the mirrors of all sets of a hub.
func (p *program) auditHome(ctx context.Context) (err error) {
	h, err := p.openAuditHome(ctx)
	if err != nil {
		return err
	}
	closed := sync.OnceValue(h.Close)
	defer func() { err = errors.Join(err, closed()) }()
	if err := p.loadSettings(h); err != nil {
		return err
	}
	if !p.settings.All {
		return p.auditMirror(ctx, h)
	}
	if !p.repair { // each mirror is locked only during its own audit
		if err := closed(); err != nil {
			return err
		}
	}
	return p.auditSets(ctx, h.IsCopy())
}

// auditMirror audits one mirror.
func (p *program) auditMirror(ctx context.Context, h *home.Home) error {
	sink, err := p.sink(h)
	if err != nil {
		return err
	}
	source, err := p.findSource(ctx)
	if err != nil {
		return err
	}
	m := mirror.New(h, source, sink, p.mirrorOptions())
	if p.repair {
		if _, err := m.Run(ctx, true); err != nil {
			return err
		}
	}
	directory, _ := sink.(*mirror.Directory) // nil if the mirror has no files
	for problem, err := range m.Audit(ctx, directory, mirror.AuditOptions{Quick: p.quick, Repair: p.repair, RemoveExtra: p.removeExtra, Name: p.name}) {
		if err == nil {
			err = p.printProblem(problem)
		}
		if err != nil {
			return err
		}
	}
	n := h.Ledger.Counts()
	p.counts.files, p.counts.bytes = p.counts.files+n.Files, p.counts.bytes+n.Bytes
	return nil
}

// printProblem prints and counts a problem.
func (p *program) printProblem(problem mirror.Problem) error {
	p.counts.total++
	p.counts.kinds[problem.Kind]++
	if problem.Repaired {
		p.counts.repaired++
	}
	problem.Set = p.set
	p.report.Clear()
	return json.NewEncoder(p.stdout).Encode(problem)
}

// loadSettings replaces the settings of p by those stored in the mirror.
func (p *program) loadSettings(h *home.Home) error {
	settings, ok, err := h.Settings()
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", p.dir, home.ErrNoMirror)
	}
	if err == nil && p.set != "" { // a mirror of another set, or of a part of this one, does not count
		err = h.SaveSettings(p.settings)
	}
	if p.settings = settings; p.set == "" {
		p.makeClients()
	}
	return err
}

// openAuditHome opens the home of a mirror. Without -repair, the home may be in use by another
// rsmirror.
func (p *program) openAuditHome(ctx context.Context) (*home.Home, error) {
	if !p.repair {
		return home.OpenOrCopy(ctx, p.dir, p.retry)
	}
	h, err := home.Reopen(p.dir)
	if errors.Is(err, home.ErrInUse) {
		err = fmt.Errorf("%w; stop the other rsmirror before a repair", err)
	}
	return h, err
}
