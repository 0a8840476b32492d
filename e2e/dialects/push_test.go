package dialects

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/conformance/trial"
)

func (f *follower) webSocketJSON(ctx context.Context) error {
	return f.webSocket(ctx, "rs.json", f.takeJSON)
}

func (f *follower) webSocketXML(ctx context.Context) error {
	return f.webSocket(ctx, "rs.xml", f.takeXML)
}

func (f *follower) webSocket(ctx context.Context, subprotocol string, take func(message []byte) error) error {
	dialer := websocket.Dialer{Subprotocols: []string{subprotocol}}
	conn, _, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(f.here(f.topic), "http")+"?since="+f.since(), nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for {
		_, message, err := conn.ReadMessage()
		if err == nil {
			err = take(message)
		}
		if err != nil {
			return err
		}
	}
}

// takeJSON takes an object with changes.
func (f *follower) takeJSON(message []byte) error {
	var m struct {
		Changes []struct{ Datetime, Loc, Change string }
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return fmt.Errorf("%s: %w", message, err)
	}
	var events []event
	for _, c := range m.Changes {
		e, err := newEvent(c.Datetime, c.Loc, c.Change)
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	return f.take(events)
}

// takeXML takes a Change Notification or a Change List.
func (f *follower) takeXML(message []byte) error {
	l, err := trial.ReadList(message)
	if err != nil {
		return fmt.Errorf("%s: %w", message, err)
	}
	var events []event
	for i := range l.Items {
		it := &l.Items[i]
		events = append(events, event{it.Datetime.UnixMicro(), it.Loc, string(it.Change.Change)})
	}
	return f.take(events)
}

func (f *follower) eventStream(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.here(f.topic)+"?since="+f.since(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("%s: %w", resp.Status, err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := f.takeJSON([]byte(data)); err != nil {
				return err
			}
		}
	}
}

// callback subscribes a callback of its own. A life that ends leaves its subscription behind,
// as a machine does that burns down.
func (f *follower) callback(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/%d-%d", os.Getpid(), f.last) // the port may be that of a life before
	var one sync.Mutex
	failed := make(chan error, 1)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one.Lock()
		defer one.Unlock()
		switch {
		case r.URL.Path != path:
			w.WriteHeader(http.StatusGone)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, r.FormValue("hub.challenge"))
		default:
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = f.takeXML(body)
			}
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				select {
				case failed <- err:
				default:
				}
			}
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	defer func() { _ = s.Close(); <-served }()
	since, err := url.QueryUnescape(f.since())
	if err != nil {
		return err
	}
	resp, err := http.PostForm(f.hub+"/hub", trial.Form("subscribe", "http://"+l.Addr().String()+path, f.topic, "rs.since", since))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s: %s", resp.Status, said)
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
