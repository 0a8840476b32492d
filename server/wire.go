package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/activitystreams"
	"github.com/rshub/rshub/archive"
	"github.com/rshub/rshub/atom"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changeset"
	"github.com/rshub/rshub/cloudevents"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/dump"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/framework"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/indexnow"
	"github.com/rshub/rshub/internal/budget"
	"github.com/rshub/rshub/inventory/live"
	"github.com/rshub/rshub/inventory/web"
	"github.com/rshub/rshub/openapi"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/outbound/meter"
	"github.com/rshub/rshub/page"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
	"github.com/rshub/rshub/xmpp"
)

// parts are the parts that the hub is made of.
type parts struct {
	hub       *hub.Hub
	subscribe *subscribe.Server
	documents *documents.Server
	engine    *callback.Engine
	websub    *websub.Server
	fetcher   *harvest.Fetcher
	outbound  *outbound.Client
	web       *web.Server
	memory    changelog.Log
	quota     *quota
	requests  *requests
	live      *live.Live          // nil: the hub keeps no inventories
	sources   *sources            // nil as well: the hub polls none
	xmpp      *xmpp.Publisher     // nil: nothing is published over XMPP
	indexnow  *indexnow.Publisher // nil: no search engine is told of changes
	dumps     *dump.Maker         // nil: the hub has no place for content
	framework *framework.Watcher
	archive   *archive.Archive // nil as well: no archives
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
	log := changelog.Log(setsOnly{store.memory})
	c, p := &s.config, &parts{memory: log, requests: s.requests, streams: budget.New(streamBytes, budget.Patience).Divide(holder)}
	answers := budget.New(answerBytes, budget.Patience).Divide(holder)
	shared := time.Duration(0)
	if c.RedisURL != "" {
		shared = compareEvery
	}
	var hold func(context.Context, string) (feed.Cursor, bool)
	if p.live = s.wireInventories(store); p.live != nil {
		hold = p.hold
	}
	var maker func(context.Context, string) (string, error)
	if c.Callers != nil {
		maker = func(ctx context.Context, set string) (string, error) {
			st, err := log.State(ctx, set)
			return st.By, err
		}
	}
	p.quota = newQuota(store, c.SetQuota, maker, s.log)
	p.hub = hub.New(store.memory, hub.Options{
		Base: base, Sets: c.Sets, ListSize: c.ChangeListSize, MaxBody: c.MaxBody, Retention: c.Retention,
		ClockSkew: c.ClockSkew, Logger: s.log, Metrics: s.metrics, Bus: bus, Shared: shared, Hold: hold,
		Intake: budget.New(max(intakeBytes, 10*c.MaxBody), budget.Patience).Divide(holder), Full: p.quota.full, Grew: p.quota.grew,
		Admit: s.callers.admit(), Readers: map[string]hub.Reader{cloudevents.One: readEvents(log), cloudevents.Batch: readEvents(log)},
	})
	p.activity = activity.New(log, activity.Options{Following: p.following, Logger: s.log})
	p.subscribe = subscribe.New(p.hub, log, subscribe.Options{
		Base: base, Waits: p.hub.Waits, CheckOrigin: guard.allows,
		Heartbeat: c.Heartbeat, WriteTimeout: c.WriteTimeout, ClockSkew: c.ClockSkew, Logger: s.log,
		Metrics: s.metrics, Behind: p.hub.Behind, Attend: p.hub.Attend, Answers: answers,
		Streams: p.streams, Snapshot: p.snapshot, Hold: s.callers.hold, Delivered: p.delivered,
		Pages: append(feed.Pages(), cloudevents.Format(base)),
	})
	p.web = web.New(states{p.live}, base, web.Options{Answers: answers, Streams: p.streams, Logger: s.log})
	p.documents = documents.New(log, base, documents.Options{
		ClockSkew: c.ClockSkew,
		Waits:     func(set string) bool { return p.hub.Waits(set) || feed.IsFramework(set) }, // the topic of a set that is there, see serveFramework
		NoPush:    func(set string) bool { return slices.Contains(c.NoPushSets, set) },
		Logger:    s.log,
		Answers:   answers,
		Streams:   p.streams,

		Dialects:    []*documents.Dialect{atom.Dialect(), activitystreams.Dialect(), changeset.Dialect()},
		Inventories: p.live != nil,
		List:        p.resourceList,
		Dumps:       p.hasDumps,
		Archives:    p.hasArchive,
	})
	attempts := meter.New(s.metrics)
	p.outbound = outbound.New(outbound.Options{Self: string(base), Allow: c.CallbackAllow, Ports: c.CallbackPorts, CAs: c.CallbackCAs, PerHost: c.CallbackPerHost, Idle: idle})
	caller := websub.NewCaller(p.outbound, base, websub.CallerOptions{Timeout: c.CallbackTimeout, Inventory: p.inventory})
	p.engine = callback.New(store.subscriptions, store.claims, log, p.hub, caller, caller, callback.Options{
		InFlight: c.CallbackInFlight, PerHost: c.CallbackPerHost, Logger: s.log, Metrics: s.metrics, Meter: attempts, Rights: s.callers.rights(),
		Delivered: p.delivered, Outcome: p.called, Format: formats(base, log),
	})
	p.fetcher = harvest.New(p.outbound.HTTP(), log, p.publishFetched, harvest.Options{
		Sets: base.Sets(), Check: p.outbound.Check, Logger: s.log,
		Count: func(o outbound.Outcome, took time.Duration) { attempts.Count(meter.Fetch, o, took) },
	})
	p.websub = websub.NewServer(p.engine, store.subscriptions, log, p.outbound.Check, base, websub.Options{
		Waits: p.hub.Waits, Open: func(ctx context.Context, topic string) error { return p.framework.Open(ctx, topic) }, Inventory: p.inventory, Held: p.held, Ping: p.fetcher.Ping, LeaseMin: c.LeaseMin, LeaseDefault: c.LeaseDefault, LeaseMax: c.LeaseMax,
		MaxRequests: c.CallbackRequests, MaxPerHost: c.CallbackMaxPerHost, MaxPerSet: c.CallbackMaxPerSet, MaxUnverified: c.CallbackMaxUnverified,
		ClockSkew: c.ClockSkew,
	})
	if p.live != nil {
		p.sources = s.wireSources(base, store, p, attempts)
		p.dumps = s.wireDumps(base, store.content, p)
		p.archive = s.wireArchive(base, store, p)
	}
	p.framework = s.wireFramework(base, store.memory, p)
	s.health.missing = p.engine.Missing
	s.metrics.MustRegister(newReadyGauge(s.health))
	return p
}

// formats returns how the deliveries of a topic are written.
func formats(base feed.Base, log changelog.Log) func(topic string) *outlet.Format {
	asAtom := atom.Delivery(base, func(ctx context.Context, set string) string {
		st, err := log.State(ctx, set)
		if err != nil {
			return "" // then the name has to do
		}
		return st.Title
	})
	return func(topic string) *outlet.Format {
		if feed.IsAtom(topic) {
			return asAtom
		}
		return outlet.Notifications
	}
}

// publishFetched publishes changes that were fetched from a source. last is the
// cursor of the last one. added is 0 if the hub had the changes already.
func (p *parts) publishFetched(ctx context.Context, set, key string, digest [32]byte, changes []resourcesync.Change) (last feed.Cursor, added int, err error) {
	ctx, noted := p.requests.fetched(ctx, set)
	a, err := p.hub.Publish(ctx, set, changelog.Publish{Changes: changes, Key: key, Hash: digest})
	noted(err)
	if err != nil || a.Replayed {
		return a.Cursor, 0, err
	}
	return a.Cursor, a.Count, nil
}

// runs returns the functions that run in the background, by the name of their part.
func (p *parts) runs() map[string]func(context.Context) error {
	runs := map[string]func(context.Context) error{"hub": p.hub.Run, "subscribe": p.subscribe.Run, "callback": p.engine.Run, "quota": p.quota.run, "activity": p.activity.Run, "framework": p.framework.Run}
	if p.live != nil {
		runs["inventory"], runs["poll"] = p.live.Run, p.sources.poller.Run
	}
	if p.xmpp != nil {
		runs["xmpp"] = p.xmpp.Run
	}
	if p.indexnow != nil {
		runs["indexnow"] = p.indexnow.Run
	}
	if p.dumps != nil {
		runs["dumps"] = p.dumps.Run
	}
	if p.archive != nil {
		runs["archive"] = p.archive.Run
	}
	return runs
}

// site returns the handler for users.
func (s *Server) site(base feed.Base, guard *guard, store *store, p *parts) http.Handler {
	sets := &sets{base: base, memory: p.memory, hub: p.hub, streams: p.streams, checkFetched: p.outbound.Check, callers: s.callers, activity: p.activity, dumps: p.dumps, archive: p.archive}
	if p.live != nil {
		sets.inventories, sets.sources, sets.resources = p.live, p.sources, p.resources(store.inventories.store)
	}
	tokens, holds := s.config.Callers != nil, p.live != nil
	pages := &pages{
		Server: page.New(base, page.Options{Version: s.config.Version, Fixed: len(s.config.Sets) > 0, Tokens: tokens, Holds: holds}),
		sets:   sets, tokens: tokens, holds: holds, activity: p.activity, websub: p.websub,
	}
	site := &site{base: base, hub: p.hub, subscribe: p.subscribe, documents: p.documents, framework: p.framework, memory: store.memory, web: p.web, websub: p.websub, dumps: p.dumps, archive: p.archive, sets: sets, pages: pages, inventory: p.inventory, tickets: s.callers.tickets, follows: s.callers.follows, api: openapi.Document(s.config.Version, string(base))}
	site.rdm, site.robots = s.wireRDM(base, sets, p), s.config.Robots
	mux := newRouter(s.metrics, s.errors)
	site.routes(mux)
	if p.sources != nil {
		p.sources.inside.handler = s.requests.keep(mux)
	}
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
