package dialect

import (
	"bytes"
	"net/http"
	"slices"
	"testing"

	"github.com/go-ap/activitypub"
	"github.com/mmcdole/gofeed"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// changed is a publish that readers must parse.
const changed = `{"changes":[
	{"loc":"https://example.org/a?x=1&y=%22","change":"created","type":"text/html","lastmod":"2026-01-02T03:04:05Z"},
	{"loc":"https://example.org/%C3%A9","change":"updated"},
	{"loc":"https://example.org/a?x=1&y=%22","change":"deleted"}]}`

// TestFeedParser parses the Atom feed, and its deliveries to subscribers, with a feed library.
func TestFeedParser(t *testing.T) {
	h := hubtest.StartHub(t, "RSHUB_CALLBACK_ALLOW=127.0.0.0/8")
	topic := h.URL + "/sets/news/atom.xml"
	c := trial.Serve(t, "127.0.0.1:0", nil).Add("")
	hubtest.Must(t, http.StatusOK, http.MethodPost, h.Topic("news"), []byte(changed), "Content-Type: application/json")
	feed := hubtest.Must(t, http.StatusOK, http.MethodGet, topic, nil)
	if links := trial.Links(feed.Header, "self"); !slices.Equal(links, []string{topic}) || !slices.Equal(trial.Links(feed.Header, "hub"), []string{h.URL + "/hub"}) {
		t.Errorf("Link of the feed = %q, want self and hub", feed.Header["Link"])
	}
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(trial.Form("subscribe", c.URL, topic, "rs.since", "start", "hub.secret", "hush").Encode()), trial.AsForm)
	var delivered trial.CallbackRequest
	hubtest.Until(t, "the feed is delivered", func() error {
		err := trial.CheckAnswered(c, trial.Delivery, 1)
		if err == nil {
			delivered = c.Requests(trial.Delivery)[0]
		}
		return err
	})
	if err := trial.CheckSignature(&delivered, "hush"); err != nil || trial.SelfOf(&delivered) != topic || delivered.Header.Get("Content-Type") != "application/atom+xml" {
		t.Errorf("got delivery with signature error %v, topic %s, type %s", err, trial.SelfOf(&delivered), delivered.Header.Get("Content-Type"))
	}
	for what, text := range map[string][]byte{"the feed": feed.Body, "the delivery": delivered.Body} {
		f, err := gofeed.NewParser().Parse(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, text)
		}
		var got []string
		ids := map[string]bool{}
		for _, item := range f.Items {
			got = append(got, item.Categories[0]+" "+item.Link)
			ids[item.GUID] = item.UpdatedParsed != nil
		}
		want := []string{"created https://example.org/a?x=1&y=%22", "updated https://example.org/%C3%A9", "deleted https://example.org/a?x=1&y=%22"}
		if !slices.Equal(got, want) || len(ids) != len(want) || f.FeedLink != topic || f.UpdatedParsed == nil || f.Title == "" || len(f.Authors) != 1 {
			t.Errorf("%s: got %q with IDs %v, want %q: %+v", what, got, ids, want, f)
		}
	}
}

// TestActivityStreamsLibrary reads the collection and its page with an ActivityStreams library.
func TestActivityStreamsLibrary(t *testing.T) {
	h := hubtest.StartHub(t)
	hubtest.Must(t, http.StatusOK, http.MethodPost, h.Topic("news"), []byte(changed), "Content-Type: application/json")
	read := func(url string) activitypub.Item {
		item, err := activitypub.UnmarshalJSON(hubtest.Must(t, http.StatusOK, http.MethodGet, url, nil).Body)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		return item
	}
	var last string
	if err := activitypub.OnOrderedCollection(read(h.URL+"/sets/news/activity/collection.json"), func(c *activitypub.OrderedCollection) error {
		if c.TotalItems != 3 || c.First.GetID() != c.Last.GetID() {
			t.Errorf("got collection %+v, want 3 items on one page", c)
		}
		last = c.Last.GetID().String()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := activitypub.OnOrderedCollectionPage(read(last), func(p *activitypub.OrderedCollectionPage) error {
		for _, item := range p.OrderedItems {
			if err := activitypub.OnActivity(item, func(a *activitypub.Activity) error {
				got = append(got, string(a.GetType())+" "+a.Object.GetID().String())
				if a.EndTime.IsZero() {
					t.Errorf("%s has no endTime", a.ID)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"Create https://example.org/a?x=1&y=%22", "Update https://example.org/%C3%A9", "Delete https://example.org/a?x=1&y=%22"}; !slices.Equal(got, want) {
		t.Errorf("got activities %q, want %q", got, want)
	}
}
