package sets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/setting"
	"github.com/rshub/rshub/resourcesync"
)

// maxDescription bounds the body that describes a set, in bytes.
const maxDescription = 16 << 10

// A described is the body of a PUT of a set. It replaces the whole description, unless it
// has no other member than complete.
type described struct {
	Title        string `json:"title"`
	DescribedBy  string `json:"describedby"`
	ChangeList   string `json:"changelist"`
	ResourceList string `json:"resourcelist"`
	ResourceDump string `json:"resourcedump"`
	ChangeDump   string `json:"changedump"`
	Inventory    string `json:"inventory"` // "on", which is the default, or "off"
	Push         string `json:"push"`      // "on", which is the default, or "off"
	Sitemap      bool   `json:"sitemap"`   // robots.txt names the Resource List
	Private      bool   `json:"private"`   // what anyone may do does not count for the set
	Lastmod      string `json:"lastmod"`   // of Change Lists: "source", which is the default, "datetime" or "seconds"
	IndexNow     string `json:"indexnow"`  // URL of a search engine that is told of changes
	Framework    bool   `json:"framework"` // the hub announces what changes in the set's documents
	Source       string `json:"source"`    // URL of a list of resources that the hub polls
	Every        string `json:"every"`     // how often, such as 15m
	Complete     *bool  `json:"complete"`  // whether the hub knows all resources; nil: that stays as it is

	CloudEvents feed.RawJSON `json:"cloudevents"` // what the events of the source mean; Options.CheckEvents knows it

	every time.Duration
	alone bool // Complete is the only member
}

// How often the hub polls a source.
const (
	pollAtLeast = time.Minute
	pollAtMost  = 30 * 24 * time.Hour
	pollEvery   = time.Hour // unless the description says it
)

// put does what the body of r says of a set.
func (s *Server) put(w http.ResponseWriter, r *http.Request, set string) error {
	body, err := readDescribed(http.MaxBytesReader(w, r.Body, maxDescription))
	if err != nil {
		return err
	}
	for _, own := range []struct{ name, url string }{{"changelist", body.ChangeList}, {"source", body.Source}} {
		if own.url == "" {
			continue
		}
		if err := s.opts.Fetcher.Check(own.name, own.url); err != nil { // the hub fetches it
			return err
		}
	}
	if s.opts.CheckEvents != nil {
		if err := s.opts.CheckEvents(string(body.CloudEvents)); err != nil {
			return resourcesync.Wrap("cloudevents", err)
		}
	}
	if body.Private && s.opts.Private == nil {
		return resourcesync.Invalidf("private: a hub without tokens shows everybody everything; set RSHUB_TOKENS_FILE or RSHUB_JWT_KEYS first")
	}
	if body.Source != "" && s.opts.Sources == nil {
		return resourcesync.Invalidf("source: this hub polls no sources (RSHUB_POLL=off); rspublish relay polls one from any machine")
	}
	if body.Source != "" && s.opts.Inventories == nil {
		return fmt.Errorf("the hub cannot poll a source: %w", feed.ErrNoInventory)
	}
	if body.Complete != nil && s.opts.Inventories == nil {
		return feed.ErrNoInventory
	}
	if body.Framework {
		if err := mayAnnounce(r.Context(), set, feed.FrameworkSet(set)); err != nil {
			return err
		}
	}
	if body.Private { // the channel is private before the set is, and public after the set is
		if err := s.channel(r.Context(), set, body); err != nil {
			return err
		}
	}
	if !body.alone {
		before, err := s.tell(r.Context(), set, body.IndexNow)
		if err != nil {
			return err
		}
		if err = s.hub.Describe(r.Context(), set, body.description()); err == nil {
			err = s.untell(r.Context(), &before, body.IndexNow)
		}
		if err == nil && body.Framework && !body.Private {
			if err = s.channel(r.Context(), set, body); err != nil {
				err = fmt.Errorf("%w: the set was described, and then: %v", feed.ErrUnknown, err)
			}
		}
		if body.Framework {
			s.opts.Announcer.Described()
		}
		if s.opts.Private != nil {
			s.opts.Private.Look()
		}
		if err != nil || body.Complete == nil {
			return err
		}
	}
	err = s.opts.Inventories.Complete(r.Context(), set, *body.Complete)
	if errors.Is(err, feed.ErrUnavailable) && !body.alone {
		err = fmt.Errorf("%w: the set was described, and then: %v", feed.ErrUnknown, err)
	}
	return err
}

// channel makes the set of the framework notifications of a set, if the set has any. It is private
// if the set is, also if the set wants no more of them.
func (s *Server) channel(ctx context.Context, set string, d *described) error {
	channel := feed.FrameworkSet(set)
	if feed.CheckSet(channel) != nil {
		return nil // there cannot be one
	}
	st, err := s.memory.State(ctx, channel)
	switch {
	case errors.Is(err, feed.ErrNoSet) && !d.Framework:
		return nil
	case errors.Is(err, feed.ErrNoSet):
		st.Title = "Documents of set " + set
	case err != nil || st.Private == d.Private:
		return err
	}
	st.Private = d.Private
	return s.hub.Describe(ctx, channel, st.Description)
}

// mayAnnounce returns an error if a set cannot have framework notifications in a channel.
func mayAnnounce(ctx context.Context, set, channel string) error {
	if feed.IsFrameworkSet(set) {
		return resourcesync.Invalidf("framework: set %q has the framework notifications of set %q, and none of its own", set, feed.TrimFramework(set))
	}
	if err := feed.CheckSet(channel); err != nil {
		return resourcesync.Wrap("framework", err)
	}
	return access.MayPublish(ctx, channel)
}

// tell makes a search engine be told of what changes in a set, unless the URL is empty.
func (s *Server) tell(ctx context.Context, set, engine string) (before feed.State, err error) {
	before, err = s.memory.State(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		err = nil
	}
	if err == nil && engine != "" {
		is := before
		is.IndexNow = ""
		err = s.opts.SearchEngines.Tell(ctx, is, set, engine)
	}
	return before, err
}

// untell ends what tells a search engine of a set as it was, unless it is that one. The set is
// described or deleted first: if that fails, the search engine goes on to hear of changes.
func (s *Server) untell(ctx context.Context, before *feed.State, engine string) error {
	if before.IndexNow == "" || before.IndexNow == engine {
		return nil
	}
	if err := s.opts.SearchEngines.Tell(ctx, *before, before.Set, ""); err != nil {
		return fmt.Errorf("%w: it was carried out, and then: %v", feed.ErrUnknown, err)
	}
	return nil
}

func (d *described) description() feed.Description {
	return feed.Description{
		Title: d.Title, DescribedBy: d.DescribedBy, ChangeList: d.ChangeList,
		ResourceList: d.ResourceList, ResourceDump: d.ResourceDump, ChangeDump: d.ChangeDump,
		IndexNow: d.IndexNow, NoInventory: d.Inventory == "off", NoPush: d.Push == "off", Framework: d.Framework, Sitemap: d.Sitemap, Private: d.Private, Lastmod: feed.Lastmod(strings.TrimPrefix(d.Lastmod, "source")), Source: d.Source, Every: d.every, CloudEvents: d.CloudEvents,
	}
}

func readDescribed(body io.Reader) (*described, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	d := &described{}
	if err := resourcesync.DecodeJSON(text, d); err != nil {
		why, _, _ := strings.Cut(err.Error(), "; known members: ") // they are in the form
		return nil, resourcesync.Invalidf(`the body is not {"title": "…", "describedby": "URI", "changelist": "URL", "resourcelist": "URL", "resourcedump": "URL", "changedump": "URL", "inventory": "on" or "off", "push": "on" or "off", "sitemap": true or false, "private": true or false, "lastmod": "source", "datetime" or "seconds", "indexnow": "URL", "framework": true or false, "source": "URL", "every": "15m", "cloudevents": {"types": {}, "change": "POINTER", "loc": "URI"}, "complete": true or false}: %s`, why)
	}
	var members map[string]any
	_ = json.Unmarshal(text, &members) // it could be read as an object before
	d.alone = d.Complete != nil && len(members) == 1
	return d, d.check()
}

// check returns an error if a description cannot be shown.
func (d *described) check() error {
	if len(d.Title) > 1000 || strings.ContainsFunc(d.Title, func(c rune) bool { return c < ' ' || c == 0xFFFD }) {
		return resourcesync.Invalidf("title is one line of at most 1,000 bytes")
	}
	for _, s := range []struct{ name, is string }{{"inventory", d.Inventory}, {"push", d.Push}} {
		if s.is != "" && s.is != "on" && s.is != "off" {
			return resourcesync.Invalidf("%s is on or off, not %q", s.name, resourcesync.Shorten(s.is))
		}
	}
	switch d.Lastmod {
	case "", "source", string(feed.LastmodDatetime), string(feed.LastmodSeconds):
	default:
		return resourcesync.Invalidf("lastmod is source, datetime or seconds, not %q", resourcesync.Shorten(d.Lastmod))
	}
	if d.Inventory == "off" && d.Complete != nil && *d.Complete {
		return resourcesync.Invalidf("a set without an inventory cannot be complete")
	}
	if err := d.checkSource(); err != nil {
		return err
	}
	for _, link := range []struct{ name, uri string }{ // the hub's page and documents link to them
		{"describedby", d.DescribedBy}, {"resourcelist", d.ResourceList}, {"resourcedump", d.ResourceDump}, {"changedump", d.ChangeDump},
	} {
		if link.uri == "" {
			continue
		}
		if !strings.HasPrefix(link.uri, "https://") && !strings.HasPrefix(link.uri, "http://") {
			return resourcesync.Invalidf("%s is a URI that begins with https:// or http://", link.name)
		}
		if err := resourcesync.CheckURI(link.name, link.uri); err != nil {
			return err
		}
		if u, err := url.Parse(link.uri); link.name != "describedby" && (err != nil || u.User != nil) {
			return resourcesync.Invalidf("%s must have no user name or password: everybody who follows the set sees it", link.name)
		}
	}
	return nil
}

// checkSource returns an error if a source cannot be polled as the description says. Else it
// sets d.every.
func (d *described) checkSource() error {
	if d.Source == "" {
		if d.Every != "" {
			return resourcesync.Invalidf("every needs a source: it says how often the hub polls it")
		}
		return nil
	}
	if d.Inventory == "off" {
		return resourcesync.Invalidf("a set with a source needs an inventory: the hub compares the source with it")
	}
	if d.every = pollEvery; d.Every != "" {
		every, err := setting.ParseDuration(d.Every)
		if err != nil {
			return resourcesync.Invalidf("every is a duration such as 15m or 24h, not %q", resourcesync.Shorten(d.Every))
		}
		d.every = every
	}
	if d.every < pollAtLeast || d.every > pollAtMost {
		return resourcesync.Invalidf("every is %v; it must be from %v to %v", d.every, pollAtLeast, pollAtMost)
	}
	return nil
}
