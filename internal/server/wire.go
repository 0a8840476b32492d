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
	"github.com/rshub/rshub/internal/inventory/reader"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/inventory/writer"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/outbound/meter"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/webpage"
	"github.com/rshub/rshub/subscribe"
)

// parts are the parts of a hub.
type parts struct {
	hub         *hub.Hub
	subscribe   *subscribe.Server
	documents   *documents.Server
	engine      *callback.Engine
	websub      *websub.Server
	outbound    *outbound.Client
	attempts    *meter.Meter // counts requests of outbound
	web         *web.Server
	quota       *limit.Quota
	writer      *writer.Writer // of inventories; nil if the hub has none
	reader      *reader.Reader // of inventories; nil if the hub has none
	inventories inventories
	sources     *sources // nil if the hub polls none
	announcer   *framework.Announcer
	activity    *activity.Recorder
	answers     *limit.Budget // memory for responses that are being created
	streams     *limit.Budget // memory for responses that clients are reading
}

// compareInterval is the interval at which a hub polls for changes that were not announced.
const compareInterval = 2 * time.Second

// Memory limits of all responses together, in bytes. answerBytes is for creating responses, which
// never waits for clients. streamBytes is for responses in memory while clients read them.
const (
	answerBytes = 128 << 20
	streamBytes = 256 << 20
)

// intakeBytes is the memory limit of all publishes together, from reading until they are accepted.
// The limit is ten times Config.MaxBody if that is more.
const intakeBytes = 512 << 20

// wire creates the parts and connects them. Each step uses the previous ones:
//
//	POST ─→ hub ─→ change memory ─→ inventories
//	         │          │                │
//	         ├─→ subscribe (WebSocket, event stream, long poll)
//	         ├─→ engine ─→ websub, IndexNow (callbacks)
//	         │          └─→ documents, web (pull)
//	         ↑
//	      sources (polled)
//
// idle bounds the idle connections to callbacks.
func (s *Server) wire(base feed.Base, guard *guard, store *store, bus *hub.Bus, idle int) *parts {
	p := &parts{
		answers: limit.NewBudget(answerBytes, limit.MemoryTimeout), streams: limit.NewBudget(streamBytes, limit.MemoryTimeout),
		attempts: meter.New(s.metrics),
		outbound: outbound.New(outbound.Options{Self: string(base), Allow: s.config.CallbackAllow, CAs: s.config.CallbackCAs, Idle: idle}),
	}
	p.writer, p.reader = s.wireInventories(store)
	p.inventories = inventories{memory: store.memory, store: store.inventories.store, reader: p.reader}
	s.wireHub(p, base, store, bus)
	p.activity = activity.New(store.memory, activity.Options{Followers: p, Logger: s.log})
	s.wireFollowers(p, base, guard, store)
	s.wireDocuments(p, base, store)
	s.wireCallbacks(p, base, store)
	s.metrics.MustRegister(readyGauge{s.health})
	return p
}

// wireHub creates the hub, which accepts publishes and passes them on.
func (s *Server) wireHub(p *parts, base feed.Base, store *store, bus *hub.Bus) {
	c := &s.config
	p.quota = limit.NewQuota(store, c.SetQuota, c.Callers != nil, s.log)
	o := hub.Options{
		Base: base, Sets: c.Sets, ListSize: c.ChangeListSize, MaxBody: c.MaxBody, Retention: c.Retention,
		Logger: s.log, Metrics: s.metrics, Bus: bus, Quota: p.quota,
		Formats: []*hub.Format{{MediaTypes: []string{cloudevents.MediaType, cloudevents.BatchMediaType}, Header: cloudevents.Header, Read: cloudevents.Read}},
		Intake:  limit.NewBudget(max(intakeBytes, 10*c.MaxBody), limit.MemoryTimeout),
	}
	if c.RedisURL != "" {
		o.PollInterval = compareInterval
	}
	if p.writer != nil {
		o.Inventories = p.writer
	}
	if c.Callers != nil {
		o.Rights = s.callers
	}
	p.hub = hub.New(store.memory, o)
}

// wireFollowers creates the server of followers with a connection.
func (s *Server) wireFollowers(p *parts, base feed.Base, guard *guard, store *store) {
	events := cloudevents.Writer{Base: base}
	p.subscribe = subscribe.New(p.hub, store.memory, subscribe.Options{
		Base: base, CheckOrigin: guard.allows, Heartbeat: s.config.Heartbeat, WriteTimeout: s.config.WriteTimeout,
		Logger: s.log, Metrics: s.metrics, Answers: p.answers, Streams: p.streams,
		Inventories: p.inventories, Rights: s.callers, Deliveries: p.activity,
		Messages: append(feed.MessageFormats(), subscribe.JSONZstd, events.Message()), Pages: append(feed.PageFormats(), events.Page()),
	})
}

// wireDocuments creates the servers of documents, inventories and audits.
func (s *Server) wireDocuments(p *parts, base feed.Base, store *store) {
	p.web = web.New(p.inventories, base, web.Options{Answers: p.answers, Streams: p.streams, Proofs: activityRecorder{p.activity}, Logger: s.log})
	o := documents.Options{DescribedBy: s.config.DescribedBy, Sets: p.hub, Logger: s.log, Answers: p.answers, Streams: p.streams, Dialects: dialects()}
	announced := framework.Options{AsAnonymous: s.callers.withAnyone, Logger: s.log}
	if p.writer != nil {
		o.Inventories = p.inventories
		announced.Owns = p.writer.Owns
	}
	p.documents = documents.New(store.memory, base, o)
	p.announcer = framework.New(store.memory, p.hub, p.documents, announced)
}

// wireCallbacks creates the engine that calls destinations and search engines, and the poller of
// sources.
func (s *Server) wireCallbacks(p *parts, base feed.Base, store *store) {
	c := &s.config
	topics := formats(base)
	pushed := maps.Clone(topics)
	pushed[indexnow.Form] = indexnow.NewFormat(p.outbound)
	caller := websub.NewCaller(p.outbound, base, websub.CallerOptions{Timeout: c.CallbackTimeout, Inventories: p.inventories})
	p.engine = callback.New(store.subscriptions, store.claims, store.memory, p.hub, caller, callback.Options{
		Logger: s.log, Metrics: s.metrics, Meter: p.attempts, Rights: s.callers.rights(),
		Activity: activityRecorder{p.activity}, Formats: pushed,
	})
	o := websub.Options{Formats: topics, Sets: p.hub, Inventories: p.inventories, LeaseMin: c.LeaseMin, MaxRequests: c.CallbackRequests}
	if !c.NoPoll {
		p.sources = s.wireSources(base, store, p)
		o.Sources = p.sources.poller
	}
	p.websub = websub.NewServer(p.engine, store.subscriptions, store.memory, p.outbound.Check, base, o)
}

// runs returns the functions that run in the background.
func (p *parts) runs() []func(context.Context) {
	runs := []func(context.Context){p.hub.Run, p.subscribe.Run, p.engine.Run, p.quota.Run, p.activity.Run, p.announcer.Run}
	if p.writer != nil {
		runs = append(runs, p.writer.Run, p.reader.Run)
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
	if p.writer != nil {
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
			Version: s.config.Version, Fixed: len(s.config.Sets) > 0, Tokens: s.config.Callers != nil, Holds: p.writer != nil,
		}),
		activity: p.activity, api: newDescription(base, s.config.Version), catalog: newCatalog(base), callers: s.callers, requests: s.requests, inventories: p.inventories,
	}
	site.rdm = rdm.New(rdmHub{site, store.memory, p.streams}, base, s.config.MaxBody, s.log)
	mux := newRouter(s.metrics, s.errors)
	site.routes(mux)
	return s.userChain(guard, mux)
}

// ops returns the handler of the operations address.
func (s *Server) ops(guard *guard, store *store) http.Handler {
	source := &backup.Source{Data: s.config.Data, Memory: storeDir, Disk: store.disk, Logger: s.log}
	if store.disk != nil && s.config.SecretKeys != "" {
		source.Secrets = store.disk.Bucket(callbackKeep)
	}
	ops := &ops{health: s.health, metrics: s.metrics, backup: source, errors: s.errors, callers: s.callers, log: s.log}
	return s.operatorChain(guard, ops.routes())
}
