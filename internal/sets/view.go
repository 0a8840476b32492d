package sets

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/resourcesync"
)

// A View is a set as shown by the API.
type View struct {
	Set            string    `json:"set"`
	Title          string    `json:"title,omitempty"`
	DescribedBy    string    `json:"describedby,omitempty"`
	ChangeList     string    `json:"changelist,omitempty"`   // URL of the source; only for publishers and operators
	ResourceList   string    `json:"resourcelist,omitempty"` // URLs of the source, like the next two
	ResourceDump   string    `json:"resourcedump,omitempty"`
	ChangeDump     string    `json:"changedump,omitempty"`
	Inventory      string    `json:"inventory,omitempty"` // "off" if the description disables it
	Push           string    `json:"push,omitempty"`      // "off" if the Capability List does not name the push channel
	Sitemap        bool      `json:"sitemap,omitempty"`
	Private        bool      `json:"private,omitempty"`
	Framework      bool      `json:"framework,omitempty"`
	Lastmod        string    `json:"lastmod,omitempty"` // lastmod in Change Lists; empty for the source's
	Source         string    `json:"source,omitempty"`  // polled URL; like Every, only for publishers and operators
	Every          string    `json:"every,omitempty"`
	IndexNow       string    `json:"indexnow,omitempty"` // notified search engine; only for publishers and operators
	LastPoll       *LastPoll `json:"looked,omitempty"`   // result of the last poll of the source; only in the view of a single set
	Topic          string    `json:"topic"`
	CapabilityList string    `json:"capabilitylist"`
	By             string    `json:"by,omitempty"` // creator; only for operators
	Begin          string    `json:"begin"`        // start of the log
	Floor          string    `json:"floor"`        // cursor before the oldest stored change
	Head           string    `json:"head"`         // cursor of the newest change
	Changes        uint64    `json:"changes"`
	Updated        string    `json:"updated,omitempty"`   // datetime of the newest change
	Rate           *float64  `json:"rate,omitempty"`      // changes per second in the last minute; nil if unknown. Rate to Lag are details
	Resources      *uint64   `json:"resources,omitempty"` // number of resources at the last write of the inventory; nil if unknown
	Followers      *int      `json:"followers,omitempty"` // number of followers of this hub: connections and callbacks
	Behind         uint64    `json:"behind,omitempty"`    // number of changes that the slowest follower has not received
	Lag            *float64  `json:"lag,omitempty"`       // age of the oldest of these changes in seconds
	Recent         string    `json:"recent,omitempty"`    // cursor before the requested number of newest changes; only in the view of a single set

	CloudEvents feed.RawJSON `json:"cloudevents,omitempty"` // only for publishers and operators
}

// view returns a set as visible to a caller with the given rights.
func (s *Server) view(st feed.State, rights access.Rights) View {
	v := View{
		Set: st.Set, Title: st.Title, DescribedBy: st.DescribedBy,
		ResourceList: st.ResourceList, ResourceDump: st.ResourceDump, ChangeDump: st.ChangeDump,
		Topic: s.base.Topic(st.Set), CapabilityList: s.base.CapabilityList(st.Set),
		Begin: string(resourcesync.AppendTimeMicro(nil, st.Begin)),
		Floor: st.Floor.String(), Head: st.Head.String(), Changes: st.Head.Position - st.Floor.Position,
	}
	if rights.Publish(st.Set) || rights.Operate() {
		v.ChangeList, v.Source, v.IndexNow = st.ChangeList, st.Source, st.IndexNow // URLs may contain secrets
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

// addDetails adds activity, followers and the number of resources to a view.
func (s *Server) addDetails(ctx context.Context, v *View, noInventory bool) {
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
