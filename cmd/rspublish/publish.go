package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/resourcesync"
)

// keyLife is how long the hub remembers a key (changelog.KeyAge).
const keyLife = 24 * time.Hour

// A publication is one run over all inputs.
type publication struct {
	program *program
	cfg     *config
	bar     *report
	client  *client.Client
	jobs    []*job

	total   int    // how many changes are published, or checked
	already int    // how many of these were published before this run
	cursor  string // of the last published change

	newest feed.Cursor // the newest that the hub gave for any of the inputs
}

// A job is an input and how far its publishing came.
type job struct {
	in    *input
	st    *state
	shelf shelf
	fresh bool // no earlier run has begun it
	begun bool // the hub may have some of its changes; the state of a file is on disk
	blind bool // an earlier version may have sent a batch that is not noted, and the file has changed since
}

func (r *publication) close() {
	for _, j := range r.jobs {
		j.in.close()
	}
}

// run checks all inputs that can be read twice. Then it publishes the inputs, one after
// the other. Their states stay, so the same command, run again, publishes no change
// twice.
func (r *publication) run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.check(ctx); err != nil || r.cfg.check {
		return err
	}
	for _, j := range r.jobs {
		if err := r.prepare(j); err != nil {
			return fmt.Errorf("%s: %w", j.in.name, err)
		}
	}
	var err error
	if r.client, err = r.program.newClient(r.cfg, r.bar.Note); err != nil {
		return err
	}
	for _, j := range r.jobs {
		if err := r.publish(ctx, j); err != nil {
			if j.begun && !j.blind {
				r.save(j.st)
			}
			return err
		}
	}
	return nil
}

func (r *publication) open(ctx context.Context) error {
	if len(r.cfg.changes) > 0 {
		r.jobs = append(r.jobs, &job{in: &input{name: "the command line", given: r.cfg.changes, total: -1}})
	}
	for _, name := range r.cfg.files {
		if isState(name) {
			r.bar.Note("%s: left out, because it is a state file of rspublish", name)
			continue
		}
		in, err := openInput(ctx, name, r.program.stdin)
		if err != nil {
			return err
		}
		r.jobs = append(r.jobs, &job{in: in})
	}
	switch {
	case len(r.jobs) == 0:
		return fail(exitUsage, "nothing to publish: all files are state files of rspublish")
	case r.cfg.key != "" && len(r.jobs) > 1:
		return fail(exitUsage, "-key works with one input only, but there are %d", len(r.jobs))
	}
	return nil
}

func (r *publication) check(ctx context.Context) error {
	for _, j := range r.jobs {
		if j.in.stream != nil && !r.cfg.check {
			continue // it can be read only once
		}
		r.bar.start(j.in.name, true, 0, -1)
		if err := j.in.check(ctx, r.bar.update); err != nil {
			return err
		}
		if err := r.filled(j, j.in.total); err != nil {
			return err
		}
		if r.cfg.check {
			r.bar.Note("%s: %s, all valid", j.in.name, changes(j.in.total))
			r.total += j.in.total
		}
	}
	return nil
}

// filled returns an error if an input has no change, unless that is allowed.
func (r *publication) filled(j *job, total int) error {
	if total > 0 || r.cfg.allowEmpty {
		return nil
	}
	return advise(exitInput, "%s: the input has no changes; to accept that, use -allow-empty", j.in.name)
}

// prepare finds out whether an earlier run has begun the job, and whether this run may go
// on with it.
func (r *publication) prepare(j *job) error {
	j.st, j.fresh = newState(j.in, r.cfg), true
	if j.in.file == nil {
		return nil
	}
	j.shelf = newShelf(j.in.name, r.program.cacheDir)
	if r.cfg.restart {
		return j.shelf.clear()
	}
	old, err := j.shelf.load()
	if err != nil || old == nil {
		return err
	}
	if old.Done {
		if ok, err := r.counts(j, old); !ok || err != nil {
			return errors.Join(err, j.shelf.clear())
		}
	} else if err := r.mayGoOn(j, old); err != nil {
		return err
	}
	if old.Hub != r.cfg.hub || old.Set != r.cfg.set {
		r.bar.Note("rspublish: warning: an earlier run began to publish %s to %s at %s, which may have the first %s; this run publishes it to %s at %s",
			j.in.name, old.Set, old.Hub, changes(old.sent()), r.cfg.set, r.cfg.hub)
	}
	j.blind = old.Version == 1 && old.SHA256 != j.in.sum
	old.Version, old.Hub, old.Set, old.SHA256, old.Size = stateVersion, r.cfg.hub, r.cfg.set, j.in.sum, j.in.size
	j.st, j.fresh, j.begun = old, false, true
	return nil
}

// mayGoOn returns nil if this run may go on with a publishing that is not finished.
func (r *publication) mayGoOn(j *job, old *state) error {
	other, changed := old.Hub != r.cfg.hub || old.Set != r.cfg.set, old.SHA256 != j.in.sum
	switch {
	case other && old.Changes > 0: // until then no hub is known to have any of it
		return fmt.Errorf("an earlier run that publishes it to %s at %s is not finished (%s): finish that first, or begin again with -restart", old.Set, old.Hub, old.path)
	case r.cfg.key != "" && r.cfg.key != old.Key:
		return fmt.Errorf("an earlier run with the key %s is not finished (%s): finish that first, or begin again with -restart", old.Key, old.path)
	case changed && !r.cfg.goOn:
		return fmt.Errorf("it has changed since %s of its changes were published: -continue skips as many and publishes the rest, -restart publishes all of it", progress.Group(old.Changes))
	case j.in.total < old.sent():
		return fmt.Errorf("it has %s now, fewer than the %s that were sent: -restart publishes all of it", changes(j.in.total), progress.Group(old.sent()))
	}
	if age := r.program.now().Sub(old.Updated); age > keyLife {
		r.bar.Note("rspublish: warning: the publishing of %s began %s ago, but the hub recognises a repeated batch for a day only; one batch may be published twice",
			j.in.name, age.Round(time.Hour))
	}
	return nil
}

// counts reports whether this run need not publish again what a finished one did: the
// file to the same set, or the beginning of the file if -continue is given. Otherwise
// this is another publishing, of the whole file.
func (r *publication) counts(j *job, old *state) (bool, error) {
	switch {
	case r.cfg.again || old.Hub != r.cfg.hub || old.Set != r.cfg.set:
		return false, nil
	case old.SHA256 == j.in.sum:
		return true, nil
	case !r.cfg.goOn || old.Size == 0 || old.Size >= j.in.size:
		return false, nil
	}
	before, err := j.in.sumOf(old.Size)
	if err != nil || before != old.SHA256 {
		return false, err
	}
	old.Done = false
	return true, nil
}

func (r *publication) publish(ctx context.Context, j *job) error {
	st := j.st
	if st.Cursor != "" {
		if err := r.look(ctx, j); err != nil {
			return err
		}
	}
	r.total += st.Changes
	r.already += st.Changes
	if st.Done {
		r.bar.Note("%s: already published on %s, and not changed since; to publish it again, use -again", j.in.name, st.Updated.Format(time.DateTime))
		return nil
	}
	if st.Changes > 0 {
		r.bar.Note("%s: continuing after %s", j.in.name, changes(st.Changes))
	}
	r.bar.start(j.in.name, false, st.Changes, j.in.total)
	if st.Sending != "" {
		if err := r.send(ctx, j, st.sending()); err != nil {
			return err
		}
	}

	sum := newSum()
	b := &batch{first: st.Changes + 1}
	for e, err := range j.in.read(ctx, sum) {
		if err != nil {
			return err
		}
		if e.number < b.first {
			continue
		}
		if !b.add(e) {
			if err := r.send(ctx, j, b); err != nil {
				return err
			}
			b.reset(e.number)
			b.add(e)
		}
	}
	if len(b.lines) > 0 {
		if err := r.send(ctx, j, b); err != nil {
			return err
		}
	}
	if err := r.filled(j, st.Changes); err != nil {
		return err
	}
	if j.in.file != nil && sum.text() != j.in.sum {
		return fmt.Errorf("%s: the file was changed while it was being published", j.in.name)
	}
	r.bar.finish()
	st.Done = true
	if j.begun {
		r.save(st)
	}
	return nil
}

// look asks the hub whether it still holds what an earlier run published. Otherwise a
// part of the file would be in the set, and the run would call that a success.
func (r *publication) look(ctx context.Context, j *job) error {
	at, err := feed.ParseCursor(j.st.Cursor)
	if err != nil {
		return fmt.Errorf("%s: %s says: %w", j.in.name, j.st.path, err)
	}
	r.cursor, r.newest = j.st.Cursor, later(r.newest, at)
	held, err := r.client.Holds(ctx, r.cfg.set, at)
	_, refused := errors.AsType[*client.Refused](err)
	switch {
	case refused || errors.Is(err, client.ErrNoHub): // the token need not allow to read; receipts are compared too
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", j.in.name, unsent(err, r.cfg))
	case !held:
		return r.lost(j, at)
	}
	return nil
}

// lost is the error for a hub that does not hold any more what it accepted before.
func (r *publication) lost(j *job, at feed.Cursor) error {
	return advise(exitRefused, "%s: the hub accepted %s of it up to cursor %v, but no longer has them: the set was deleted, or the hub lost its newest changes. To publish the file from its beginning, use -restart",
		j.in.name, changes(j.st.Changes), at)
}

func later(a, b feed.Cursor) feed.Cursor {
	if b.Micros > a.Micros {
		return b
	}
	return a
}

// begin notes a batch before the hub first sees it. So even after a crash the next run
// can send it again as it was, and with its key.
func (r *publication) begin(j *job, b *batch) error {
	j.begun = true
	st := j.st
	if j.in.file == nil || j.blind || st.Sending == string(b.body) {
		return nil
	}
	st.Sending, st.Updated = string(b.body), r.program.now().UTC()
	if st.path == "" {
		return j.shelf.put(st)
	}
	return st.save()
}

// save saves how far a job came. If that fails, the state of before stays on disk, which
// does no harm: the next run sends a batch again, and the hub recognises it.
func (r *publication) save(st *state) {
	if err := st.save(); err != nil {
		r.bar.Note("rspublish: warning: %v", err)
	}
}

func (r *publication) send(ctx context.Context, j *job, b *batch) error {
	st := j.st
	again := st.Sending != "" // an earlier run may have sent it
	if err := r.begin(j, b); err != nil {
		return fmt.Errorf("%s: %w", j.in.name, err)
	}
	got, err := r.client.PublishLines(ctx, r.cfg.set, fmt.Sprintf("%s/%d", st.Key, st.Batches+1), b.body, len(b.lines))
	if err != nil {
		return r.failed(j, b, again, err)
	}
	j.blind = false
	if err := r.follows(j, got, again); err != nil {
		return err
	}
	st.Changes += got.Count
	st.Batches++
	st.Cursor, st.Sending, st.Updated = got.Cursor, "", r.program.now().UTC()
	r.total += got.Count
	r.cursor = got.Cursor
	if got.Replayed {
		r.already += got.Count
	}
	r.bar.update(st.Changes)
	return nil
}

// follows checks that a batch came behind the changes that the hub accepted before. If
// the set was deleted in between, the batch is in a new log, which begins at position 1.
func (r *publication) follows(j *job, got *feed.Receipt, again bool) error {
	first, err := feed.ParseCursor(got.First)
	last, lerr := feed.ParseCursor(got.Cursor)
	if err := errors.Join(err, lerr); err != nil {
		return fail(exitRefused, "%s: the hub's receipt: %w", j.in.name, err)
	}
	before := r.newest
	if again || got.Replayed { // it may have come before another input's changes
		before = feed.Cursor{}
		if j.st.Cursor != "" {
			before, _ = feed.ParseCursor(j.st.Cursor) // look has parsed it
		}
	}
	if first.Position <= before.Position || first.Micros <= before.Micros {
		return r.lost(j, before)
	}
	r.newest = later(r.newest, last)
	return nil
}

// failed returns the error for a batch that was not published. If the hub surely does
// not have the batch, failed forgets that it was sent, and a changed file is cut anew.
func (r *publication) failed(j *job, b *batch, again bool, err error) error {
	refused, _ := errors.AsType[*client.Refused](err)
	unavailable, _ := errors.AsType[*client.Unavailable](err)
	bad := refused != nil && (refused.Status == http.StatusBadRequest || refused.Status == http.StatusRequestEntityTooLarge)
	never := refused != nil && !refused.Doubt || unavailable != nil && unavailable.Unsent
	reused := errors.Is(err, feed.ErrKeyReused)
	err = unsent(err, r.cfg)
	if bad || never && !again { // a hub that refuses these bytes did not take them earlier
		j.st.Sending = ""
		if j.fresh && j.st.Changes == 0 {
			j.begun = false
			err = errors.Join(err, j.st.remove())
		}
	}
	if refused != nil {
		if located := b.locate(refused); located != nil {
			return fail(exitRefused, "%s: %w (the hub refused the request: %d)", j.in.name, located, refused.Status)
		}
	}
	switch {
	case reused && j.blind:
		return advise(exitRefused, "%s: an earlier version of rspublish sent a batch after the first %s, and did not record it: restore the old file, run the same command once without -continue, and then change the file again (or use -restart)",
			j.in.name, changes(j.st.Changes))
	case reused && r.cfg.key != "":
		return advise(exitRefused, "%s: %w: the key %s was used for another input, or this input has changed since; use another -key for another input", j.in.name, err, r.cfg.key)
	}
	return fmt.Errorf("%s: %w", j.in.name, err)
}

// howToGoOn returns what to tell the user after an error: what is published, and how to
// go on.
func (r *publication) howToGoOn(err error) []string {
	if f, ok := errors.AsType[*failure](err); r.cfg.check || ok && f.advised {
		return nil
	}
	var lines []string
	begun, files := false, false
	for _, j := range r.jobs {
		if !j.begun {
			continue
		}
		begun = true
		files = files || j.in.file != nil
		switch st := j.st; {
		case st.Done && j.in.file != nil:
		case st.Done:
			lines = append(lines, fmt.Sprintf("%s is published; to make sure that the same input is not published again, use -key %s", j.in.name, st.Key))
		case j.in.file != nil || j.in.given != nil:
			lines = append(lines, fmt.Sprintf("%s: published so far: %s of %s", j.in.name, progress.Group(st.Changes), changes(j.in.total)))
		default:
			lines = append(lines, fmt.Sprintf("%s: published so far: %s", j.in.name, changes(st.Changes)))
		}
		switch {
		case j.in.file != nil || j.st.Done:
		case j.in.given != nil:
			lines = append(lines, "to continue, run the same command again with -key "+j.st.Key)
		default:
			lines = append(lines, "to continue, give the same input again from its beginning, with -key "+j.st.Key)
		}
	}
	_, bad := errors.AsType[*resourcesync.Error](err)
	switch {
	case !begun:
		return []string{"nothing was sent"}
	case files && bad:
		lines = append(lines, "correct the file; then -continue publishes the rest, and -restart publishes all of it")
	case files && r.cfg.restart:
		lines = append(lines, "to continue, run the same command again, but without -restart")
	case files:
		lines = append(lines, "to continue, run the same command again")
	}
	return lines
}
