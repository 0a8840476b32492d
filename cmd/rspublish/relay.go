package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
)

// maxPrinted is the maximum number of notes, and of gaps, that are printed per poll.
const maxPrinted = 20

// runRelay runs rspublish relay and returns its exit code.
func (p *program) runRelay(ctx context.Context, args []string) int {
	cfg, err := parseRelay(args, p.env)
	if err != nil {
		return p.reportParseError(err, cfg.flags, relayHelp)
	}
	r := &relayRun{program: p, cfg: cfg, bar: p.newProgressReport(&cfg.config)}
	err = r.run(ctx)
	r.bar.Clear()
	return p.finish(ctx, err, !cfg.once && r.polled)
}

// A relayRun is one run of rspublish relay.
type relayRun struct {
	*program
	cfg    *relayConfig
	bar    *report
	file   relayFile
	polled bool // a poll has succeeded in this run

	notes, gaps int // numbers of notes and gaps in the current poll
}

// A relayFile is the content of the state file, which has the relay.State between two runs.
type relayFile struct {
	Hub string `json:"hub"`
	Set string `json:"set"`
	URL string `json:"url"`
	relay.State

	path string
}

// run polls the source once, or until ctx is canceled.
func (r *relayRun) run(ctx context.Context) error {
	set, err := r.newSet(&r.cfg.config, "", r.bar.Note)
	if err != nil {
		return err
	}
	release, err := r.openState()
	if err != nil {
		return err
	}
	defer release()
	getter := r.newGetter(&r.cfg.config, r.bar.Note)
	poller := relay.New(set, getter, &r.file.State, relay.Options{
		Find:         func(ctx context.Context) (relay.Source, error) { return r.findSource(ctx, getter) },
		CompareEvery: r.cfg.full, MaxDelete: r.cfg.maxDelete, Now: r.now,
		Note: r.printNote, Gap: r.printGap,
		Save: func(*relay.State) error { return storeJSON(r.file.path, &r.file) },
	})
	for {
		next := r.now().Add(backoff.Jitter(r.cfg.every))
		err := r.poll(ctx, poller)
		if r.cfg.once || ctx.Err() != nil {
			return err
		}
		if busy, ok := errors.AsType[*harvest.Busy](err); ok {
			if at := r.now().Add(busy.After); at.After(next) {
				next = at
			}
		}
		if err != nil {
			r.bar.Note("rspublish: %v; next poll at %s", err, next.Format(time.TimeOnly))
		}
		if err := r.sleep(ctx, next.Sub(r.now())); err != nil {
			return err
		}
	}
}

// findSource discovers the documents of the source, or its repository.
func (r *relayRun) findSource(ctx context.Context, getter *harvest.Getter) (s relay.Source, err error) {
	if r.cfg.isOAI() {
		var id *oaipmh.Identity
		if id, err = relay.FindRepository(ctx, getter, r.cfg.source); err == nil {
			r.bar.Note("rspublish: repository is %q; its policy for deleted records is %q", id.Name, id.Deleted)
			repository := r.cfg.repository
			repository.URL = r.cfg.source
			s.Repository = &repository
		}
	} else {
		s, err = relay.Find(ctx, getter, r.cfg.source)
	}
	if err == nil {
		r.bar.Note("rspublish: source has %s", &s)
	}
	return s, err
}

// poll polls the source once, and prints the summary.
func (r *relayRun) poll(ctx context.Context, poller *relay.Relay) error {
	r.notes, r.gaps = 0, 0
	res, err := poller.Poll(ctx)
	r.bar.Clear()
	if hidden := max(r.notes-maxPrinted, 0) + max(r.gaps-maxPrinted, 0); hidden > 0 {
		r.bar.Note("rspublish: and %d more like these", hidden)
	}
	if _, refused := errors.AsType[*reconcile.TooManyDeletions](err); err == nil || refused && res.Changes() > 0 {
		r.summarize(&res)
	}
	if err != nil {
		return r.cfg.explainError(err)
	}
	r.polled = true
	if res.Gaps > 0 {
		return gapsError(res.Gaps)
	}
	return nil
}

// printNote prints a note, unless maxPrinted were printed in this poll.
func (r *relayRun) printNote(text string) {
	if r.notes++; r.notes <= maxPrinted {
		r.bar.Note("rspublish: %s", text)
	}
}

// printGap prints a gap, unless maxPrinted were printed in this poll.
func (r *relayRun) printGap(err error) {
	if r.gaps++; r.gaps <= maxPrinted {
		r.bar.Clear()
		fmt.Fprintf(r.stderr, "rspublish: %v\n", err)
	}
}

// openState locks the state file, and reads it if it exists.
func (r *relayRun) openState() (release func(), err error) {
	want := relayFile{Hub: r.cfg.hub, Set: r.cfg.set, URL: r.cfg.source}
	if want.path, err = r.statePath(r.cfg.state, "relay", want.Hub, want.Set, want.URL); err != nil {
		return nil, failf(exitUsage, "no directory for the state (%w); use -state FILE", err)
	}
	if release, err = lockState(want.path + ".lock"); err != nil {
		return nil, err
	}
	if err = r.readState(&want); err != nil {
		release()
	}
	return release, err
}

// readState reads the state file into r.file. It returns an error if the file has the state of
// a relay other than want.
func (r *relayRun) readState(want *relayFile) error {
	b, err := os.ReadFile(want.path)
	if errors.Is(err, fs.ErrNotExist) {
		r.file = *want
		return nil
	}
	got := &r.file
	if err == nil {
		err = json.Unmarshal(b, got)
	}
	if err == nil && got.State.Version != relay.StateVersion {
		err = fmt.Errorf("unsupported version %d", got.State.Version)
	}
	if err != nil {
		return fmt.Errorf("read state %s: %w; remove the file to compare everything from scratch", want.path, err)
	}
	var repository relay.Repository
	if found := got.Source.Repository; found != nil {
		repository = *found
		repository.URL = ""
	}
	other := repository != r.cfg.repository || r.cfg.oai && got.Source.Repository == nil
	if other || got.Hub != want.Hub || got.Set != want.Set || got.URL != want.URL {
		return failf(exitUsage, "%s is the state of another relay (to set %s of %s); use another file for -state, or remove it", want.path, got.Set, got.Hub)
	}
	got.path = want.path
	return nil
}
