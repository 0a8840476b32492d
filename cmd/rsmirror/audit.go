package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
)

// runAudit audits a mirror and prints its problems. It returns errDifferences if some of them
// are not repaired.
func (p *program) runAudit(ctx context.Context) (err error) {
	h, err := p.openAuditHome(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := p.loadSettings(h); err != nil {
		return err
	}
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
	counts := map[mirror.ProblemKind]int{}
	repaired, total := 0, 0
	lines := json.NewEncoder(p.stdout)
	for problem, err := range m.Audit(ctx, directory, mirror.AuditOptions{Quick: p.quick, Repair: p.repair, RemoveExtra: p.removeExtra, Name: p.name}) {
		if err != nil {
			return err
		}
		total++
		counts[problem.Kind]++
		if problem.Repaired {
			repaired++
		}
		p.report.Clear()
		if err := lines.Encode(problem); err != nil {
			return err
		}
	}
	n := h.Ledger.Counts()
	p.report.Note("rsmirror: %d missing, %d stale, %d damaged, %d extra, %d unknown; %d repaired; the mirror has %d files, %s", counts[mirror.Missing],
		counts[mirror.Stale], counts[mirror.Damaged], counts[mirror.Extra], counts[mirror.Unknown], repaired, n.Files, formatBytes(n.Bytes))
	if total > repaired {
		return errDifferences
	}
	return nil
}

// loadSettings replaces the settings of p by those stored in the mirror.
func (p *program) loadSettings(h *home.Home) error {
	settings, ok, err := h.Settings()
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", p.dir, home.ErrNoMirror)
	}
	p.settings = settings
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
