package mirror

import (
	"context"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/durable"
	"github.com/rshub/rshub/internal/mirror/ledger"
)

// An outcome is the result of the work on one resource. The zero outcome
// changes nothing.
type outcome struct {
	file    *ledger.File
	failure *ledger.Failure
	come    *come // a fetched content, which commit puts in its place; that gives the final outcome
	deed    Deed
	dirs    []string // directories that must be durable before the outcome
}

const (
	commitMost  = 256 // outcomes of one commit
	commitEvery = time.Second
)

// work calls one for each resource, several at a time, and commits the outcomes. It holds
// a resource until its outcome is committed. After an error, the outcomes so far are
// committed, too.
func (d *Directory) work(ctx context.Context, entries []feed.Entry, one func(context.Context, feed.Entry) (outcome, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan feed.Entry)
	done := make(chan outcome)
	var wg sync.WaitGroup
	for range min(len(entries), d.workers()) {
		wg.Go(func() {
			for e := range todo {
				if d.hold(ctx, e.Change.Loc) != nil {
					continue
				}
				o, err := one(ctx, e)
				if err != nil {
					cancel(err)
				}
				o.deed.Loc = e.Change.Loc
				done <- o
			}
		})
	}
	go func() {
		defer close(done)
		defer wg.Wait()
		defer close(todo)
		for _, e := range mixed(entries) {
			select {
			case todo <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	err := d.collect(done, cancel)
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (d *Directory) workers() int {
	return min(8*d.fetcher.Parallel(), 256) // most of them wait for their host
}

// collect commits outcomes until there are no more.
func (d *Directory) collect(done <-chan outcome, cancel context.CancelCauseFunc) error {
	var waiting []outcome
	var failed error
	commit := func() {
		if failed == nil {
			failed = d.commit(waiting)
		}
		if failed != nil {
			cancel(failed)
		}
		for i := range waiting {
			if c := waiting[i].come; c != nil {
				_ = c.temporary.Close() // the next try begins again
			}
			d.release(waiting[i].deed.Loc)
		}
		waiting = waiting[:0]
	}
	ticker := time.NewTicker(commitEvery)
	defer ticker.Stop()
	for {
		select {
		case o, ok := <-done:
			if !ok {
				commit()
				return failed
			}
			if waiting = append(waiting, o); len(waiting) == commitMost {
				commit()
			}
		case <-ticker.C:
			commit()
		}
	}
}

// commit makes outcomes durable.
func (d *Directory) commit(outcomes []outcome) error {
	if err := d.place(outcomes); err != nil {
		return err
	}
	dirs := map[string]bool{}
	var b ledger.Batch
	for i := range outcomes {
		o := &outcomes[i]
		for _, dir := range o.dirs {
			dirs[dir] = true
		}
		switch {
		case o.file != nil:
			b.File(*o.file)
		case o.failure != nil:
			b.Failure(*o.failure)
		}
	}
	if err := d.syncDirs(dirs); err != nil {
		return err
	}
	if err := d.home.Ledger.Commit(&b); err != nil {
		return err
	}
	for i := range outcomes {
		if o := &outcomes[i]; o.file != nil || o.failure != nil {
			d.opts.Did(o.deed)
		}
	}
	return nil
}

// place makes fetched contents durable, and then moves them to the paths of their files.
func (d *Directory) place(outcomes []outcome) error {
	var parts []*os.File
	for i := range outcomes {
		if c := outcomes[i].come; c != nil {
			parts = append(parts, c.temporary)
		}
	}
	if err := d.sync(parts, (*os.File).Sync); err != nil {
		return err
	}
	for i := range outcomes {
		c := outcomes[i].come
		if c == nil {
			continue
		}
		_ = c.temporary.Close() // it is already durable
		o, err := c.replace()
		if err != nil {
			return err
		}
		o.deed.Loc = outcomes[i].deed.Loc
		outcomes[i] = o
	}
	return nil
}

// syncDirs makes the names in directories durable. It skips directories that are not there.
func (d *Directory) syncDirs(dirs map[string]bool) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // it was only read
		}
	}()
	for dir := range dirs {
		f, err := d.home.Root.Open(dir)
		if absent(err) {
			continue
		}
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	return d.sync(files, durable.SyncOpenDir)
}

// many is the number of files from which on sync makes the whole file system durable.
// That writes more, but is much faster than one file after the other.
const many = 16

// sync makes files durable. one does that for a single file.
func (d *Directory) sync(files []*os.File, one func(*os.File) error) error {
	if len(files) >= many && syncsAll {
		return syncAll(d.home.Top)
	}
	for _, f := range files {
		if err := one(f); err != nil {
			return err
		}
	}
	return nil
}

// mixed reorders entries so that those of one host are spread. A slow host then does not
// delay the others.
func mixed(entries []feed.Entry) []feed.Entry {
	byHost := map[string][]feed.Entry{}
	var hosts []string
	for _, e := range entries {
		host := ""
		if u, err := url.Parse(e.Change.Loc); err == nil {
			host = u.Host
		}
		if byHost[host] == nil {
			hosts = append(hosts, host)
		}
		byHost[host] = append(byHost[host], e)
	}
	if len(hosts) < 2 {
		return entries
	}
	all := make([]feed.Entry, 0, len(entries))
	for i := 0; len(all) < len(entries); i++ {
		for _, host := range hosts {
			if list := byHost[host]; i < len(list) {
				all = append(all, list[i])
			}
		}
	}
	return all
}
