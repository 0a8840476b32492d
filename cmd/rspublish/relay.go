package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/filelock"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/source/harvest"
	"github.com/rshub/rshub/source/harvest/oaipmh"
	"github.com/rshub/rshub/source/reconcile"
	"github.com/rshub/rshub/source/relay"
)

// shown is how many notes, and how many gaps, of one look are printed.
const shown = 20

// runRelay runs the command relay.
func (p *program) runRelay(ctx context.Context, args []string) int {
	cfg, err := parseRelay(args, p.env)
	if err != nil {
		return p.unparsed(err, cfg.flags, relayHelp)
	}
	r := &relaying{program: p, cfg: cfg, bar: p.newReport(&cfg.config)}
	err = r.run(ctx)
	r.bar.Clear()
	return p.ended(ctx, err, !cfg.once && r.looked)
}

// A relaying is one run of relay.
type relaying struct {
	*program
	cfg    *relayConfig
	bar    *report
	getter *harvest.Getter
	file   relayFile
	looked bool // a look has succeeded in this run

	notes, gaps int // of the current look
}

// A relayFile is the file that keeps a relay.State between two runs.
type relayFile struct {
	Hub string `json:"hub"`
	Set string `json:"set"`
	URL string `json:"url"`
	OAI string `json:"oai,omitempty"` // the flags for OAI-PMH
	relay.State

	path string
}

func (r *relaying) run(ctx context.Context) error {
	set, err := r.newSet(&r.cfg.config, "", r.bar.Note)
	if err != nil {
		return err
	}
	r.getter = &harvest.Getter{
		Client: r.cfg.server(), UserAgent: agent(), Robots: true,
		Note: func(err error, wait time.Duration) {
			r.bar.Note("rspublish: %v; asking again in %s", err, wait.Round(time.Second))
		},
	}
	release, err := r.open()
	if err != nil {
		return err
	}
	defer release()
	if r.file.State.Version == 0 {
		if err := r.patiently(ctx, func() error { return r.find(ctx) }); err != nil {
			return err
		}
		r.bar.Note("rspublish: the source has %s", &r.file.State.Source)
	}
	var again func(context.Context) (relay.Source, error)
	if !r.cfg.isOAI() {
		again = func(ctx context.Context) (relay.Source, error) { return relay.Find(ctx, r.getter, r.cfg.what) }
	}
	looks := relay.New(set, r.getter, &r.file.State, relay.Options{
		Find: again,
		Full: r.cfg.full, MaxDelete: r.cfg.maxDelete, Now: r.now,
		Note: r.note, Gap: r.gap, Save: r.save,
	})
	for {
		next := r.now().Add(backoff.Jitter(r.cfg.every))
		err := r.look(ctx, looks)
		if r.cfg.once || ctx.Err() != nil {
			return err
		}
		if err != nil {
			r.bar.Note("rspublish: %v; looking again at %s", err, next.Format(time.TimeOnly))
		}
		if err := r.sleep(ctx, next.Sub(r.now())); err != nil {
			return err
		}
	}
}

// patiently calls try until it succeeds; with -once it calls try only once.
func (r *relaying) patiently(ctx context.Context, try func() error) error {
	for {
		err := try()
		if f, ok := errors.AsType[*failure](err); err == nil || r.cfg.once || ctx.Err() != nil || ok && f.code == exitUsage {
			return err
		}
		r.bar.Note("rspublish: %v; trying again in %s", err, r.cfg.every)
		if err := r.sleep(ctx, r.cfg.every); err != nil {
			return err
		}
	}
}

// find finds out what the source is.
func (r *relaying) find(ctx context.Context) error {
	if r.cfg.isOAI() {
		id, err := relay.FindRepository(ctx, r.getter, r.cfg.what)
		if err != nil {
			return fail(exitInput, "%w", err)
		}
		r.bar.Note("rspublish: the repository is %q; it says of deleted records: %s", id.Name, id.Deleted)
		r.file.State.Source = relay.Source{Repository: &relay.Repository{URL: r.cfg.what, Prefix: r.cfg.prefix, Set: r.cfg.setSpec, Loc: oaipmh.Template(r.cfg.loc)}}
		return nil
	}
	var err error
	if r.file.State.Source, err = relay.Find(ctx, r.getter, r.cfg.what); err != nil {
		return err
	}
	return nil
}

// look looks once, and prints the line about it.
func (r *relaying) look(ctx context.Context, looks *relay.Relay) error {
	r.notes, r.gaps = 0, 0
	res, err := looks.Look(ctx)
	r.bar.Clear()
	if hidden := max(r.notes-shown, 0) + max(r.gaps-shown, 0); hidden > 0 {
		r.bar.Note("rspublish: and %d more like these", hidden)
	}
	if _, refused := errors.AsType[*reconcile.TooMany](err); err == nil || refused && res.Changes() > 0 {
		r.summarizeLook(&res)
	}
	if err != nil {
		return r.cfg.explained(err)
	}
	r.looked = true
	if res.Gaps > 0 {
		return gaps(res.Gaps)
	}
	return nil
}

func (r *relaying) note(text string) {
	if r.notes++; r.notes <= shown {
		r.bar.Note("rspublish: %s", text)
	}
}

func (r *relaying) gap(err error) {
	if r.gaps++; r.gaps <= shown {
		r.bar.Clear()
		fmt.Fprintf(r.stderr, "rspublish: %v\n", err)
	}
}

// summarizeLook prints the one line about a look that scripts read.
func (r *relaying) summarizeLook(res *relay.Result) {
	switch {
	case r.cfg.json:
		cursor := ""
		if !res.Cursor.IsZero() {
			cursor = res.Cursor.String()
		}
		r.printJSON(struct {
			Set      string    `json:"set"`
			How      relay.How `json:"how"`
			Created  int       `json:"created"`
			Updated  int       `json:"updated"`
			Deleted  int       `json:"deleted"`
			Listed   uint64    `json:"listed,omitempty"`
			Unknown  int       `json:"unknown"`
			Gaps     int       `json:"gaps"`
			Kept     int       `json:"kept"`
			Complete bool      `json:"complete,omitempty"`
			Cursor   string    `json:"cursor,omitempty"`
		}{r.cfg.set, res.How, res.Created, res.Updated, res.Deleted, res.Listed, res.Unknown, res.Gaps, res.Kept, res.Complete, cursor})
	case r.cfg.quiet:
	case res.How == relay.Unchanged:
		fmt.Fprintf(r.stdout, "unchanged: %s\n", r.cfg.set)
	default:
		fmt.Fprintf(r.stdout, "relayed to %s: %d created, %d updated, %d deleted", r.cfg.set, res.Created, res.Updated, res.Deleted)
		if res.How == relay.Compared {
			fmt.Fprintf(r.stdout, "; compared %s", progress.Count(res.Listed, "resource"))
		}
		if res.Unknown > 0 {
			fmt.Fprintf(r.stdout, ", of which %d cannot be compared", res.Unknown)
		}
		if res.Kept > 0 {
			fmt.Fprintf(r.stdout, "; %d are missing at the source and not deleted yet", res.Kept)
		}
		fmt.Fprintln(r.stdout)
	}
}

// open opens and locks the file of the state, and reads it if it exists.
func (r *relaying) open() (release func(), err error) {
	want := relayFile{Hub: r.cfg.hub, Set: r.cfg.set, URL: r.cfg.what}
	if r.cfg.isOAI() {
		b, _ := json.Marshal([]string{r.cfg.prefix, r.cfg.setSpec, r.cfg.loc}) // strings only
		want.OAI = string(b)
	}
	if want.path, err = r.statePath(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(want.path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the state: %w; -state names another", err)
	}
	f, err := os.OpenFile(want.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state: %w", err)
	}
	release = func() { _ = f.Close() }
	if !filelock.Lock(f) {
		release()
		return nil, fmt.Errorf("another rspublish relay uses the state %s", want.path)
	}
	b, err := os.ReadFile(want.path)
	if errors.Is(err, fs.ErrNotExist) {
		r.file = want
		return release, nil
	}
	if err == nil {
		r.file.path = want.path
		if err = json.Unmarshal(b, &r.file); err == nil && r.file.State.Version != relay.StateVersion {
			err = fmt.Errorf("it is of version %d", r.file.State.Version)
		}
		if err != nil {
			err = fmt.Errorf("%s is not a state that this rspublish can read (%w): remove it, and everything is compared anew", want.path, err)
		}
	}
	if got := &r.file; err == nil && (got.Hub != want.Hub || got.Set != want.Set || got.URL != want.URL || got.OAI != want.OAI) {
		err = fail(exitUsage, "%s is the state of another relay (to the set %s of %s): name another file with -state, or remove it", want.path, got.Set, got.Hub)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// statePath returns the path of the state.
func (r *relaying) statePath() (string, error) {
	if r.cfg.state != "" {
		return r.cfg.state, nil
	}
	cache, err := r.cacheDir()
	if err != nil {
		return "", fail(exitUsage, "there is no place to keep the state (%w): name a file with -state", err)
	}
	sum := sha256.Sum256([]byte(r.cfg.hub + "\n" + r.cfg.set + "\n" + r.cfg.what))
	return filepath.Join(cache, "rspublish", "relay-"+hex.EncodeToString(sum[:16])+".json"), nil
}

// save stores the state.
func (r *relaying) save(st *relay.State) error {
	b, err := json.Marshal(&r.file) // st is a part of it
	if err != nil {
		return err
	}
	return replace(r.file.path, append(b, '\n'))
}
