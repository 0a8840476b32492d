package dialects

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// What a follower is told: its dialect, the topic, the file of its journal, and after how
// many events it kills itself.
const (
	asFollower = "RSHUB_E2E_FOLLOWER"
	ofHub      = "RSHUB_E2E_HUB"
	ofTopic    = "RSHUB_E2E_TOPIC"
	inJournal  = "RSHUB_E2E_JOURNAL"
	dieAfter   = "RSHUB_E2E_DIE"
)

// dialects are all ways to be told the changes of a set. Each connects and takes events until
// ctx is done, or something fails.
var dialects = map[string]func(f *follower, ctx context.Context) error{
	"websocket, JSON": (*follower).webSocketJSON,
	"websocket, XML":  (*follower).webSocketXML,
	"event stream":    (*follower).eventStream,
	"callback":        (*follower).callback,
	"change lists":    (*follower).changeLists,
	"atom":            (*follower).atom,
	"activitystreams": (*follower).activityStreams,
	"cloudevents":     (*follower).cloudEvents,
}

// An event is what every dialect says of a change.
type event struct {
	At     int64 // datetime of the hub, in microseconds
	Loc    string
	Change string
}

// newEvent reads the datetime of an event.
func newEvent(datetime, loc, change string) (event, error) {
	at, err := resourcesync.ParseTime(datetime)
	return event{at.UnixMicro(), loc, change}, err
}

// A follower is a process that knows nothing but the datetime of the last event in its
// journal: that is all that its next life needs, in whatever dialect.
type follower struct {
	hub, topic string // the URL of the hub that it asks, and the topic, whose URL is that of all hubs
	journal    *os.File
	last       int64             // datetime of the last event
	die        int               // so many events later it kills itself
	tags       map[string]string // ETags of documents that were read to their end, by URL
}

// beFollower is the main function of a follower. It ends when it is killed.
func beFollower() {
	f := &follower{hub: os.Getenv(ofHub), topic: os.Getenv(ofTopic), tags: map[string]string{}}
	f.die, _ = strconv.Atoi(os.Getenv(dieAfter))
	if err := f.open(os.Getenv(inJournal)); err != nil {
		fmt.Fprintln(os.Stderr, "follower:", err)
		os.Exit(1)
	}
	connect := dialects[os.Getenv(asFollower)]
	for {
		err := connect(f, context.Background())
		fmt.Fprintf(os.Stderr, "from %d: %v\n", f.last, err)
		clear(f.tags)
		<-time.After(20 * time.Millisecond) // the hub is away
	}
}

// open opens the journal behind its last whole line.
func (f *follower) open(name string) error {
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // a kill may have torn the last one
	if lines := bytes.Split(text, []byte("\n")); len(lines) > 1 {
		var e event
		if err := json.Unmarshal(lines[len(lines)-2], &e); err != nil {
			return err
		}
		f.last = e.At
	}
	if f.journal, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	if err := f.journal.Truncate(int64(len(text))); err != nil {
		return err
	}
	_, err = f.journal.Seek(0, io.SeekEnd)
	return err
}

// take writes events down, without those that it has already. They must come in order.
func (f *follower) take(events []event) error {
	var lines []byte
	var before int64
	for _, e := range events {
		if e.At <= before {
			return fmt.Errorf("an event of %d follows one of %d", e.At, before)
		}
		if before = e.At; e.At <= f.last {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		f.last, lines = e.At, append(append(lines, line...), '\n')
		if f.die--; f.die == 0 {
			_, _ = f.journal.Write(lines)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // in the middle of what it was told
			select {}
		}
	}
	_, err := f.journal.Write(lines)
	return err
}

// since is where the follower goes on: at the last event, which the hub repeats.
func (f *follower) since() string {
	if f.last == 0 {
		return "start"
	}
	return url.QueryEscape(string(resourcesync.AppendTimeMicro(nil, f.last)))
}

// here returns a URL at the hub that the follower asks. Links name the URL of all hubs, and
// nothing balances between them here.
func (f *follower) here(u string) string { return f.hub + u[strings.Index(u, "/sets/"):] }

// get reads a document. It is nil if it has not changed since f.read was called with tag.
func (f *follower) get(ctx context.Context, u, accept string) (body []byte, header http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.here(u), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", accept)
	if tag := f.tags[u]; tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, nil, err
	case resp.StatusCode == http.StatusNotModified:
		return nil, resp.Header, nil
	case resp.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("%s: %s: %s", u, resp.Status, body)
	}
	return body, resp.Header, nil
}

// poll calls round again and again. round reads the document at u if it has changed, and all
// that it leads to.
func (f *follower) poll(ctx context.Context, u string, round func(document []byte) error) error {
	for {
		document, header, err := f.get(ctx, u, "*/*")
		if err == nil && document != nil {
			err = round(document)
		}
		if err != nil {
			return err
		}
		f.tags[u] = header.Get("ETag")
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
