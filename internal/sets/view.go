package sets

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/resourcesync"
)

// A View is a set as the API shows it.
type View struct {
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
	Framework      bool     `json:"framework,omitempty"`
	Lastmod        string   `json:"lastmod,omitempty"` // of Change Lists; empty: that of the source
	Source         string   `json:"source,omitempty"`  // what the hub polls; only publishers and operators see it, and the next
	Every          string   `json:"every,omitempty"`
	IndexNow       string   `json:"indexnow,omitempty"` // the search engine that is told of changes; only publishers and operators see it
	Looked         *Looked  `json:"looked,omitempty"`   // what came of the last look at the source; only in the view of one set
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

	CloudEvents feed.RawJSON `json:"cloudevents,omitempty"` // only publishers and operators see it
}

// view returns a set as a caller with these rights sees it.
func (s *Server) view(st feed.State, rights access.Rights) View {
	v := View{
		Set: st.Set, Title: st.Title, DescribedBy: st.DescribedBy,
		ResourceList: st.ResourceList, ResourceDump: st.ResourceDump, ChangeDump: st.ChangeDump,
		Topic: s.base.Topic(st.Set), CapabilityList: s.base.CapabilityList(st.Set),
		Begin: string(resourcesync.AppendTimeMicro(nil, st.Begin)),
		Floor: st.Floor.String(), Head: st.Head.String(), Changes: st.Head.Position - st.Floor.Position,
	}
	if rights.Publish(st.Set) || rights.Operate() {
		v.ChangeList, v.Source, v.IndexNow = st.ChangeList, st.Source, st.IndexNow // the URLs may contain a secret
		v.CloudEvents = st.CloudEvents
		if st.Source != "" {
			v.Every = st.Every.String()
		}
	}
	if rights.Operate() {
		v.By = st.By
	}
	v.Private, v.Framework, v.Lastmod = st.Private, st.Framework, string(st.Lastmod)
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

// details adds what the hub knows of a set besides its description and its log.
func (s *Server) details(ctx context.Context, v *View, noInventory bool) {
	now := s.opts.Activity.Now(v.Set)
	if now.Known {
		rate := float64(int64(now.Rate*1000)) / 1000
		v.Rate = &rate
	}
	lag := now.Lag.Round(time.Millisecond).Seconds()
	v.Followers, v.Behind, v.Lag = &now.Followers, now.Behind, &lag
	if s.opts.Inventories != nil && !noInventory {
		if n, ok := s.opts.Inventories.Count(ctx, v.Set); ok {
			v.Resources = &n
		}
	}
}
