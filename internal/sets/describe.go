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

// maxDescription is the maximum size of the body that describes a set in bytes.
const maxDescription = 16 << 10

// A descriptionBody is the body of a PUT of a set. It replaces the whole description, unless
// complete is its only member.
type descriptionBody struct {
	Title        string `json:"title"`
	DescribedBy  string `json:"describedby"`
	ChangeList   string `json:"changelist"`
	ResourceList string `json:"resourcelist"`
	ResourceDump string `json:"resourcedump"`
	ChangeDump   string `json:"changedump"`
	Inventory    string `json:"inventory"` // "on" (default) or "off"
	Push         string `json:"push"`      // "on" (default) or "off"
	Sitemap      bool   `json:"sitemap"`   // whether robots.txt names the Resource List
	Private      bool   `json:"private"`   // whether the rights of anyone do not apply to the set
	Lastmod      string `json:"lastmod"`   // lastmod in Change Lists: "source" (default), "datetime" or "seconds"
	IndexNow     string `json:"indexnow"`  // URL of a search engine that is notified of changes
	Framework    bool   `json:"framework"` // whether the hub announces changes of the documents of the set
	Source       string `json:"source"`    // URL of a list of resources that the hub polls
	Every        string `json:"every"`     // poll interval, such as 15m
	Complete     *bool  `json:"complete"`  // whether the hub knows all resources; nil for no change

	CloudEvents feed.RawJSON `json:"cloudevents"` // mapping of the events of the source; checked by Options.CheckEvents

	every        time.Duration
	onlyComplete bool // whether Complete is the only member
}

// Intervals at which the hub polls a source.
const (
	minPollInterval     = time.Minute
	maxPollInterval     = 30 * 24 * time.Hour
	defaultPollInterval = time.Hour
)

// put applies the body of r to a set.
func (s *Server) put(w http.ResponseWriter, r *http.Request, set string) error {
	body, err := readDescription(http.MaxBytesReader(w, r.Body, maxDescription))
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
		return resourcesync.Invalidf("private: a hub without tokens cannot have private sets; set RSHUB_TOKENS_FILE or RSHUB_JWT_KEYS first")
	}
	if body.Source != "" && s.opts.Sources == nil {
		return resourcesync.Invalidf("source: this hub does not poll sources (RSHUB_POLL=off); use rspublish relay to poll one from any machine")
	}
	if body.Source != "" && s.opts.Inventories == nil {
		return fmt.Errorf("poll source: %w", feed.ErrNoInventory)
	}
	if body.Complete != nil && s.opts.Inventories == nil {
		return feed.ErrNoInventory
	}
	if body.Framework {
		if err := checkFramework(r.Context(), set, feed.FrameworkSet(set)); err != nil {
			return err
		}
	}
	if body.Private { // the channel becomes private before the set, and public after it
		if err := s.updateChannel(r.Context(), set, body); err != nil {
			return err
		}
	}
	if !body.onlyComplete {
		before, err := s.addSearchEngine(r.Context(), set, body.IndexNow)
		if err != nil {
			return err
		}
		if err = s.hub.Describe(r.Context(), set, body.description()); err == nil {
			err = s.removeSearchEngine(r.Context(), &before, body.IndexNow)
		}
		if err == nil && body.Framework && !body.Private {
			if err = s.updateChannel(r.Context(), set, body); err != nil {
				err = fmt.Errorf("%w: the set was described, but then: %v", feed.ErrUnknown, err)
			}
		}
		if body.Framework {
			s.opts.Announcer.Rescan()
		}
		if s.opts.Private != nil {
			s.opts.Private.Rescan()
		}
		if err != nil || body.Complete == nil {
			return err
		}
	}
	err = s.opts.Inventories.Complete(r.Context(), set, *body.Complete)
	if errors.Is(err, feed.ErrUnavailable) && !body.onlyComplete {
		err = fmt.Errorf("%w: the set was described, but then: %v", feed.ErrUnknown, err)
	}
	return err
}

// updateChannel creates or updates the channel, the set with the framework notifications of a set.
// If the set has no notifications, it does not create a channel, but still makes an existing one
// private or public like the set.
func (s *Server) updateChannel(ctx context.Context, set string, d *descriptionBody) error {
	channel := feed.FrameworkSet(set)
	if feed.CheckSet(channel) != nil {
		return nil // impossible as a name
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

// checkFramework returns an error if a set cannot have framework notifications in a channel, or the
// caller in ctx may not publish to the channel.
func checkFramework(ctx context.Context, set, channel string) error {
	if feed.IsFrameworkSet(set) {
		return resourcesync.Invalidf("framework: set %q is the channel of set %q and cannot have framework notifications", set, feed.TrimFramework(set))
	}
	if err := feed.CheckSet(channel); err != nil {
		return resourcesync.Wrap("framework", err)
	}
	return access.MayPublish(ctx, channel)
}

// addSearchEngine adds the search engine that is notified of the changes of a set, unless the URL
// is empty. It returns the state of the set before.
func (s *Server) addSearchEngine(ctx context.Context, set, engine string) (before feed.State, err error) {
	before, err = s.memory.State(ctx, set)
	if errors.Is(err, feed.ErrNoSet) {
		err = nil
	}
	if err == nil && engine != "" {
		initial := before
		initial.IndexNow = ""
		err = s.opts.SearchEngines.SetEngine(ctx, initial, set, engine)
	}
	return before, err
}

// removeSearchEngine stops the notifications of the search engine in the state before, unless that
// is engine. It is called after the set was described or deleted: if that fails, the search engine
// is still notified of changes.
func (s *Server) removeSearchEngine(ctx context.Context, before *feed.State, engine string) error {
	if before.IndexNow == "" || before.IndexNow == engine {
		return nil
	}
	if err := s.opts.SearchEngines.SetEngine(ctx, *before, before.Set, ""); err != nil {
		return fmt.Errorf("%w: the request was executed, but then: %v", feed.ErrUnknown, err)
	}
	return nil
}

// description returns the description in the body.
func (d *descriptionBody) description() feed.Description {
	return feed.Description{
		Title: d.Title, DescribedBy: d.DescribedBy, ChangeList: d.ChangeList,
		ResourceList: d.ResourceList, ResourceDump: d.ResourceDump, ChangeDump: d.ChangeDump,
		IndexNow: d.IndexNow, NoInventory: d.Inventory == "off", NoPush: d.Push == "off", Framework: d.Framework, Sitemap: d.Sitemap, Private: d.Private, Lastmod: feed.Lastmod(strings.TrimPrefix(d.Lastmod, "source")), Source: d.Source, Every: d.every, CloudEvents: d.CloudEvents,
	}
}

// readDescription reads and checks the body of a PUT.
func readDescription(body io.Reader) (*descriptionBody, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	d := &descriptionBody{}
	if err := resourcesync.DecodeJSON(text, d); err != nil {
		why, _, _ := strings.Cut(err.Error(), "; known members: ") // the error shows the whole form
		return nil, resourcesync.Invalidf(`invalid body: %s; want {"title": "…", "describedby": "URI", "changelist": "URL", "resourcelist": "URL", "resourcedump": "URL", "changedump": "URL", "inventory": "on" or "off", "push": "on" or "off", "sitemap": true or false, "private": true or false, "lastmod": "source", "datetime" or "seconds", "indexnow": "URL", "framework": true or false, "source": "URL", "every": "15m", "cloudevents": {"types": {}, "change": "POINTER", "loc": "URI"}, "complete": true or false}`, why)
	}
	var members map[string]any
	_ = json.Unmarshal(text, &members) // no error: the text was decoded as an object above
	d.onlyComplete = d.Complete != nil && len(members) == 1
	return d, d.check()
}

// check returns an error if the description is invalid.
func (d *descriptionBody) check() error {
	if len(d.Title) > 1000 || strings.ContainsFunc(d.Title, func(c rune) bool { return c < ' ' || c == 0xFFFD }) {
		return resourcesync.Invalidf("invalid title; want one line of at most 1,000 bytes")
	}
	for _, s := range []struct{ name, value string }{{"inventory", d.Inventory}, {"push", d.Push}} {
		if s.value != "" && s.value != "on" && s.value != "off" {
			return resourcesync.Invalidf("%s: got %q, want on or off", s.name, resourcesync.Shorten(s.value))
		}
	}
	switch d.Lastmod {
	case "", "source", string(feed.LastmodDatetime), string(feed.LastmodSeconds):
	default:
		return resourcesync.Invalidf("lastmod: got %q, want source, datetime or seconds", resourcesync.Shorten(d.Lastmod))
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
			return resourcesync.Invalidf("%s: invalid URI; want https:// or http://", link.name)
		}
		if err := resourcesync.CheckURI(link.name, link.uri); err != nil {
			return err
		}
		if u, err := url.Parse(link.uri); link.name != "describedby" && (err != nil || u.User != nil) {
			return resourcesync.Invalidf("%s: must not contain a user name or password; all followers of the set see it", link.name)
		}
	}
	return nil
}

// checkSource returns an error if the source cannot be polled as described. Otherwise it sets
// d.every.
func (d *descriptionBody) checkSource() error {
	if d.Source == "" {
		if d.Every != "" {
			return resourcesync.Invalidf("every requires a source; it is the interval at which the hub polls it")
		}
		return nil
	}
	if d.Inventory == "off" {
		return resourcesync.Invalidf("a set with a source requires an inventory; the hub compares the source with it")
	}
	if d.every = defaultPollInterval; d.Every != "" {
		every, err := setting.ParseDuration(d.Every)
		if err != nil {
			return resourcesync.Invalidf("every: got %q, want a duration such as 15m or 24h", resourcesync.Shorten(d.Every))
		}
		d.every = every
	}
	if d.every < minPollInterval || d.every > maxPollInterval {
		return resourcesync.Invalidf("every: got %v, want %v to %v", d.every, minPollInterval, maxPollInterval)
	}
	return nil
}
