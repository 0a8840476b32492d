package dialect

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// dialects are the ways to follow a set. Each continues at the cursor of a reader, and adds changes
// until that returns an error.
var dialects = []struct {
	name   string
	follow func(ctx context.Context, p *reader, callbacks *trial.Server) error
}{
	{"WebSocket", webSocket("rs.json", readJSON)},
	{"WebSocket of XML", webSocket("rs.xml", readXML)},
	{"event stream", eventStream},
	{"callback", callback},
	{"Change Lists", polled(changeLists)},
	{"Atom", polled(atom)},
	{"ActivityStreams", polled(activityStreams)},
	{"CloudEvents", webSocket("cloudevents.json", readEvent)},
}

// addEntries adds entries in JSON.
func (p *reader) addEntries(all []json.RawMessage) error {
	for _, raw := range all {
		var e struct {
			Position              uint64
			Datetime, Loc, Change string
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339Nano, e.Datetime)
		if err != nil {
			return err
		}
		if err := p.add(change{fmt.Sprintf("%d-%d", e.Position, at.UnixMicro()), e.Change, e.Loc}); err != nil {
			return err
		}
	}
	return nil
}

func readJSON(p *reader, text []byte) error {
	var m struct{ Changes []json.RawMessage }
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	return p.addEntries(m.Changes)
}

func readXML(p *reader, text []byte) error {
	l, err := trial.ReadList(text)
	if err != nil {
		return err
	}
	return p.addEntries(l.Changes)
}

func readEvent(p *reader, text []byte) error {
	var e struct{ ID, Type, Subject string }
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	what := e.Type[strings.LastIndexByte(e.Type, '.')+1:]
	if what == "cursor" {
		return nil
	}
	return p.add(change{e.ID, what, e.Subject})
}

// since returns the start for the reader.
func (p *reader) since() string {
	if p.position() == 0 {
		return "start"
	}
	return p.cursor
}

// webSocket follows over a WebSocket with a subprotocol.
func webSocket(protocol string, read func(*reader, []byte) error) func(context.Context, *reader, *trial.Server) error {
	return func(ctx context.Context, p *reader, _ *trial.Server) error {
		dialer := websocket.Dialer{Subprotocols: []string{protocol}}
		conn, _, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(p.hub.Topic(p.set), "http")+"?since="+p.since(), nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		for {
			_, text, err := conn.ReadMessage()
			if err == nil {
				err = read(p, text)
			}
			if err != nil {
				return err
			}
		}
	}
}

func eventStream(ctx context.Context, p *reader, _ *trial.Server) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.hub.Topic(p.set)+"?since=start", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	if p.position() > 0 {
		r.Header.Set("Last-Event-ID", p.cursor) // as in a browser: it has precedence
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := readJSON(p, []byte(data)); err != nil {
				return err
			}
		}
	}
}

// callback subscribes a new callback. When it is killed, it responds with 410 to end the subscription.
func callback(ctx context.Context, p *reader, callbacks *trial.Server) error {
	c := callbacks.Add("")
	done := make(chan error, 1)
	c.Respond(trial.Delivery, func(w http.ResponseWriter, a *trial.CallbackRequest, _ <-chan struct{}) {
		if err := readXML(p, a.Body); err != nil {
			w.WriteHeader(http.StatusGone)
			done <- err
		}
	})
	form := trial.Form("subscribe", c.URL, p.base+"/sets/"+p.set+"/changes", "rs.since", p.since())
	a, err := hubtest.Request(http.MethodPost, p.hub.URL+"/hub", strings.NewReader(form.Encode()), trial.AsForm)
	if err == nil && a.Status != http.StatusAccepted {
		err = fmt.Errorf("got status %d: %s", a.Status, a.Body)
	}
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// polled reads documents repeatedly.
func polled(read func(context.Context, *reader) error) func(context.Context, *reader, *trial.Server) error {
	return func(ctx context.Context, p *reader, _ *trial.Server) error {
		for {
			if err := read(ctx, p); err != nil {
				return err
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// get fetches a document.
func (p *reader) get(ctx context.Context, url string) ([]byte, error) {
	a, err := hubtest.Request(http.MethodGet, p.toHub(url), nil)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("GET %s = %d, want 200: %s", url, a.Status, a.Body)
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return a.Body, nil
}

func changeLists(ctx context.Context, p *reader) error {
	_, datetime, err := hubtest.SplitCursor(p.cursor)
	if err != nil {
		return err
	}
	next := p.base + "/sets/" + p.set + "/changelist.xml"
	if p.position() > 0 {
		next += "?from=" + url.QueryEscape(datetime)
	} else if next, err = p.firstList(ctx); err != nil {
		return err
	}
	text, err := p.get(ctx, next)
	if err != nil {
		return err
	}
	return readXML(p, text)
}

// firstList returns the URL of the first Change List.
func (p *reader) firstList(ctx context.Context) (string, error) {
	text, err := p.get(ctx, p.base+"/sets/"+p.set+"/changelist-index.xml")
	if err != nil {
		return "", err
	}
	l, err := trial.ReadList(text)
	if err != nil {
		return "", err
	}
	if len(l.Items) == 0 {
		return p.base + "/sets/" + p.set + "/changelist.xml", nil
	}
	return l.Items[0].Loc, nil
}

// backward reads documents from the newest to the one with the change after the cursor, and then
// adds their changes in order. read returns the changes of a document, and the URL of the previous
// document, or "".
func (p *reader) backward(ctx context.Context, newest string, read func(text []byte) (all []change, before string, err error)) error {
	var pages [][]change
	for at := newest; at != ""; {
		text, err := p.get(ctx, at)
		if err != nil {
			return err
		}
		page, before, err := read(text)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		pages = append(pages, page)
		if at = before; len(page) > 0 {
			position, _, err := hubtest.SplitCursor(page[0].cursor)
			if err != nil {
				return err
			}
			if position <= p.position()+1 {
				break
			}
		}
	}
	for _, page := range slices.Backward(pages) {
		for _, c := range page {
			if err := p.add(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func atom(ctx context.Context, p *reader) error {
	return p.backward(ctx, p.base+"/sets/"+p.set+"/atom.xml", func(text []byte) (all []change, before string, err error) {
		var feed struct {
			Links []struct {
				Rel  string `xml:"rel,attr"`
				Href string `xml:"href,attr"`
			} `xml:"http://www.w3.org/2005/Atom link"`
			Entries []struct {
				ID       string `xml:"id"`
				Category struct {
					Term string `xml:"term,attr"`
				} `xml:"category"`
				Link struct {
					Href string `xml:"href,attr"`
				} `xml:"link"`
			} `xml:"http://www.w3.org/2005/Atom entry"`
		}
		if err := xml.Unmarshal(text, &feed); err != nil {
			return nil, "", err
		}
		for _, l := range feed.Links {
			if l.Rel == "prev-archive" {
				before = l.Href
			}
		}
		for _, e := range feed.Entries {
			_, cursor, _ := strings.Cut(e.ID, "#")
			all = append(all, change{cursor, e.Category.Term, e.Link.Href})
		}
		return all, before, nil
	})
}

// activities are the types of changes by type of activity.
var activities = map[string]string{"Create": "created", "Update": "updated", "Delete": "deleted"}

func activityStreams(ctx context.Context, p *reader) error {
	type page struct {
		Last, Prev struct{ ID string }
		Items      []struct {
			ID, Type string
			Object   struct{ ID string }
		} `json:"orderedItems"`
	}
	text, err := p.get(ctx, p.base+"/sets/"+p.set+"/activity/collection.json")
	var collection page
	if err == nil {
		err = json.Unmarshal(text, &collection)
	}
	if err != nil {
		return err
	}
	return p.backward(ctx, collection.Last.ID, func(text []byte) (all []change, before string, err error) {
		var is page
		if err := json.Unmarshal(text, &is); err != nil {
			return nil, "", err
		}
		for _, a := range is.Items {
			_, cursor, _ := strings.Cut(a.ID, "#")
			all = append(all, change{cursor, activities[a.Type], a.Object.ID})
		}
		return all, is.Prev.ID, nil
	})
}
