package dialects

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/rshub/rshub/conformance/trial"
)

// document is the URL of a document of the set.
func (f *follower) document(name string) string {
	return strings.TrimSuffix(f.topic, "changes") + name
}

// changeLists reads the index, and each list that ends behind the last event.
func (f *follower) changeLists(ctx context.Context) error {
	return f.poll(ctx, f.document("changelist-index.xml"), func(document []byte) error {
		index, err := trial.ReadList(document)
		if err != nil {
			return err
		}
		for i := range index.Items {
			it := &index.Items[i]
			if !it.Until.IsZero() && it.Until.UnixMicro() <= f.last {
				continue
			}
			list, _, err := f.get(ctx, it.Loc, "*/*")
			if err == nil {
				err = f.takeXML(list)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// back reads from the newest page back to the one that has the last event, and takes what
// is behind that. read returns the events of a page, the newest first, and the URL of the page before.
func (f *follower) back(ctx context.Context, page []byte, read func(page []byte) (events []event, before string, err error)) error {
	var all []event
	for {
		events, before, err := read(page)
		if err != nil {
			return err
		}
		all = append(all, events...)
		if before == "" || len(all) > 0 && all[len(all)-1].At <= f.last {
			break
		}
		if page, _, err = f.get(ctx, before, "*/*"); err != nil {
			return err
		}
	}
	slices.Reverse(all)
	return f.take(all)
}

// atom reads the feed, and its archive.
func (f *follower) atom(ctx context.Context) error {
	return f.poll(ctx, f.document("atom.xml"), func(document []byte) error {
		return f.back(ctx, document, readFeed)
	})
}

// readFeed reads the entries of a feed, and deletions between them.
func readFeed(page []byte) (events []event, before string, err error) {
	type link struct {
		Rel  string `xml:"rel,attr"`
		Href string `xml:"href,attr"`
	}
	var feed struct {
		Children []struct {
			XMLName xml.Name
			link           // of a link
			ID      string `xml:"id"`
			Updated string `xml:"updated"`
			Summary string `xml:"summary"`
			Ref     string `xml:"ref,attr"`
			When    string `xml:"when,attr"`
		} `xml:",any"`
	}
	if err := xml.Unmarshal(page, &feed); err != nil {
		return nil, "", fmt.Errorf("%s: %w", page, err)
	}
	for _, c := range feed.Children {
		var e event
		switch {
		case c.XMLName.Local == "link" && c.Rel == "prev-archive":
			before = c.Href
			continue
		case c.XMLName.Local == "entry":
			e, err = newEvent(c.Updated, c.ID, c.Summary)
		case c.XMLName.Local == "deleted-entry":
			e, err = newEvent(c.When, c.Ref, "deleted")
		default:
			continue
		}
		if err != nil {
			return nil, "", err
		}
		events = append(events, e)
	}
	return events, before, nil
}

// activityStreams begins at the last page of the collection.
func (f *follower) activityStreams(ctx context.Context) error {
	return f.poll(ctx, f.document("activity/collection.json"), func(document []byte) error {
		var collection struct{ Last struct{ ID string } }
		if err := json.Unmarshal(document, &collection); err != nil {
			return err
		}
		if collection.Last.ID == "" {
			return nil // it is empty
		}
		page, _, err := f.get(ctx, collection.Last.ID, "*/*")
		if err != nil {
			return err
		}
		return f.back(ctx, page, readPage)
	})
}

// readPage reads a page of activities.
func readPage(page []byte) (events []event, before string, err error) {
	var p struct {
		Prev         struct{ ID string }
		OrderedItems []struct {
			Type, EndTime string
			Object        struct{ ID string }
		}
	}
	if err := json.Unmarshal(page, &p); err != nil {
		return nil, "", fmt.Errorf("%s: %w", page, err)
	}
	kinds := map[string]string{"Create": "created", "Update": "updated", "Delete": "deleted"}
	for _, it := range slices.Backward(p.OrderedItems) {
		e, err := newEvent(it.EndTime, it.Object.ID, kinds[it.Type])
		if err != nil {
			return nil, "", err
		}
		events = append(events, e)
	}
	return events, p.Prev.ID, nil
}

// cloudEvents goes from page to page of events.
func (f *follower) cloudEvents(ctx context.Context) error {
	for next := f.topic + "?since=" + f.since(); ; {
		page, header, err := f.get(ctx, next, "application/cloudevents-batch+json")
		if err != nil {
			return err
		}
		var batch []struct{ Type, Subject, Time string }
		if err := json.Unmarshal(page, &batch); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		var events []event
		for _, c := range batch {
			e, err := newEvent(c.Time, c.Subject, strings.TrimPrefix(c.Type, "com.github.rshub."))
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		if err := f.take(events); err != nil {
			return err
		}
		next = ""
		for _, link := range header.Values("Link") {
			if target, ok := strings.CutSuffix(link, `>; rel="next"`); ok {
				next = strings.TrimPrefix(target, "<")
			}
		}
		if next == "" {
			return fmt.Errorf("a page without a next one: %q", header.Values("Link"))
		}
		if len(events) == 0 && !strings.Contains(next, "&wait=") {
			next += "&wait=10s"
		}
	}
}
