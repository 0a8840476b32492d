package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/outbound/meter"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/local"
	"github.com/rshub/rshub/internal/source/poll"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// sourceKeep is the place of the results of polls in a change memory on disk.
const sourceKeep = "sources"

// sources are the sources that the hub polls.
type sources struct {
	poller   *poll.Poller
	outcomes poll.Outcomes
}

// Limits of polls.
const (
	sourceBytes   = 8 << 30    // maximum size of all documents of a source, unpacked
	sourceEntries = 10_000_000 // maximum number of entries of a source
	sortBytes     = 64 << 20   // memory for sorting the resources of a source
)

// wireSources creates the poller, which compares and publishes like any source, but without a
// connection and with all rights.
func (s *Server) wireSources(base feed.Base, store *store, p *parts) *sources {
	outcomes, pings, dir := poll.RedisOutcomes(store.redis, s.config.Prefix), poll.RedisPings(store.redis, s.config.Prefix), ""
	spools := limit.NewSpools(p.quota, nil)
	if store.disk != nil {
		spools = limit.NewSpools(p.quota, store.disk)
		outcomes, pings, dir = poll.DiskOutcomes(store.disk.Bucket(sourceKeep)), nil, s.config.Data
	}
	getter := &harvest.Getter{Client: p.outbound.HTTP(), Check: p.outbound.Check, Robots: true, Tries: 2, MaxWait: 30 * time.Second} // the poller retries
	hub := &local.Hub{Memory: store.memory, Publisher: p.hub, Inventories: p.inventories, Trail: s.requests}
	look := poll.NewFunc(getter, func(set string) reconcile.Hub { return &local.Set{Hub: hub, Name: set} }, outcomes, poll.FuncOptions{
		Dir: dir, ReserveDisk: spools.Acquire, Total: resourcesync.Limits{Bytes: sourceBytes, Entries: sourceEntries},
		ReserveMemory: func(ctx context.Context) (func(), error) {
			share, err := p.streams.Wait(ctx, sortBytes)
			if err != nil {
				return nil, err
			}
			return share.Release, nil
		},
		Note: func(set, text string) { s.log.Debug("source has a defect", "set", set, "what", text) },
	})
	o := poll.Options{
		SetsURL: base.Sets(), Check: p.outbound.Check, Pings: pings, Logger: s.log,
		Observe: func(st feed.State, err error, took time.Duration) {
			activityRecorder{p.activity}.polled(st.Set, cmp.Or(st.Source, st.ChangeList), err)
			outcome := outbound.Success
			if err != nil {
				outcome = outbound.Other
			}
			if failure, ok := errors.AsType[*outbound.Failure](err); ok {
				outcome = failure.Outcome
			}
			p.attempts.Count(meter.Fetch, outcome, took)
		},
	}
	if p.writer != nil {
		o.Owns = p.writer.Owns
	}
	return &sources{poll.New(store.memory, outcomes, look, o), outcomes}
}

// Rescan makes the poller check sets whose description has changed.
func (s *sources) Rescan() { s.poller.Rescan() }

// LastPoll returns the result of the last poll of the source of a set, or nil if there was none.
func (s *sources) LastPoll(ctx context.Context, st feed.State) (*sets.LastPoll, error) {
	last, err := poll.Last(ctx, s.outcomes, st.Set, st.Begin, st.Source)
	if last == nil || err != nil {
		return nil, err
	}
	l := &sets.LastPoll{
		Time: string(resourcesync.AppendTime(nil, last.Time)), Seconds: last.Took.Round(time.Millisecond).Seconds(), Result: "ok", Error: last.Error,
		Listed: last.Listed, Gaps: last.Gaps, Created: last.Created, Updated: last.Updated, Deleted: last.Deleted,
		Next: string(resourcesync.AppendTime(nil, last.Next)),
	}
	switch {
	case last.Error != "":
		l.Result = "failed"
	case last.Unchanged:
		l.Result = "unchanged"
	}
	return l, nil
}
