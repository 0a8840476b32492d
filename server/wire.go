package server

import (
	"context"
	"net/http"
	"time"

	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/budget"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/inventory/web"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/outbound/meter"
	"github.com/rshub/rshub/page"
	"github.com/rshub/rshub/subscribe"
)

// parts are the parts that the hub is made of.
type parts struct {
	hub       *hub.Hub
	subscribe *subscribe.Server
	documents *documents.Server
	engine    *callback.Engine
	websub    *websub.Server
	outbound  *outbound.Client
	web       *web.Server
	memory    changelog.Log
	quota     *quota
	requests  *requests
	live      *live.Live // nil: the hub keeps no inventories
	sources   *sources   // nil: the hub looks at none
	activity  *activity.Recorder
	streams   *budget.Budget // for answers that are held while clients take them
}

// compareEvery is how often a hub looks for changes that were not announced.
const compareEvery = 2 * time.Second

// What answers may hold in memory together, in bytes. The first is for answers while
// they are made, which never waits for a client. The second is for answers that are
// read, or held, while a client takes them at its own pace.
const (
	answerBytes = 128 << 20
	streamBytes = 256 << 20
)

// intakeBytes is what publishes may hold in memory together from when they are read until
// they are accepted, or ten times Config.MaxBody if that is more.
const intakeBytes = 512 << 20

// wire makes the parts and connects them with each other. idle bounds the idle
// connections to callbacks.
func (s *Server) wire(base feed.Base, guard *guard, store *store, bus *hub.Bus, idle int) *parts {
	c, log, p := &s.config, store.memory, &parts{memory: store.memory, requests: s.requests, streams: budget.New(streamBytes, budget.Patience).Divide(holder)}
	answers := budget.New(answerBytes, budget.Patience).Divide(holder)
	shared := time.Duration(0)
	if c.RedisURL != "" {
		shared = compareEvery
	}
	var hold func(context.Context, string) (feed.Cursor, bool)
	if p.live = s.wireInventories(store); p.live != nil {
		hold = p.live.Hold
	}
	if c.Callers != nil {
		store.maker = func(ctx context.Context, set string) (string, error) {
			st, err := log.State(ctx, set)
			return st.By, err
		}
	}
	p.quota = newQuota(store, c.SetQuota, s.log)
	p.hub = hub.New(log, hub.Options{
		Base: base, Sets: c.Sets, ListSize: c.ChangeListSize, MaxBody: c.MaxBody, Retention: c.Retention,
		Logger: s.log, Metrics: s.metrics, Bus: bus, Shared: shared, Hold: hold,
		Intake: budget.New(max(intakeBytes, 10*c.MaxBody), budget.Patience).Divide(holder), Full: p.quota.full, Grew: p.quota.grew,
		Admit: s.callers.admit(),
	})
	p.activity = activity.New(log, activity.Options{Following: p.following, Logger: s.log})
	p.subscribe = subscribe.New(p.hub, log, subscribe.Options{
		Base: base, Waits: p.hub.Waits, CheckOrigin: guard.allows,
		Heartbeat: c.Heartbeat, WriteTimeout: c.WriteTimeout, Logger: s.log,
		Metrics: s.metrics, Behind: p.hub.Behind, Attend: p.hub.Attend, Answers: answers,
		Streams: p.streams, Snapshot: p.snapshot, Hold: s.callers.hold, Delivered: p.activity.Delivered,
	})
	p.web = web.New(states{p.live}, base, web.Options{Answers: answers, Streams: p.streams, Proved: p.proved, Logger: s.log})
	p.documents = documents.New(log, base, documents.Options{
		DescribedBy: c.DescribedBy,

		Waits:   p.hub.Waits,
		Logger:  s.log,
		Answers: answers,
		Streams: p.streams,

		Inventories: p.live != nil,
		List:        p.resourceList,
	})
	attempts := meter.New(s.metrics)
	p.outbound = outbound.New(outbound.Options{Self: string(base), Allow: c.CallbackAllow, CAs: c.CallbackCAs, Idle: idle})
	caller := websub.NewCaller(p.outbound, base, websub.CallerOptions{Timeout: c.CallbackTimeout, Inventory: p.inventory})
	p.engine = callback.New(store.subscriptions, store.claims, log, p.hub, caller, caller, callback.Options{
		Logger: s.log, Metrics: s.metrics, Meter: attempts, Rights: s.callers.rights(),
		Delivered: p.activity.Delivered, Outcome: p.called,
	})
	var ping func(context.Context, string) error
	if !c.NoPoll {
		p.sources = s.wireSources(base, store, p, attempts)
		ping = p.sources.poller.Ping
	}
	p.websub = websub.NewServer(p.engine, store.subscriptions, log, p.outbound.Check, base, websub.Options{
		Waits: p.hub.Waits, Inventory: p.inventory, Ping: ping, LeaseMin: c.LeaseMin, MaxRequests: c.CallbackRequests,
	})
	s.health.missing = p.engine.Missing
	s.metrics.MustRegister(newReadyGauge(s.health))
	return p
}

// runs returns the functions that run in the background, by the name of their part.
func (p *parts) runs() map[string]func(context.Context) error {
	runs := map[string]func(context.Context) error{"hub": p.hub.Run, "subscribe": p.subscribe.Run, "callback": p.engine.Run, "quota": p.quota.run, "activity": p.activity.Run}
	if p.live != nil {
		runs["inventory"] = p.live.Run
	}
	if p.sources != nil {
		runs["poll"] = p.sources.poller.Run
	}
	return runs
}

// site returns the handler for users.
func (s *Server) site(base feed.Base, guard *guard, store *store, p *parts) http.Handler {
	sets := &sets{base: base, memory: store.memory, hub: p.hub, streams: p.streams, checkFetched: p.outbound.Check, callers: s.callers, activity: p.activity, sources: p.sources}
	if p.live != nil {
		sets.inventories, sets.resources = p.live, p.resources(store.inventories.store)
	}
	tokens, holds := s.config.Callers != nil, p.live != nil
	pages := &pages{
		Server: page.New(base, page.Options{Version: s.config.Version, Fixed: len(s.config.Sets) > 0, Tokens: tokens, Holds: holds}),
		sets:   sets, tokens: tokens, holds: holds, activity: p.activity, websub: p.websub,
	}
	site := &site{base: base, hub: p.hub, subscribe: p.subscribe, documents: p.documents, web: p.web, websub: p.websub, sets: sets, pages: pages, api: newDescription(base, s.config.Version), inventory: p.inventory, tickets: s.callers.tickets, follows: s.callers.follows}
	mux := newRouter(s.metrics, s.errors)
	site.routes(mux)
	return mux.counted(readOn(guard.keep(s.callers.limited(mux))))
}

// ops returns the handler for those who operate the hub.
func (s *Server) ops(guard *guard, store *store) http.Handler {
	backup := &backup{data: s.config.Data, disk: store.disk, keys: s.config.SecretKeys != "", log: s.log}
	ops := &ops{health: s.health, metrics: s.metrics, backup: backup, errors: s.errors, callers: s.callers, log: s.log}
	return guard.ofOps(s.probed()).keep(ops.routes())
}

// probed reports whether others than this machine may reach the hub, so that probes do.
func (s *Server) probed() bool { return s.config.Callers != nil || s.config.Insecure }
