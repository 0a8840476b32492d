package follow

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestHTTP2 publishes and follows over HTTP/2 without TLS, as a proxy does, while the
// hub is stopped and killed. A WebSocket goes on beside it over HTTP/1.1.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	const set = "multiplexed"
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(two.CloseIdleConnections)
	client := &http.Client{Transport: two, Timeout: hubtest.Client.Timeout}
	publish := func(name string, n int) {
		t.Helper()
		hubtest.Until(t, "the hub takes a publish over HTTP/2", func() error { // a connection to the hub that was there before may look alive
			req, err := http.NewRequest(http.MethodPost, h.Topic(set), bytes.NewReader(hubtest.Changes(name, n)))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/x-ndjson")
			req.Header.Set("Idempotency-Key", name)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
				return fmt.Errorf("%s over %s", resp.Status, resp.Proto)
			}
			return nil
		})
	}
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllWays {
		f := &hubtest.Follower{Way: way, Set: set, Hub: h, Cursor: "start", HTTP: two}
		f.Run(t)
		followers = append(followers, f)
	}
	publish("first", 1200)
	h.Stop(t)
	h.Start(t)
	publish("stopped", 1500)
	for _, f := range followers {
		f.Has(t, 2700)
	}
	h.Kill()
	h.Start(t)
	publish("killed", 300)
	for _, f := range followers {
		f.Has(t, 3000)
	}
	all := hubtest.Memory(t, h, set)
	for _, f := range followers {
		hubtest.Same(t, "the "+f.Way, f.Seen(), all)
	}
}
