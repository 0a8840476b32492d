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

// An outcome is the result of processing process resource. The zero outcome changes nothing.
type outcome struct {
	file     *ledger.File
	failure  *ledger.Failure
	download *download // fetched content; commit installs it and replaces the outcome
	action   Action
	dirs     []string // directories that must be durable before the outcome
}

const (
	maxCommit      = 256 // outcomes per commit
	commitInterval = time.Second
)

// processEach calls process for each resource, several at a time, and commits the outcomes. A
// resource stays locked until its outcome is committed. After an error it still commits the
// outcomes so far.
func (d *Directory) processEach(ctx context.Context, entries []feed.Entry, process func(context.Context, feed.Entry) (outcome, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan feed.Entry)
	done := make(chan outcome)
	var wg sync.WaitGroup
	for range min(len(entries), d.workers()) {
		wg.Go(func() {
			for e := range jobs {
				if d.lockResource(ctx, e.Change.Loc) != nil {
					continue
				}
				o, err := process(ctx, e)
				if err != nil {
					cancel(err)
				}
				o.action.Loc = e.Change.Loc
				done <- o
			}
		})
	}
	go func() {
		defer close(done)
		defer wg.Wait()
		defer close(jobs)
		for _, e := range interleaveHosts(entries) {
			select {
			case jobs <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	err := d.commitOutcomes(done, cancel)
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (d *Directory) workers() int {
	return min(8*d.opts.Fetcher.Parallel(), 256) // most workers wait for their host
}

// commitOutcomes commits outcomes until done is closed.
func (d *Directory) commitOutcomes(done <-chan outcome, cancel context.CancelCauseFunc) error {
	var pending []outcome
	var failed error
	commit := func() {
		if failed == nil {
			failed = d.commit(pending)
		}
		if failed != nil {
			cancel(failed)
		}
		for i := range pending {
			if c := pending[i].download; c != nil {
				_ = c.temporary.Close() // the next attempt starts over
			}
			d.unlockResource(pending[i].action.Loc)
		}
		pending = pending[:0]
	}
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	for {
		select {
		case o, ok := <-done:
			if !ok {
				commit()
				return failed
			}
			if pending = append(pending, o); len(pending) == maxCommit {
				commit()
			}
		case <-ticker.C:
			commit()
		}
	}
}

// commit makes outcomes durable.
func (d *Directory) commit(outcomes []outcome) error {
	if err := d.installDownloads(outcomes); err != nil {
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
			b.PutFile(*o.file)
		case o.failure != nil:
			b.PutFailure(*o.failure)
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
			d.opts.OnAction(o.action)
		}
	}
	return nil
}

// installDownloads makes fetched contents durable, then renames them to their paths.
func (d *Directory) installDownloads(outcomes []outcome) error {
	var parts []*os.File
	for i := range outcomes {
		if c := outcomes[i].download; c != nil {
			parts = append(parts, c.temporary)
		}
	}
	if err := d.syncFiles(parts, (*os.File).Sync); err != nil {
		return err
	}
	for i := range outcomes {
		c := outcomes[i].download
		if c == nil {
			continue
		}
		_ = c.temporary.Close() // it is already durable
		o, err := c.install()
		if err != nil {
			return err
		}
		o.action.Loc = outcomes[i].action.Loc
		outcomes[i] = o
	}
	return nil
}

// syncDirs syncs directories. It skips those that do not exist.
func (d *Directory) syncDirs(dirs map[string]bool) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // opened only for reading
		}
	}()
	for dir := range dirs {
		f, err := d.home.Root.Open(dir)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	return d.syncFiles(files, durable.SyncOpenDir)
}

// minSyncAll is the number of files from which syncFiles syncs the whole file system. That
// writes more, but is much faster than syncing many files one by one.
const minSyncAll = 16

// syncFiles makes files durable. syncFile does that for a single file.
func (d *Directory) syncFiles(files []*os.File, syncFile func(*os.File) error) error {
	if len(files) >= minSyncAll && syncsAll {
		return syncAll(d.home.Top)
	}
	for _, f := range files {
		if err := syncFile(f); err != nil {
			return err
		}
	}
	return nil
}

// interleaveHosts reorders entries so that consecutive ones have different hosts: a slow host
// then does not delay the others.
func interleaveHosts(entries []feed.Entry) []feed.Entry {
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
