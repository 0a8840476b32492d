package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/progress"
	"github.com/rshub/rshub/resourcesync"
)

// A publication publishes the inputs of a run, one after the other.
type publication struct {
	program *program
	cfg     *config
	bar     *report
	client  *client.Client
	jobs    []*job

	total   int         // number of published or checked changes
	already int         // number of these that were published before this run
	newest  feed.Cursor // newest cursor that this run published
	cursor  string      // cursor of the last published change
}

// A job is an input and its progress.
type job struct {
	in      *input
	name    string // name in the keys of its batches; empty if the keys depend on the content
	after   string // cursor of the previous batch; empty for the first one
	started bool   // the hub may have some of its changes
	done    bool
	batches int // number of accepted batches
	changes int // number of accepted changes
}

// newJob returns the job of an input. A file is recognized by its content, so it is published
// only once a day. Other inputs are always new, unless the user names them with -key.
func newJob(in *input, cfg *config) *job {
	j := &job{in: in, name: cfg.key}
	if j.name == "" && (in.file == nil || cfg.again) {
		j.name = rand.Text()
	}
	return j
}

// key returns the idempotency key of the next batch. It depends on the cursor of the previous
// batch, because keys expire one by one after a day, the oldest first. If a batch is appended
// again, all later batches have new keys, so the hub never replays an old receipt for a batch that
// follows one that it appended again.
//
// Without a name, the key also depends on the content, and the batch before the first one is the
// last one of the previous input: the same files in the same order have the same keys.
func (j *job) key(b *batch) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d %s\n", j.name, j.batches+1, j.after)
	if j.name == "" {
		h.Write(b.body)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (r *publication) close() {
	for _, j := range r.jobs {
		j.in.close()
	}
}

// run validates all inputs that can be read twice, and then publishes the inputs in order.
func (r *publication) run(ctx context.Context) error {
	if err := r.openInputs(ctx); err != nil {
		return err
	}
	if err := r.checkInputs(ctx); err != nil || r.cfg.check {
		return err
	}
	var err error
	if r.client, err = r.program.newClient(r.cfg, r.bar.Note); err != nil {
		return err
	}
	for _, j := range r.jobs {
		if err := r.publishJob(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// openInputs opens the inputs and creates their jobs.
func (r *publication) openInputs(ctx context.Context) error {
	if len(r.cfg.changes) > 0 {
		r.jobs = append(r.jobs, newJob(&input{name: "the command line", changes: r.cfg.changes, total: -1}, r.cfg))
	}
	for _, name := range r.cfg.files {
		in, err := openInput(ctx, name, r.program.stdin)
		if err != nil {
			return err
		}
		r.jobs = append(r.jobs, newJob(in, r.cfg))
	}
	if r.cfg.key != "" && len(r.jobs) > 1 {
		return failf(exitUsage, "-key requires a single input, got %d", len(r.jobs))
	}
	return nil
}

// checkInputs validates the inputs. It skips streams unless -check is set.
func (r *publication) checkInputs(ctx context.Context) error {
	for _, j := range r.jobs {
		if j.in.stream != nil && !r.cfg.check {
			continue // a stream can be read only once
		}
		r.bar.start(j.in.name, true, -1)
		if err := j.in.check(ctx, r.bar.update); err != nil {
			return err
		}
		if err := r.checkNotEmpty(j, j.in.total); err != nil {
			return err
		}
		if r.cfg.check {
			r.bar.Note("%s: %s, all valid", j.in.name, formatChanges(j.in.total))
			r.total += j.in.total
		}
	}
	return nil
}

// checkNotEmpty returns an error if total is zero, unless -allow-empty is set.
func (r *publication) checkNotEmpty(j *job, total int) error {
	if total > 0 || r.cfg.allowEmpty {
		return nil
	}
	return failWithAdvice(exitInput, "%s: input has no changes; use -allow-empty to accept it", j.in.name)
}

// publishJob sends the batches of a job in order.
func (r *publication) publishJob(ctx context.Context, j *job) error {
	r.bar.start(j.in.name, false, j.in.total)
	if j.name == "" {
		j.after = r.cursor
	}
	sum := sha256.New()
	b := &batch{first: 1}
	for e, err := range j.in.read(ctx, sum) {
		if err != nil {
			return err
		}
		if !b.add(e) {
			if err := r.sendBatch(ctx, j, b); err != nil {
				return err
			}
			b.reset(e.number)
			b.add(e)
		}
	}
	if len(b.lines) > 0 {
		if err := r.sendBatch(ctx, j, b); err != nil {
			return err
		}
	}
	if err := r.checkNotEmpty(j, j.changes); err != nil {
		return err
	}
	if j.in.file != nil && !bytes.Equal(sum.Sum(nil), j.in.sum) {
		return fmt.Errorf("%s: file was changed while it was published", j.in.name)
	}
	r.bar.finish()
	j.done = true
	return nil
}

// sendBatch publishes a batch, with retries, and updates the progress of its job.
func (r *publication) sendBatch(ctx context.Context, j *job, b *batch) error {
	startedBefore := j.started
	j.started = true
	receipt, err := r.client.PublishLines(ctx, r.cfg.set, j.key(b), b.body, len(b.lines))
	if err != nil {
		return r.sendError(j, b, startedBefore, err)
	}
	if err := r.checkOrder(j, receipt); err != nil {
		return err
	}
	j.changes += receipt.Count
	j.batches++
	j.after = receipt.Cursor
	r.total += receipt.Count
	r.cursor = receipt.Cursor
	if receipt.Replayed {
		r.already += receipt.Count
	}
	r.bar.update(j.changes)
	return nil
}

// checkOrder returns an error if a batch is not after the batches that the hub accepted earlier
// in this run. This happens if the set was deleted in between: the batch is then in a new log,
// which starts at position 1.
func (r *publication) checkOrder(j *job, receipt *feed.Receipt) error {
	first, err := feed.ParseCursor(receipt.First)
	last, lerr := feed.ParseCursor(receipt.Cursor)
	if err := errors.Join(err, lerr); err != nil {
		return failf(exitRefused, "%s: parse receipt of the hub: %w", j.in.name, err)
	}
	if receipt.Replayed { // its cursor may be before the changes of another input
		return nil
	}
	if first.Position <= r.newest.Position || first.Micros <= r.newest.Micros {
		return failWithAdvice(exitRefused, "%s: the hub no longer has the changes that it accepted up to cursor %v: the set was deleted, or the change memory lost its newest changes; run the same command again",
			j.in.name, r.newest)
	}
	r.newest = last
	return nil
}

// sendError returns the error for a batch that was not published. startedBefore reports whether
// the hub may have changes of earlier batches of the job.
func (r *publication) sendError(j *job, b *batch, startedBefore bool, err error) error {
	refused, _ := errors.AsType[*client.RefusedError](err)
	unavailable, _ := errors.AsType[*client.UnavailableError](err)
	bad := refused != nil && (refused.Status == http.StatusBadRequest || refused.Status == http.StatusRequestEntityTooLarge)
	if bad || refused != nil && !refused.Uncertain || unavailable != nil && unavailable.Unsent {
		j.started = startedBefore // the hub does not have the batch
	}
	if refused != nil {
		if located := b.locate(refused); located != nil {
			return failf(exitRefused, "%s: %w (the hub refused it with %d)", j.in.name, located, refused.Status)
		}
	}
	if errors.Is(err, feed.ErrKeyReused) && r.cfg.key != "" {
		return failWithAdvice(exitRefused, "%s: %w: key %s was used for another input, or this input has changed; use another -key", j.in.name, err, r.cfg.key)
	}
	return fmt.Errorf("%s: %w", j.in.name, r.cfg.explainError(err))
}

// resumeAdvice returns the lines to print after an error: what is published, and how to resume.
func (r *publication) resumeAdvice(err error) []string {
	if f, ok := errors.AsType[*commandError](err); r.cfg.check || ok && f.hasAdvice {
		return nil
	}
	var lines []string
	started, resumable := false, false
	for _, j := range r.jobs {
		if !j.started {
			continue
		}
		started = true
		resumable = resumable || j.name == ""
		if j.done {
			if j.name != "" {
				lines = append(lines, fmt.Sprintf("%s is published; to avoid publishing it again, use -key %s", j.in.name, j.name))
			}
			continue
		}
		published := formatChanges(j.changes)
		if j.in.total >= 0 {
			published = progress.Group(j.changes) + " of " + formatChanges(j.in.total)
		}
		lines = append(lines, j.in.name+": published so far: "+published)
		switch {
		case j.name == "":
		case j.in.stream != nil:
			lines = append(lines, "to resume, provide the same input from its start, with -key "+j.name)
		default:
			lines = append(lines, "to resume, run the same command again with -key "+j.name)
		}
	}
	_, bad := errors.AsType[*resourcesync.Error](err)
	switch {
	case !started:
		return []string{"nothing was sent"}
	case resumable && bad:
		lines = append(lines, "fix the file and run the same command again; unchanged batches are not published twice")
	case resumable:
		lines = append(lines, "run the same command again to resume")
	}
	return lines
}
