package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/framework"
	"github.com/rshub/rshub/page"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// setsOnly is a change memory as all parts see it that work for each set. The logs of framework
// topics are in the memory, too, but they are no sets.
type setsOnly struct{ changelog.Log }

// Sets leaves out logs that nobody names.
func (l setsOnly) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	states, err := l.Log.Sets(ctx, names...)
	if len(names) == 0 {
		states = slices.DeleteFunc(states, func(st feed.State) bool { return feed.IsFramework(st.Set) })
	}
	return states, err
}

// wireFramework returns what finds out what is to be told in framework topics. memory has the
// logs of the topics.
func (s *Server) wireFramework(base feed.Base, memory changelog.Log, p *parts) *framework.Watcher {
	told := promauto.With(s.metrics).NewCounter(prometheus.CounterOpts{
		Name: "rshub_framework_events_total", Help: "Changes of documents that this hub has noted for framework notifications.",
	})
	o := framework.Options{Told: func(n int) { told.Add(float64(n)) }, Logger: s.log}
	if p.live != nil {
		o.Mine = p.live.Mine
	}
	return framework.New(memory, p.hub, shownDocuments{base, p}, base, o)
}

// shownDocuments lets package framework look at the documents of sets.
type shownDocuments struct {
	base feed.Base
	*parts
}

// Shown returns what the documents of a set are now.
func (d shownDocuments) Shown(ctx context.Context, st *feed.State, before *framework.Shown) (now framework.Shown, err error) {
	if now.CapabilityList, err = d.documents.CapabilityListVersion(ctx, *st); err != nil {
		return now, err
	}
	version, err := d.documents.ResourceListVersion(ctx, *st)
	if err != nil {
		return now, err
	}
	now.ResourceList.Version = version
	switch version {
	case "":
	case before.ResourceList.Version:
		now.ResourceList = before.ResourceList
	default:
		if now.ResourceList.Loc, now.ResourceList.Index, err = d.documents.ResourceListURL(ctx, *st); err != nil {
			return now, err
		}
	}
	if d.dumps == nil || !st.Dumps {
		return now, nil
	}
	resources, changes := &now.ResourceDump, &now.ChangeDump
	resources.Loc, resources.Version, changes.Loc, changes.Version, err = d.dumps.Newest(ctx, st.Set)
	for url, dump := range map[string]*framework.Document{d.base.ResourceDump(st.Set): resources, d.base.ChangeDump(st.Set): changes} {
		if dump.Loc != "" && dump.Loc != url {
			dump.Index = url
		}
	}
	return now, err
}

// ChangeList returns the URL of a Change List.
func (d shownDocuments) ChangeList(st *feed.State, n uint64) string {
	return d.documents.ChangeListURL(*st, n)
}

// Description returns the version of the Source Description.
func (d shownDocuments) Description(ctx context.Context, sets []feed.State) string {
	return d.documents.DescriptionVersion(ctx, sets)
}

var _ framework.Source = shownDocuments{}

// serveFramework serves the framework topic of a set: GET follows, or reads the latest
// framework notification.
func (s *site) serveFramework(w http.ResponseWriter, r *http.Request) error {
	ctx, set := r.Context(), r.PathValue("set")
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	wants := s.subscribe.Wants(r)
	if !wants && page.Visits(r) {
		w.Header().Add("Vary", "Accept")
		s.pages.ServeDocument(w, r, set)
		return nil
	}
	if err := access.MayFollow(ctx, set); err != nil {
		return err
	}
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	topic := feed.FrameworkTopic(set)
	if !wants {
		_, err := s.memory.State(ctx, topic)
		if errors.Is(err, feed.ErrNoSet) { // nobody has followed yet
			_, err = s.memory.State(ctx, set)
		}
		if err != nil && !errors.Is(err, feed.ErrUnavailable) { // then the documents may know it
			return err
		}
		return s.documents.ServeLatest(w, r, topic)
	}
	if since := r.URL.Query().Get("since"); since == feed.SinceBaseline || strings.Contains(since, "~") {
		return resourcesync.Invalid("since=%s: there is no baseline of a framework topic; read the documents that %s names", resourcesync.Shorten(since), s.base.CapabilityList(set))
	}
	if err := s.framework.Open(ctx, topic); err != nil {
		return err
	}
	w.Header().Set("Link", s.base.Link(topic))
	return s.subscribe.Serve(w, r, topic)
}
