package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
)

// newSetPause is the time in which a running rsmirror notices a new set.
const newSetPause = 5 * time.Second

// auditSets audits the mirrors of all sets of a hub, one after another. An error of one does not
// prevent the others; it is printed, and auditSets then returns a *setsError. running is whether
// another rsmirror maintains the mirrors.
func (p *program) auditSets(ctx context.Context, running bool) error {
	dirs, err := mirrorsIn(p.dir) // before the sets, so that the mirror of a new set is not extra
	if err != nil {
		return err
	}
	sets, err := p.listSets(ctx)
	if err != nil {
		return err
	}
	code := exitOK
	audit := func(s *program) error {
		err := s.auditHome(ctx)
		if ctx.Err() != nil {
			return err
		}
		code = max(code, s.reportError(ctx, err))
		return nil
	}
	var missing []*program
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		s := p.forSet(set)
		name := filepath.Base(s.dir)
		if !dirs[name] {
			missing = append(missing, s)
			continue
		}
		delete(dirs, name)
		if err := audit(s); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		set, ok := filename.Name(name)
		if !ok {
			set = name
		}
		if err := p.forSet(set).printProblem(mirror.Problem{Kind: mirror.Extra, In: mirror.InSets, Path: name, Reason: "the hub has no such set, or does not show it"}); err != nil {
			return err
		}
	}
	if len(missing) > 0 && running {
		if err := backoff.Sleep(ctx, newSetPause); err != nil {
			return err
		}
	}
	for _, s := range missing {
		if err := p.auditMissing(s, audit); err != nil {
			return err
		}
	}
	if code != exitOK {
		return &setsError{code}
	}
	return nil
}

// auditMissing audits the mirror of a set that had none at the start. With -repair it creates the
// mirror.
func (p *program) auditMissing(s *program, audit func(*program) error) error {
	if !p.repair {
		dirs, err := mirrorsIn(p.dir)
		if err != nil {
			return err
		}
		if dirs[filepath.Base(s.dir)] {
			return audit(s)
		}
		return s.printProblem(mirror.Problem{Kind: mirror.Missing, In: mirror.InSets})
	}
	open, err := p.openSet(s.set)
	if err == nil {
		err = open.Home.Close()
	}
	if err != nil {
		return err
	}
	if err := s.printProblem(mirror.Problem{Kind: mirror.Missing, In: mirror.InSets, Repaired: true}); err != nil {
		return err
	}
	return audit(s)
}

// mirrorsIn returns the names of the directories in dir that have a mirror.
func mirrorsIn(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, e := range entries {
		if home.Exists(filepath.Join(dir, e.Name())) {
			names[e.Name()] = true
		}
	}
	return names, nil
}
