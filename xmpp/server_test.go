package xmpp

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/resourcesync"
)

const base = feed.Base("https://hub.example.org")

var account = Account{Server: "xmpp.example.org:5347", Domain: "rshub.example.org", Secret: "s3cret", Service: "pubsub.example.org"}

func TestMain(m *testing.M) { memorytest.Main(m) }

// A wanted is an iq that a fake server got.
type wanted struct {
	ID, Type, From, To string
	node, item         string
	creates            bool
	configured         bool
	payload            document
	size               int // about, in bytes
}

// A document is a payload.
type document struct {
	Md struct {
		After    string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
		Cursor   string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
		Gap      string `xml:"https://github.com/rshub/rshub/terms/ gap,attr"`
		Diverged string `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
	} `xml:"http://www.openarchives.org/rs/terms/ md"`
	URL []struct {
		Loc string `xml:"loc"`
	} `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 url"`
}

// A fake is a server for faults on the wire. It speaks as it is told.
type fake struct {
	t        testing.TB
	mu       sync.Mutex
	down     bool
	dials    int
	got      []wanted
	answer   func(n int, w wanted) string // under mu; the answer to the nth iq; "": a result; "drop": the connection ends; "silence": none
	greeting string                       // instead of the handshake
	conns    []net.Conn
	wg       sync.WaitGroup
}

const (
	drop    = "drop"
	silence = "silence"
)

// refused returns an answer that is an error.
func refused(w wanted, condition, specific string) string {
	if specific != "" {
		specific = "<" + specific + " xmlns='" + nsPubsubErrs + "'/>"
	}
	return fmt.Sprintf("<iq type='error' id='%s' from='%s' to='%s'><error type='cancel'><%s xmlns='%s'/><text xmlns='%s'>as told</text>%s</error></iq>", w.ID, w.To, w.From, condition, nsStanzas, nsStanzas, specific)
}

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	if f.down {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	f.conns = append(f.conns, theirs)
	f.wg.Go(func() { defer theirs.Close(); f.serve(theirs) })
	return ours, nil
}

// A counted counts what is read.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func (f *fake) serve(conn net.Conn) {
	in := &counted{Reader: conn}
	d := xml.NewDecoder(in)
	for {
		t, err := d.Token()
		if err != nil {
			return
		}
		e, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		switch e.Name.Local {
		case "stream":
			fmt.Fprintf(conn, "<?xml version='1.0'?><stream:stream xmlns='%s' xmlns:stream='%s' id='id&amp;1' from='%s'>", nsComponent, nsStreams, attr(e, "to"))
		case "handshake":
			var text string
			_ = d.DecodeElement(&text, &e)
			sum := sha1.Sum([]byte("id&1" + account.Secret))
			switch {
			case text != hex.EncodeToString(sum[:]):
				fmt.Fprintf(conn, "<stream:error><not-authorized xmlns='%s'/></stream:error></stream:stream>", nsStreamErrs)
				return
			case f.greeting != "":
				fmt.Fprint(conn, f.greeting)
				return
			}
			fmt.Fprint(conn, " \n<handshake/>")
		case "iq":
			before := in.n
			var iq struct {
				Type   string `xml:"type,attr"`
				Pubsub struct {
					Publish struct {
						Node string `xml:"node,attr"`
						Item struct {
							ID     string   `xml:"id,attr"`
							Urlset document `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 urlset"`
						} `xml:"item"`
					} `xml:"publish"`
					Create *struct {
						Node string `xml:"node,attr"`
					} `xml:"create"`
					Configure *struct{} `xml:"configure"`
				} `xml:"http://jabber.org/protocol/pubsub pubsub"`
			}
			if err := d.DecodeElement(&iq, &e); err != nil {
				return
			}
			p := &iq.Pubsub.Publish
			w := wanted{ID: attr(e, "id"), Type: iq.Type, From: attr(e, "from"), To: attr(e, "to"), node: p.Node, item: p.Item.ID, payload: p.Item.Urlset, size: in.n - before}
			if c := iq.Pubsub.Create; c != nil {
				w.creates, w.node, w.configured = true, c.Node, iq.Pubsub.Configure != nil
			}
			f.mu.Lock()
			f.got = append(f.got, w)
			text := ""
			if f.answer != nil {
				text = f.answer(len(f.got), w)
			}
			f.mu.Unlock()
			switch text {
			case "":
				text = fmt.Sprintf("<iq type='result' id='%s' from='%s' to='%s'/>", w.ID, w.To, w.From)
			case drop:
				return
			case silence:
				continue
			}
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	}
}

// published returns what it got for a node.
func (f *fake) published() []wanted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.got), func(w wanted) bool { return w.creates || w.Type != "set" })
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// hang ends all connections.
func (f *fake) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
}

// A world is a hub with a memory on the disk, a Publisher, and a fake server.
type world struct {
	t       *testing.T
	log     *disklog.Log
	hub     *hub.Hub
	fake    *fake
	metrics *prometheus.Registry
	logged  *logged.Log
	cursors cursors.Cursors
	stop    func()
}

// inWorld calls do in fake time.
func inWorld(t *testing.T, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, log: memorytest.Open(t), fake: &fake{t: t}, logged: new(logged.Log)}
		w.hub = hub.New(w.log, hub.Options{Base: base})
		defer w.hub.Close()
		defer w.fake.wg.Wait()
		defer w.fake.hang()
		do(w)
		if w.stop != nil {
			w.stop()
		}
	})
}

// start starts a Publisher of the set demo.
func (w *world) start(o Options) {
	w.t.Helper()
	keep := w.log.Keep("xmpp")
	claims, err := claim.OpenLocal(w.t.Context(), keep, Shards)
	if err != nil {
		w.t.Fatal(err)
	}
	w.metrics = prometheus.NewRegistry()
	w.cursors = cursors.OnDisk(keep, claims)
	o.Dial, o.Metrics, o.Logger = w.fake.dial, w.metrics, w.logged.Logger(slog.LevelInfo)
	p := New([]string{"demo"}, base, account, w.hub, w.log, w.cursors, claims, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	w.stop = func() { cancel(); <-done; w.stop = nil }
}

// publish publishes changes to the hub.
func (w *world) publish(names ...string) feed.Cursor {
	w.t.Helper()
	var changes []resourcesync.Change
	for _, name := range names {
		changes = append(changes, resourcesync.Change{Loc: "https://example.org/" + name, Change: resourcesync.Updated})
	}
	a, err := w.hub.Publish(w.t.Context(), "demo", changelog.Publish{Changes: changes})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Cursor
}

// locs returns what the node got, in order, with "|" between items and the gaps in between.
func (w *world) locs() (text string) {
	for _, p := range w.fake.published() {
		text += "|"
		if p.payload.Md.Gap != "" {
			text += "gap " + p.payload.Md.Gap
		}
		for _, u := range p.payload.URL {
			text += u.Loc[len("https://example.org/"):]
		}
	}
	return text
}

// is checks what the node got.
func (w *world) is(want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.locs(); got != want {
		w.t.Errorf("the node got %s, want %s", got, want)
	}
}

// kept checks which cursor is kept.
func (w *world) kept(want feed.Cursor) {
	w.t.Helper()
	if at, _, err := w.cursors.Get(w.t.Context(), "demo"); err != nil || at != want {
		w.t.Errorf("the cursor is %v, %v; want %v", at, err, want)
	}
}
