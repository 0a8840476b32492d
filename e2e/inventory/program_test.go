package inventory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/diskpages"
	"github.com/rshub/rshub/resourcesync"
)

// What a destination is told: the way in which it follows, the topic, its directory, and
// after how many messages it kills itself; below zero, before it has written that one
// down.
const (
	asDestination = "RSHUB_E2E_DESTINATION"
	ofHub         = "RSHUB_E2E_HUB"
	ofSet         = "RSHUB_E2E_SET"
	inDirectory   = "RSHUB_E2E_DIRECTORY"
	dieAfter      = "RSHUB_E2E_DIE"
)

// The ways in which a destination follows.
const (
	byWebSocket = "websocket"
	byEvents    = "event stream"
	byReplica   = "replica"
)

// journalFile has a line for each message that a destination took.
const journalFile = "journal"

// A program is a destination in a process of its own. It keeps a journal of what it was
// told, and nothing else; a replica keeps its inventory besides.
type program struct {
	hub, set, dir string
	place         string // where to go on
	journal       *os.File
	written, die  int // messages
}

// beDestination is the main function of a destination. It ends with SIGTERM, or when the
// destination kills itself.
func beDestination() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := &program{hub: os.Getenv(ofHub), set: os.Getenv(ofSet), dir: os.Getenv(inDirectory), place: feed.SinceBaseline}
	p.die, _ = strconv.Atoi(os.Getenv(dieAfter))
	err := p.open()
	if err == nil {
		switch way := os.Getenv(asDestination); way {
		case byReplica:
			err = p.replicate(ctx)
		case byEvents:
			p.follow(ctx, p.events)
		default:
			p.follow(ctx, p.webSocket)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "destination:", err)
		os.Exit(1)
	}
}

// open opens the journal behind its last whole line, and goes on where that ended.
func (p *program) open() error {
	name := filepath.Join(p.dir, journalFile)
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // a kill may have torn the last one
	for l := range bytes.Lines(text) {
		var m struct{ Cursor string }
		if err := json.Unmarshal(l, &m); err != nil {
			return fmt.Errorf("the journal: %s: %w", l, err)
		}
		p.place = m.Cursor
	}
	if p.journal, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	if err := p.journal.Truncate(int64(len(text))); err != nil {
		return err
	}
	_, err = p.journal.Seek(0, io.SeekEnd)
	return err
}

// write writes a message down.
func (p *program) write(message []byte) error {
	if p.written++; p.written == -p.die {
		p.kill()
	}
	_, err := p.journal.Write(append(bytes.TrimSpace(message), '\n'))
	if p.written == p.die {
		p.kill()
	}
	return err
}

// kill ends the process as kill -9 does.
func (p *program) kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// errGone means that the hub does not have what follows the place any more.
var errGone = errors.New("gone")

// follow connects until ctx is done.
func (p *program) follow(ctx context.Context, connect func(context.Context) error) {
	for ctx.Err() == nil {
		err := connect(ctx)
		fmt.Fprintf(os.Stderr, "from %s: %v\n", p.place, err)
		if errors.Is(err, errGone) {
			if err := p.take([]byte(`{"anew":true,"cursor":"` + feed.SinceBaseline + `"}`)); err != nil {
				fmt.Fprintln(os.Stderr, "destination:", err)
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (p *program) topic() string { return p.hub + "/sets/" + p.set + "/changes?since=" + p.place }

// take takes a message.
func (p *program) take(message []byte) error {
	var m struct{ Cursor string }
	if err := json.Unmarshal(message, &m); err != nil {
		return fmt.Errorf("%s: %w", message, err)
	}
	if err := p.write(message); err != nil {
		return err
	}
	p.place = m.Cursor
	return nil
}

func (p *program) webSocket(ctx context.Context) error {
	conn, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(p.topic(), "http"), nil)
	if err != nil {
		if resp != nil {
			b, _ := io.ReadAll(resp.Body)
			err = fmt.Errorf("%w: %s %s", err, resp.Status, b)
			if resp.StatusCode == http.StatusGone {
				err = fmt.Errorf("%w: %w", errGone, err)
			}
		}
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for {
		_, message, err := conn.ReadMessage()
		if websocket.IsCloseError(err, 4410) {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		if err == nil {
			err = p.take(message)
		}
		if err != nil {
			return err
		}
	}
}

func (p *program) events(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.topic(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if p.place != feed.SinceBaseline { // as a browser does it: the URL stays, the header wins
		req.URL.RawQuery = "since=" + feed.SinceBaseline
		req.Header.Set("Last-Event-ID", p.place)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		err := fmt.Errorf("%s %s", resp.Status, b)
		if resp.StatusCode == http.StatusGone {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
		return err
	}
	in := bufio.NewReaderSize(resp.Body, 1<<20)
	event, id, data := "", "", ""
	for {
		l, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), ": "); name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			data += value
		case "":
			if event == "gone" {
				return fmt.Errorf("%w: %s", errGone, data)
			}
			if data != "" {
				if err := p.take([]byte(data)); err != nil {
					return err
				}
				if id != p.place {
					return fmt.Errorf("the event %s has the cursor %s", id, p.place)
				}
			}
			event, data = "", ""
		}
	}
}

// An update is what the journal of a replica has for an update.
type update struct {
	Update   bool
	Baseline bool
	Cursor   string
	Entries  []line
}

// replicate follows with an inventory on the disk.
func (p *program) replicate(ctx context.Context) error {
	store, err := diskpages.Open(filepath.Join(p.dir, "pages"), diskpages.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	c, err := client.New(p.hub, client.Options{Sleep: soon})
	if err != nil {
		return err
	}
	r, err := c.OpenReplica(ctx, p.set, store, client.ReplicaOptions{MaxDelete: -1})
	if err != nil {
		return err
	}
	for u, err := range r.Follow(ctx) {
		if err != nil {
			return err
		}
		done := update{Update: true, Baseline: u.Baseline, Cursor: p.place}
		if !u.Cursor.IsZero() {
			done.Cursor = u.Cursor.String()
		}
		for i := range u.Entries {
			done.Entries = append(done.Entries, lineOf(&u.Entries[i]))
		}
		text, err := json.Marshal(done)
		if err == nil {
			err = p.take(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// soon waits for less than it should: hubs of tests are back soon.
func soon(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(min(d, 50*time.Millisecond)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lineOf is what matters of an entry.
func lineOf(e *feed.Entry) line {
	l := line{Position: e.Position, Loc: e.Change.Loc, Change: string(e.Change.Change), Hash: e.Change.Hash, Length: e.Change.Length}
	if !e.Change.Lastmod.IsZero() {
		l.Lastmod = string(resourcesync.AppendTime(nil, e.Change.Lastmod))
	}
	return l
}
