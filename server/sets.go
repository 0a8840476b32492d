package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/limit"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// sets serves the URLs that list, show, describe and delete sets.
type sets struct {
	base         feed.Base
	memory       changelog.Log
	hub          *hub.Hub
	streams      *limit.Budget                // for lists that are held while clients take them
	checkFetched func(name, url string) error // returns an error, which names what the URL is, if the hub would not fetch the URL
	inventories  completeness                 // nil: the hub keeps none
	sources      *sources                     // nil: the hub polls none
	callers      *callers
	activity     *activity.Recorder
}

// completeness is what sets tell and ask inventories.
type completeness interface {
	// Complete says that the hub knows all resources of a set, as of the head of its
	// log, or that it does not. It is durable when Complete returns nil.
	Complete(ctx context.Context, set string, complete bool) error
	// Count returns how many resources a set has; ok is false if that is not known.
	Count(ctx context.Context, set string) (n uint64, ok bool)
}

// A setView is a set as the API shows it.
type setView struct {
	Set            string   `json:"set"`
	Title          string   `json:"title,omitempty"`
	DescribedBy    string   `json:"describedby,omitempty"`
	ChangeList     string   `json:"changelist,omitempty"`   // the source's own; only publishers and operators see it
	ResourceList   string   `json:"resourcelist,omitempty"` // the source's own, as the next two
	ResourceDump   string   `json:"resourcedump,omitempty"`
	ChangeDump     string   `json:"changedump,omitempty"`
	Inventory      string   `json:"inventory,omitempty"` // "off" if the source wants none
	Push           string   `json:"push,omitempty"`      // "off" if the Capability List does not name the push channel
	Sitemap        bool     `json:"sitemap,omitempty"`
	Private        bool     `json:"private,omitempty"`
	Lastmod        string   `json:"lastmod,omitempty"` // of Change Lists; empty: that of the source
	Source         string   `json:"source,omitempty"`  // what the hub polls; only publishers and operators see it, and the next
	Every          string   `json:"every,omitempty"`
	Looked         *looked  `json:"looked,omitempty"` // what came of the last look at the source; only in the view of one set
	Topic          string   `json:"topic"`
	CapabilityList string   `json:"capabilitylist"`
	By             string   `json:"by,omitempty"` // who made it; only operators see it
	Begin          string   `json:"begin"`        // when its log began
	Floor          string   `json:"floor"`        // cursor before the oldest change that is kept
	Head           string   `json:"head"`         // cursor of the newest change
	Changes        uint64   `json:"changes"`
	Updated        string   `json:"updated,omitempty"`   // datetime of the newest change
	Rate           *float64 `json:"rate,omitempty"`      // changes in a second, over the last minute; nil: unknown. This and the next are details
	Resources      *uint64  `json:"resources,omitempty"` // that the set holds, as of the last time that the inventory was written; nil: unknown
	Followers      *int     `json:"followers,omitempty"` // of this hub: connections, and subscriptions of callbacks
	Behind         uint64   `json:"behind,omitempty"`    // changes that the slowest of these has not got
	Lag            *float64 `json:"lag,omitempty"`       // age of the oldest of these changes in seconds
	Recent         string   `json:"recent,omitempty"`    // cursor before the newest changes, as many as were asked for; only in the view of one set
}

// view returns a set as a caller with these rights sees it.
func (s *sets) view(st feed.State, rights access.Rights) setView {
	v := setView{
		Set: st.Set, Title: st.Title, DescribedBy: st.DescribedBy,
		ResourceList: st.ResourceList, ResourceDump: st.ResourceDump, ChangeDump: st.ChangeDump,
		Topic: s.base.Topic(st.Set), CapabilityList: s.base.CapabilityList(st.Set),
		Begin: string(resourcesync.AppendTimeMicro(nil, st.Begin)),
		Floor: st.Floor.String(), Head: st.Head.String(), Changes: st.Head.Position - st.Floor.Position,
	}
	if rights.Publish(st.Set) || rights.Operate() {
		v.ChangeList, v.Source = st.ChangeList, st.Source // the URLs may contain a secret
		if st.Source != "" {
			v.Every = st.Every.String()
		}
	}
	if rights.Operate() {
		v.By = st.By
	}
	v.Private, v.Lastmod = st.Private, string(st.Lastmod)
	if st.NoInventory {
		v.Inventory = "off"
	}
	if v.Sitemap = st.Sitemap; st.NoPush {
		v.Push = "off"
	}
	if v.Changes > 0 {
		v.Updated = string(resourcesync.AppendTimeMicro(nil, st.Head.Micros))
	}
	return v
}

// visible returns the states of the sets that the caller may follow, sorted by name.
func (s *sets) visible(r *http.Request) ([]feed.State, error) {
	states, err := s.memory.Sets(r.Context())
	if err != nil {
		return nil, err
	}
	rights := access.FromContext(r.Context()).Rights
	return slices.DeleteFunc(states, func(st feed.State) bool { return !rights.Sees(st) }), nil
}

// maxList bounds the text of a list of sets in bytes. It leaves room for 10,000
// ordinary sets.
const maxList = 4 << 20

// How many sets a list has, if the parameter limit does not say, and at most.
const (
	defaultSets = 100
	mostSets    = 10_000
	mostDetails = 200 // with details, because each set has to be looked at
)

// listLimit returns how many sets a request asks for.
func listLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultSets, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostSets {
		return 0, resourcesync.Invalid("limit=%.20s: a limit is a number from 1 to %d", text, mostSets)
	}
	return n, nil
}

// serveAll lists the sets that the caller may follow, from the one behind the parameter
// after on, as many as the parameter limit says, and only those whose names begin with the
// parameter prefix. With details=1 it says of each what the hub knows besides. A list that has not all of them says where
// the next begins.
func (s *sets) serveAll(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	most, err := listLimit(r)
	if err != nil {
		return err
	}
	share, err := s.streams.Take(r.Context(), maxList)
	if err != nil {
		return err
	}
	defer share.Release()
	body, next, err := s.list(r, most)
	if err != nil {
		return err
	}
	share.Keep(int64(len(body)))
	h := w.Header()
	h.Add("Vary", "Authorization")
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if next != "" {
		h.Add("Link", "<"+next+`>; rel="next"`)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
	return nil
}

// list returns the list of at most so many sets that r asks for, as JSON, and the URL of the rest,
// which is empty if there is none.
func (s *sets) list(r *http.Request, most int) (body []byte, next string, err error) {
	q := r.URL.Query()
	after, prefix := q.Get("after"), q.Get("prefix")
	states, err := s.visible(r)
	if err != nil {
		return nil, "", err
	}
	rights, last, n, details := access.FromContext(r.Context()).Rights, "", 0, q.Get("details") == "1"
	if details {
		most = min(most, mostDetails)
	}
	body = append(body, `{"sets":[`...)
	for _, st := range states {
		if st.Set <= after || !strings.HasPrefix(st.Set, prefix) {
			continue
		}
		v := s.view(st, rights)
		if details && n < most {
			s.details(r.Context(), &v, st.NoInventory)
		}
		view, err := json.Marshal(v)
		if err != nil {
			return nil, "", err
		}
		if n == most || last != "" && len(body)+len(view) > maxList {
			rest := url.Values{"after": {last}}
			for _, name := range []string{"details", "limit", "prefix"} {
				if q.Has(name) {
					rest.Set(name, q.Get(name))
				}
			}
			next = s.base.Sets() + "?" + rest.Encode()
			break
		}
		n++
		if last != "" {
			body = append(body, ',')
		}
		body, last = append(body, view...), st.Set
	}
	body = append(body, ']')
	if next != "" {
		body = append(body, `,"next":"`+next+`"`...)
	}
	return append(body, "}\n"...), next, nil
}

// serveOne shows, describes or deletes one set.
func (s *sets) serveOne(w http.ResponseWriter, r *http.Request) error {
	ctx, set := r.Context(), r.PathValue("set")
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = access.MayFollow(ctx, set)
	case http.MethodPut:
		trail.From(ctx).Begin(trail.Describe, set)
		if err = access.MayPublish(ctx, set); err == nil {
			err = advise(s.put(w, r, set), describeAgain)
		}
	case http.MethodDelete:
		trail.From(ctx).Begin(trail.Delete, set)
		if err = access.MayOperate(ctx); err == nil {
			err = advise(s.hub.Delete(ctx, set), "unknown whether the set was deleted: look at it first (GET), and send the request again only if the set is there and nobody has made it anew since")
		}
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	default:
		err = problem.NotAllowed(r, "DELETE, GET, HEAD, PUT")
	}
	if err != nil {
		return err
	}
	st, err := s.memory.State(ctx, set)
	if errors.Is(err, feed.ErrUnavailable) && r.Method == http.MethodPut {
		// The request is carried out. Nobody must be told that nothing was written.
		err = advise(fmt.Errorf("%w: it was carried out, and then: %v", feed.ErrUnknown, err), describeAgain)
	}
	if err != nil {
		return err
	}
	view := s.view(st, access.FromContext(ctx).Rights)
	if view.Recent, err = s.recent(r, &st); err != nil {
		return err
	}
	if r.URL.Query().Get("details") == "1" {
		s.details(ctx, &view, st.NoInventory)
	}
	if view.Source != "" && s.sources != nil {
		if r.Method == http.MethodPut {
			s.sources.poller.Described()
		}
		if view.Looked, err = s.sources.looked(ctx, st); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, view)
	return nil
}

// mostRecent bounds the parameter recent.
const mostRecent = 10_000

// recent returns the cursor before the newest changes of a set, as many as the parameter
// recent says, or all that there are. Who follows from there sees these changes first. It is
// empty without the parameter.
func (s *sets) recent(r *http.Request, st *feed.State) (string, error) {
	text := r.URL.Query().Get("recent")
	if text == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > mostRecent {
		return "", resourcesync.Invalid("recent=%.20s: it is a number from 1 to %d", text, mostRecent)
	}
	if st.Head.Position <= st.Floor.Position+n {
		return st.Floor.String(), nil
	}
	at, err := s.memory.At(r.Context(), st.Set, st.Head.Position-n)
	if errors.Is(err, feed.ErrGone) { // retention has just removed it
		return st.Head.String(), nil
	}
	return at.String(), err
}

const describeAgain = "unknown whether the request was carried out: send the same request again; it does no harm if the first one was carried out after all"

// advise gives feed.ErrUnknown the detail that is right for a request without an
// idempotency key. Other errors stay as they are.
func advise(err error, detail string) error {
	if !errors.Is(err, feed.ErrUnknown) {
		return err
	}
	p := *problem.From(err)
	p.Detail = detail
	return &p
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
