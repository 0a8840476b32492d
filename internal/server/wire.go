package server

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/backup"
	"github.com/rshub/rshub/internal/dialect/cloudevents"
	"github.com/rshub/rshub/internal/dialect/framework"
	"github.com/rshub/rshub/internal/dialect/indexnow"
	"github.com/rshub/rshub/internal/dialect/rdm"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/inventory/live"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/outbound/meter"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/webpage"
	"github.com/rshub/rshub/subscribe"
)

// parts are the parts that the hub is made of.
type parts struct {
	hub         *hub.Hub
	subscribe   *subscribe.Server
	documents   *documents.Server
	engine      *callback.Engine
	websub      *websub.Server
	outbound    *outbound.Client
	web         *web.Server
	quota       *limit.Quota
	live        *live.Live // nil: the hub keeps no inventories
	inventories inventories
	sources     *sources // nil: the hub looks at none
	announcer   *framework.Announcer
	activity    *activity.Recorder
	streams     *limit.Budget // for answers that are held while clients take them
}

// compareEvery is how often a hub looks for changes that were not announced.
const compareEvery = 2 * time.Second

// How many bytes of memory all answers take together. answerBytes is for answers while the hub
// makes them, which never waits for a client. streamBytes is for answers that stay in memory
// while a client takes them at its own pace.
const (
	answerBytes = 128 << 20
	streamBytes = 256 << 20
)

// intakeBytes is how many bytes of memory all publishes take together, from when they are read
// until they are accepted. It is ten times Config.MaxBody if that is more.
const intakeBytes = 512 << 20

// wire makes the parts and connects them with each other. idle bounds the idle
// connections to callbacks.
func (s *Server) wire(base feed.Base, guard *guard, store *store, bus *hub.Bus, idle int) *parts {
	c, log, p := &s.config, store.memory, &parts{streams: limit.NewBudget(streamBytes, limit.Patience)}
	answers := limit.NewBudget(answerBytes, limit.Patience)
	shared := time.Duration(0)
	if c.RedisURL != "" {
		shared = compareEvery
	}
	p.live = s.wireInventories(store)
	p.inventories = inventories{memory: log, store: store.inventories.store, live: p.live}
	p.quota = limit.NewQuota(store, c.SetQuota, c.Callers != nil, s.log)
	o := hub.Options{
		Base: base, Sets: c.Sets, ListSize: c.ChangeListSize, MaxBody: c.MaxBody, Retention: c.Retention,
		Logger: s.log, Metrics: s.metrics, Bus: bus, Shared: shared, Quota: p.quota,
		Forms:  []*hub.Form{{MediaTypes: []string{cloudevents.MediaType, cloudevents.BatchMediaType}, Header: cloudevents.Header, Read: cloudevents.Read}},
		Intake: limit.NewBudget(max(intakeBytes, 10*c.MaxBody), limit.Patience),
	}
	if p.live != nil {
		o.Inventories = p.live
	}
	if c.Callers != nil {
		o.Rights = s.callers
	}
	p.hub = hub.New(log, o)
	p.activity = activity.New(log, activity.Options{Followers: p, Logger: s.log})
	events := cloudevents.Writer{Base: base}
	p.subscribe = subscribe.New(p.hub, log, subscribe.Options{
		Base: base, CheckOrigin: guard.allows, Heartbeat: c.Heartbeat, WriteTimeout: c.WriteTimeout,
		Logger: s.log, Metrics: s.metrics, Answers: answers, Streams: p.streams,
		Inventories: p.inventories, Rights: s.callers, Deliveries: p.activity,
		Messages: append(feed.Messages(), subscribe.JSONZstd, events.Message()), Pages: append(feed.Pages(), events.Page()),
	})
	p.web = web.New(p.inventories, base, web.Options{Answers: answers, Streams: p.streams, Proofs: happened{p.activity}, Logger: s.log})
	listed := documents.Options{
		DescribedBy: c.DescribedBy, Sets: p.hub, Logger: s.log, Answers: answers, Streams: p.streams,
		Dialects: dialects(),
	}
	if p.live != nil {
		listed.Inventories = p.inventories
	}
	p.documents = documents.New(log, base, listed)
	told := framework.Options{Anyone: s.callers.anyone, Logger: s.log}
	if p.live != nil {
		told.Mine = p.live.Mine
	}
	p.announcer = framework.New(log, p.hub, p.documents, told)
	attempts := meter.New(s.metrics)
	p.outbound = outbound.New(outbound.Options{Self: string(base), Allow: c.CallbackAllow, CAs: c.CallbackCAs, Idle: idle})
	caller := websub.NewCaller(p.outbound, base, websub.CallerOptions{Timeout: c.CallbackTimeout, Inventories: p.inventories})
	topics := formats(base)
	pushed := maps.Clone(topics)
	pushed[indexnow.Form] = indexnow.NewFormat(p.outbound)
	p.engine = callback.New(store.subscriptions, store.claims, log, p.hub, caller, callback.Options{
		Logger: s.log, Metrics: s.metrics, Meter: attempts, Rights: s.callers.rights(),
		Activity: happened{p.activity}, Formats: pushed,
	})
	subscribing := websub.Options{Formats: topics, Sets: p.hub, Inventories: p.inventories, LeaseMin: c.LeaseMin, MaxRequests: c.CallbackRequests}
	if !c.NoPoll {
		p.sources = s.wireSources(base, store, p, attempts)
		subscribing.Sources = p.sources.poller
	}
	p.websub = websub.NewServer(p.engine, store.subscriptions, log, p.outbound.Check, base, subscribing)
	s.metrics.MustRegister(readyGauge{s.health})
	return p
}

// runs returns the functions that run in the background.
func (p *parts) runs() []func(context.Context) {
	runs := []func(context.Context){p.hub.Run, p.subscribe.Run, p.engine.Run, p.quota.Run, p.activity.Run, p.announcer.Run}
	if p.live != nil {
		runs = append(runs, p.live.Run)
	}
	if p.sources != nil {
		runs = append(runs, p.sources.poller.Run)
	}
	return runs
}

// site returns the handler for users.
func (s *Server) site(base feed.Base, guard *guard, store *store, p *parts) http.Handler {
	o := sets.Options{
		Fetcher: p.outbound, SearchEngines: indexnow.Subscriptions{Send: p.engine.Send, Check: p.outbound.Check}, Announcer: p.announcer, Activity: p.activity, Streams: p.streams,
		CheckEvents: func(text string) error {
			_, err := cloudevents.ParseMapping(text)
			return err
		},
	}
	if p.live != nil {
		o.Inventories = p.inventories
	}
	if p.sources != nil {
		o.Sources = p.sources
	}
	if s.config.Callers != nil {
		o.Private = s.callers
	}
	described := sets.New(store.memory, p.hub, base, o)
	site := &site{
		base: base, hub: p.hub, subscribe: p.subscribe, documents: p.documents, web: p.web, websub: p.websub, sets: described,
		page: webpage.New(described, base, webpage.Options{
			Version: s.config.Version, Fixed: len(s.config.Sets) > 0, Tokens: s.config.Callers != nil, Holds: p.live != nil,
		}),
		activity: p.activity, api: newDescription(base, s.config.Version), catalog: newCatalog(base), callers: s.callers, inventories: p.inventories,
	}
	site.rdm = rdm.New(catalogs{site, store.memory, p.streams}, base, s.config.MaxBody, s.log)
	mux := newRouter(s.metrics, s.errors)
	site.routes(mux)
	return s.users(guard, mux)
}

// ops returns the handler for those who operate the hub.
func (s *Server) ops(guard *guard, store *store) http.Handler {
	source := &backup.Source{Data: s.config.Data, Memory: storeDir, Disk: store.disk, Logger: s.log}
	if store.disk != nil && s.config.SecretKeys != "" {
		source.Secrets = store.disk.Keep(callbackKeep)
	}
	ops := &ops{health: s.health, metrics: s.metrics, backup: source, errors: s.errors, callers: s.callers, log: s.log}
	return s.operators(guard, ops.routes())
}
