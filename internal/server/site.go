package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/dialect/rdm"
	"github.com/rshub/rshub/internal/documents"
	"github.com/rshub/rshub/internal/inventory/web"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/sets"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/internal/webpage"
	"github.com/rshub/rshub/subscribe"
)

// A site passes each request of users to the part that handles it.
type site struct {
	base        feed.Base
	hub         *hub.Hub
	subscribe   *subscribe.Server
	documents   *documents.Server
	web         *web.Server
	websub      *websub.Server
	sets        *sets.Server
	rdm         *rdm.Server
	page        *webpage.Server
	activity    *activity.Recorder
	api         *staticDocument
	catalog     *staticDocument
	callers     *callers
	requests    *requestLog
	inventories inventories
}

// routes adds every URL of the hub to mux.
func (s *site) routes(mux *router) {
	mux.handle("/{$}", pageRoute, s.page.Overview)
	mux.handle("/page/{version}/{name}", pageRoute, s.serveAsset)
	mux.handle("/caller", pageRoute, withParameters(s.page.ServeCaller))
	mux.handle("/activity", pageRoute, withParameters(withSet(s.activity.ServeHour)))
	mux.handle("/failures", pageRoute, withParameters(withSet(s.activity.ServeFailures)))
	mux.handle("/sources", pageRoute, withParameters(s.sets.ServeSources, "after"))
	mux.handle("/.well-known/resourcesync", documentsRoute, s.serveDescription)
	mux.handle("/.well-known/api-catalog", documentsRoute, withParameters(s.catalog.serve))
	mux.handle("/openapi.json", documentsRoute, withParameters(s.api.serve))
	mux.handle("/robots.txt", documentsRoute, withParameters(s.documents.ServeRobots))
	for _, path := range hubPaths {
		mux.handle(path, hubRoute, s.serveHub)
	}
	mux.handle("/rdm/incoming", rdmRoute, withParameters(s.rdm.Serve, rdm.Parameters...))
	mux.handle("/subscriptions/{name}", statusRoute, s.serveStatus)
	mux.handle("/sets", setsRoute, withParameters(s.sets.ServeAll, "after", "details", "limit", "prefix"))
	mux.handle("/sets/{set}", setsRoute, withParameters(s.serveSet, "details", "recent"))
	mux.handle("/sets/{set}/changes", topicRoute, withParameters(s.serveTopic, subscribe.Parameters...))
	mux.handle("/changes", topicRoute, withParameters(s.serveSession))
	mux.handle("/ticket", ticketRoute, withParameters(s.serveTicketForAll))
	mux.handle("/sets/{set}/resources", inventoryRoute, withParameters(s.serveInventory(s.web.ServeResources), "prefix", "collection", "after", "limit", "loc", "at"))
	mux.handle("/sets/{set}/audit", inventoryRoute, withParameters(s.serveInventory(s.web.ServeAudit), "from", "prefix", "details", "name"))
	mux.handle("/sets/{set}/ticket", ticketRoute, withParameters(s.serveTicket))
	mux.handle("/sets/{set}/activity", pageRoute, withParameters(withSet(s.activity.ServeHour)))
	mux.handle("/sets/{set}/failures", pageRoute, withParameters(withSet(s.activity.ServeFailures)))
	mux.handle("/sets/{set}/proofs", pageRoute, withParameters(s.serveProofs))
	mux.handle("/sets/{set}/requests", pageRoute, withParameters(s.serveRequests))
	mux.handle("/sets/{set}/subscriptions", subscriptionsRoute, withParameters(s.serveSubscriptions, "after", "limit"))
	mux.handle("/sets/{set}/subscriptions/{id}", subscriptionsRoute, s.serveSubscriptions)
	mux.handle("/sets/{set}/subscriptions/{id}/{part}", subscriptionsRoute, s.serveSubscriptions)
	mux.handle("/sets/{set}/{name...}", documentsRoute, s.serveDocument)
	mux.handle("/", otherRoute, func(http.ResponseWriter, *http.Request) error {
		return problem.New(http.StatusNotFound, "not-found", "no such URL; GET / lists the URLs of the hub")
	})
}

// serveTopic serves the topic of a set. POST publishes. GET follows, or returns the latest Change
// Notification.
func (s *site) serveTopic(w http.ResponseWriter, r *http.Request) error {
	set := r.PathValue("set")
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	switch r.Method {
	case http.MethodPost:
		return s.Publish(w, r, set)
	case http.MethodGet, http.MethodHead:
		if !s.subscribe.Wants(r) && webpage.IsNavigation(r) {
			w.Header().Add("Vary", "Accept")
			s.page.ServeDocument(w, r, set)
			return nil
		}
		if !s.subscribe.Wants(r) {
			return s.Follow(w, r, set, func(w http.ResponseWriter, r *http.Request, set string) error {
				w.Header().Set("Link", s.base.Link(set))
				return s.documents.ServeLatest(w, r, set)
			})
		}
		if err := access.MayFollow(r.Context(), set); err != nil {
			return err
		}
		w.Header().Set("Link", s.base.Link(set))
		return s.withBaselineLink(r.Context(), set, s.subscribe.Serve(w, r, set))
	}
	return problem.NotAllowed(r, "GET, HEAD, POST")
}

// serveSession serves a WebSocket on which a client follows many sets. Which of them the caller may
// follow is checked for each set.
func (s *site) serveSession(w http.ResponseWriter, r *http.Request) error {
	return s.subscribe.ServeSession(w, r, s.requests.Followed(r.Context()))
}

// Publish handles a POST to the topic of a set.
func (s *site) Publish(w http.ResponseWriter, r *http.Request, set string) error {
	trail.FromContext(r.Context()).SetAction(trail.Publish, set)
	if err := access.MayPublish(r.Context(), set); err != nil {
		return err
	}
	return s.hub.ServePublish(w, r, set)
}

// hubPaths are the paths of the hub's own URL. Publishers with resourcesync_push POST to the
// second. The third is from the draft of 2012.
var hubPaths = []string{"/hub", "/publish", "/subscribe"}

// serveHub handles requests to the hub's own URL: publishes and WebSub forms.
func (s *site) serveHub(w http.ResponseWriter, r *http.Request) error {
	switch {
	case r.Method == http.MethodPost && (websub.IsForm(r.Header) || isDraft(r)):
		return s.websub.ServeHub(w, r)
	case r.Method == http.MethodPost && s.hub.IsPublish(r.Header):
		return s.hub.ServeHub(w, r)
	case r.Method == http.MethodPost: // probably a form with a wrong Content-Type
		problem.WriteText(w, problem.New(http.StatusUnsupportedMediaType, "unsupported", "want a WebSub form as application/x-www-form-urlencoded, or changes as "+
			s.hub.FormatNames()+" with Link headers rel=self (the topic) and rel=hub"))
		return nil
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "This is the URL of the hub. Topics are "+s.base.Topic("SET")+"; "+s.base.Sets()+" lists the sets.\n"+
			"Sources POST changes here with Link headers rel=self (the topic) and rel=hub, or to the topic itself.\n"+
			"Destinations POST a WebSub form: hub.mode=subscribe, hub.topic, hub.callback, and optionally hub.secret and hub.lease_seconds.\n"+
			"Sources that only ping POST a form with hub.mode=publish and hub.topic: the hub then reads the Change List in the description of the set.\n")
		return nil
	}
	return problem.NotAllowed(r, "GET, HEAD, POST")
}

// isDraft reports whether r is a subscription request of the draft of 2012, which has no Content-Type.
func isDraft(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/subscribe") && r.Header.Get("Content-Type") == "" && r.Header.Get("Link") == ""
}

// serveInventory returns a handler for the inventory of a set.
func (s *site) serveInventory(serve func(http.ResponseWriter, *http.Request, string) error) problem.Handler {
	return func(w http.ResponseWriter, r *http.Request) error { return s.Follow(w, r, r.PathValue("set"), serve) }
}

// Follow serves a set to callers who may follow it. It stops when they lose the right, because
// a stream of all resources may take long, and so may a document.
func (s *site) Follow(w http.ResponseWriter, r *http.Request, set string, serve func(http.ResponseWriter, *http.Request, string) error) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if err := access.MayFollow(r.Context(), set); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer s.callers.WhileFollowing(ctx, set, func(why error) { cancel(problem.From(why)) })()
	err := serve(w, r.WithContext(ctx), set)
	if why, ok := context.Cause(ctx).(*feed.Problem); ok && err != nil {
		return why
	}
	return err
}

// serveSubscriptions lets operators list the WebSub subscriptions of a set, and show, change or end
// one of them.
func (s *site) serveSubscriptions(w http.ResponseWriter, r *http.Request) error {
	set, id := r.PathValue("set"), r.PathValue("id")
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if err := access.MayOperate(r.Context()); err != nil {
		return err
	}
	if id == "" {
		return s.websub.ServeSubscriptions(w, r, set)
	}
	return s.websub.ServeSubscription(w, r, set, id, r.PathValue("part"))
}

// serveTicketForAll issues a ticket for a WebSocket on which a client follows many sets.
func (s *site) serveTicketForAll(w http.ResponseWriter, r *http.Request) error {
	return ticket.Serve(w, r, s.base, "", s.callers.tickets)
}

// serveTicket issues a ticket for the documents and the topic of a set.
func (s *site) serveTicket(w http.ResponseWriter, r *http.Request) error {
	set := r.PathValue("set")
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	return ticket.Serve(w, r, s.base, set, s.callers.tickets)
}

// withSet calls h with the set in the URL, which is empty if the URL has none.
func withSet(h func(w http.ResponseWriter, r *http.Request, set string) error) problem.Handler {
	return func(w http.ResponseWriter, r *http.Request) error { return h(w, r, r.PathValue("set")) }
}

// serveSet serves the page of a set if r asks for HTML, otherwise the set as JSON.
func (s *site) serveSet(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Accept")
	if webpage.WantsHTML(r) {
		return s.page.ServeSet(w, r, r.PathValue("set"))
	}
	return s.sets.ServeOne(w, r, r.PathValue("set"))
}

func (s *site) serveAsset(w http.ResponseWriter, r *http.Request) error {
	return s.page.ServeAsset(w, r, r.PathValue("version"), r.PathValue("name"))
}

// serveProofs serves the proofs of destinations to operators and to the destinations themselves.
func (s *site) serveProofs(w http.ResponseWriter, r *http.Request) error {
	return s.activity.ServeProofs(w, r, r.PathValue("set"), websub.Requester(r))
}

// serveStatus serves the status of a subscription, or a page if r asks for HTML, which reads the
// status from the same URL. It requires no token: anyone who knows the URL may see the status.
func (s *site) serveStatus(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Accept")
	if webpage.WantsHTML(r) {
		s.page.ServeSubscription(w, r)
		return nil
	}
	return s.websub.ServeStatus(w, r, r.PathValue("name"))
}

// serveDescription serves the Source Description of the hub.
func (s *site) serveDescription(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Link", s.base.CatalogLink())
	w.Header().Add("Vary", "Accept")
	if webpage.IsNavigation(r) {
		s.page.ServeDocument(w, r, "")
		return nil
	}
	return s.documents.ServeDescription(w, r)
}

func (s *site) serveDocument(w http.ResponseWriter, r *http.Request) error {
	set, name := r.PathValue("set"), r.PathValue("name")
	err := feed.CheckSet(set)
	w.Header().Add("Vary", "Accept")
	if err == nil && webpage.IsNavigation(r) && !s.documents.InDialect(name) { // the page shows only documents of ResourceSync
		s.page.ServeDocument(w, r, set)
		return nil
	}
	if more, ok := strings.CutSuffix(name, "/changes"); ok && err == nil {
		err = feed.CheckSet(set + "/" + more) // a topic whose set has a slash in its name
	}
	if err != nil {
		return err
	}
	return s.Follow(w, r, set, func(w http.ResponseWriter, r *http.Request, set string) error {
		return withParameters(func(w http.ResponseWriter, r *http.Request) error {
			return s.withBaselineLink(r.Context(), set, s.documents.ServeSet(w, r, set, name))
		}, "after", "from")(w, r)
	})
}

// withBaselineLink adds a link to the baseline of the set to feed.ErrGone.
func (s *site) withBaselineLink(ctx context.Context, set string, err error) error {
	if !errors.Is(err, feed.ErrGone) || !s.inventories.Keeps(ctx, set) {
		return err
	}
	p := *problem.From(err)
	p.Header = http.Header{"Link": {s.base.InventoryLink(set)}}
	return &p
}
