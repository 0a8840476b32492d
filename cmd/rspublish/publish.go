package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A batch is one request. Where it is cut depends on the input alone, so that
// batch i of an input is always the same, and its key stands for it.
const (
	batchChanges = 1000
	batchBytes   = 4 << 20
)

// The hub knows a key again for so long.
const keyLife = 24 * time.Hour

// A publication is one run over all inputs.
type publication struct {
	program *program
	cfg     *config
	bar     *progress
	client  *client
	jobs    []*job
	warned  bool // that a state could not be saved

	total   int    // changes that are published, or checked
	already int    // of these, before this run
	cursor  string // of the last one
}

// A job is an input and how far it came.
type job struct {
	in    *input
	st    *state
	shelf shelf
	fresh bool // no run before this one has begun it
	begun bool // the hub may have something of it, and a file's state is on disk
}

func (r *publication) close() {
	for _, j := range r.jobs {
		j.in.close()
	}
}

// run checks everything that can be read twice, then publishes the inputs, one
// after the other. Only when all are published do their states go, so that the
// same command, run again, never publishes any of them twice.
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
	r.client = newClient(r.cfg, r.program.clock, r.bar.note)
	for _, j := range r.jobs {
		if err := r.publish(ctx, j); err != nil {
			return err
		}
	}
	for _, j := range r.jobs {
		if err := j.st.remove(); err != nil {
			return fmt.Errorf("everything is published, but: %w", err)
		}
	}
	return nil
}

func (r *publication) open(ctx context.Context) error {
	if len(r.cfg.changes) > 0 {
		r.jobs = append(r.jobs, &job{in: &input{name: "the command line", given: r.cfg.changes, total: -1}})
	}
	streams := len(r.jobs)
	for _, name := range r.cfg.files {
		in, err := openInput(ctx, name, r.program.stdin)
		if err != nil {
			return err
		}
		r.jobs = append(r.jobs, &job{in: in})
		if in.file == nil {
			streams++
		}
	}
	if r.cfg.key != "" && streams != 1 {
		return fail(exitUsage, "-key is for one input that has no state file: standard input, a pipe, or changes given as flags")
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
		if r.cfg.check {
			r.bar.note("%s: %s, all valid", j.in.name, changes(j.in.total))
			r.total += j.in.total
		}
	}
	return nil
}

// prepare finds out whether a run before began the job, and may go on.
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
	other, changed := old.Hub != r.cfg.hub || old.Set != r.cfg.set, old.SHA256 != j.in.sum
	switch {
	case old.Done && (other || changed):
		return j.shelf.clear() // that run has no use for its state any more
	case other:
		return fmt.Errorf("a run that publishes it to %s at %s is not finished (%s): finish that first, or forget it with -restart", old.Set, old.Hub, old.path)
	case changed && !r.cfg.goOn:
		return fmt.Errorf("it has changed since %s of its changes were published: -continue goes on after as many, -restart starts anew", group(old.Changes))
	case j.in.total < old.Changes:
		return fmt.Errorf("it has %s now, fewer than the %s that were published: -restart starts anew", changes(j.in.total), group(old.Changes))
	}
	if age := r.program.clock.now().Sub(old.Updated); age > keyLife && !old.Done {
		r.bar.note("rspublish: warning: %s was begun %s ago, and the hub knows a batch again for a day; if it took one without our knowing, that comes twice",
			j.in.name, age.Round(time.Hour))
	}
	old.SHA256 = j.in.sum
	j.st, j.fresh, j.begun = old, false, true
	return nil
}

func (r *publication) publish(ctx context.Context, j *job) error {
	st := j.st
	r.total += st.Changes
	r.already += st.Changes
	if st.Done {
		r.cursor = st.Cursor
		r.bar.note("%s: published already by a run that was not finished; -restart publishes it again", j.in.name)
		return nil
	}
	if st.Changes > 0 {
		r.cursor = st.Cursor
		r.bar.note("%s: going on after %s", j.in.name, changes(st.Changes))
	}
	r.bar.start(j.in.name, false, st.Changes, j.in.total)

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
	if j.in.file != nil && sum.text() != j.in.sum {
		return fmt.Errorf("%s: it was changed while it was being published", j.in.name)
	}
	r.bar.finish()
	st.Done = true
	r.save(st)
	return nil
}

// begin keeps the key before the hub first sees it, so that whatever happens,
// no batch is ever sent under another.
func (r *publication) begin(j *job) error {
	j.begun = true
	if j.in.file == nil {
		return nil
	}
	j.st.Updated = r.program.clock.now().UTC()
	return j.shelf.put(j.st)
}

// save keeps how far it came. The one of before does too, only later: the hub
// will be sent again what it has.
func (r *publication) save(st *state) {
	st.Updated = r.program.clock.now().UTC()
	if err := st.save(); err != nil && !r.warned {
		r.warned = true
		r.bar.note("rspublish: warning: %v", err)
	}
}

func (r *publication) send(ctx context.Context, j *job, b *batch) error {
	if !j.begun {
		if err := r.begin(j); err != nil {
			return fmt.Errorf("%s: %w", j.in.name, err)
		}
	}
	st := j.st
	got, err := r.client.send(ctx, fmt.Sprintf("%s/%d", st.Key, st.Batches+1), b.body, len(b.lines))
	if err != nil {
		refused, ok := errors.AsType[*refusal](err)
		if ok && j.fresh && st.Changes == 0 && !refused.doubt {
			j.begun = false // the hub has nothing of it for sure
			err = errors.Join(err, st.remove())
		}
		if ok {
			if place := b.place(refused); place != nil {
				return fail(exitRefused, "%s: %w (the hub refused it: %d)", j.in.name, place, refused.Status)
			}
		}
		return fmt.Errorf("%s: %w", j.in.name, err)
	}
	st.Changes += got.Count
	st.Batches++
	st.Cursor = got.Cursor
	r.save(st)
	r.total += got.Count
	r.cursor = got.Cursor
	if got.Replayed {
		r.already += got.Count
	}
	r.bar.update(st.Changes)
	return nil
}

// A batch is the body of a request and where its changes come from.
type batch struct {
	first int // the first change's number in the input
	body  []byte
	lines []int // of each change in the input; 0 where it is not known
}

func (b *batch) reset(first int) {
	b.first, b.body, b.lines = first, b.body[:0], b.lines[:0]
}

// add takes e in, or says that the batch is full.
func (b *batch) add(e entry) bool {
	if len(b.lines) == batchChanges {
		return false
	}
	before := len(b.body)
	b.body = append(b.body, '{')
	b.body = resourcesync.AppendJSONMembers(b.body, e.change)
	b.body = append(b.body, '}', '\n')
	if len(b.body) > batchBytes && len(b.lines) > 0 {
		b.body = b.body[:before]
		return false
	}
	b.lines = append(b.lines, e.line)
	return true
}

// place translates a place in the batch into one in the input.
func (b *batch) place(r *refusal) error {
	i := r.Entry
	if i == 0 {
		i = r.Line // one change a line
	}
	if i < 1 || i > len(b.lines) {
		return nil
	}
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: b.first + i - 1, Line: b.lines[i-1], Loc: clean(r.Loc), Rule: r.rule()}
}

// howToGoOn says after an error what is published, and what to do.
func (r *publication) howToGoOn(err error) []string {
	if r.cfg.check {
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
			lines = append(lines, fmt.Sprintf("%s is published; so that it is not published again, use -key %s", j.in.name, st.Key))
		case j.in.file != nil || j.in.given != nil:
			lines = append(lines, fmt.Sprintf("%s: published so far: %s of %s", j.in.name, group(st.Changes), changes(j.in.total)))
		default:
			lines = append(lines, fmt.Sprintf("%s: published so far: %s", j.in.name, changes(st.Changes)))
		}
		switch {
		case j.in.file != nil || j.st.Done:
		case j.in.given != nil:
			lines = append(lines, "to go on, run the same command again with -key "+j.st.Key)
		default:
			lines = append(lines, "to go on, give the same input again from its beginning, with -key "+j.st.Key)
		}
	}
	_, bad := errors.AsType[*resourcesync.Error](err)
	switch {
	case !begun:
		return []string{"nothing was sent"}
	case files && bad:
		lines = append(lines, "mend the file, then -continue goes on after them, or -restart starts anew")
	case files && r.cfg.restart:
		lines = append(lines, "run the same command again to go on, but without -restart")
	case files:
		lines = append(lines, "run the same command again to go on")
	}
	return lines
}
