package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/certtest"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// A tlsHub is a hub with TLS.
type tlsHub struct {
	*testHub
	t    *testing.T
	pair *certtest.Pair
	http *http.Client // uses HTTP/2
}

func startTLS(t *testing.T, c Config) *tlsHub {
	t.Helper()
	s := &tlsHub{t: t, pair: certtest.New(t)}
	c.TLSCertFile, c.TLSKeyFile = s.pair.Cert, s.pair.Key
	c.Metrics = prometheus.NewRegistry()
	s.testHub = start(t, c)
	s.URL = strings.Replace(s.URL, "http:", "https:", 1)
	s.http = s.client(&tls.Config{}, true)
	return s
}

// client returns a client that trusts the certificate and has its own connections.
func (s *tlsHub) client(config *tls.Config, http2 bool) *http.Client {
	config.RootCAs = s.pair.Pool
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get sends a GET, over HTTP/2 if the URL has TLS.
func (s *tlsHub) get(url string) (*http.Response, string) {
	return doRequest(s.t, s.http, "GET", url, "")
}

// publish publishes n changes of about size bytes each, as one batch.
func (s *tlsHub) publish(n, size int) {
	s.t.Helper()
	if resp, text := doRequest(s.t, s.http, "POST", s.topic("demo"), changes(n, size), asNDJSON...); resp.StatusCode != http.StatusOK {
		s.t.Fatalf("publish: got %d %s, want 200", resp.StatusCode, text)
	}
}

// dial opens a WebSocket. With a small buffer, a client that does not read stalls soon.
func (s *tlsHub) dial(query string, buffer int) *websocket.Conn {
	s.t.Helper()
	dialer := websocket.Dialer{TLSClientConfig: s.pair.Client(), NetDialContext: smallBuffer(buffer)}
	ws, _, err := dialer.DialContext(s.t.Context(), strings.Replace(s.topic("demo"), "https:", "wss:", 1)+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { ws.Close() })
	_ = ws.SetReadDeadline(time.Now().Add(time.Minute))
	return ws
}

// read reads messages until it has received the given number of changes.
func (s *tlsHub) read(ws *websocket.Conn, changes int) {
	s.t.Helper()
	for got := 0; got < changes; {
		_, message, err := ws.ReadMessage()
		if err != nil {
			s.t.Errorf("got %d changes before %v, want %d", got, err, changes)
			return
		}
		var m struct{ Changes []json.RawMessage }
		if err := json.Unmarshal(message, &m); err != nil {
			s.t.Errorf("got the message %.100q, want JSON: %v", message, err)
			return
		}
		got += len(m.Changes)
	}
}

func TestTLS(t *testing.T) {
	s := startTLS(t, Config{})
	http1 := s.client(&tls.Config{}, false)
	for client, proto := range map[*http.Client]string{s.http: "HTTP/2.0", http1: "HTTP/1.1"} {
		resp, _ := doRequest(t, client, "GET", s.URL+"/sets", "")
		if resp.StatusCode != http.StatusOK || resp.Proto != proto || resp.TLS.Version != tls.VersionTLS13 || resp.Header.Get("Strict-Transport-Security") != "max-age=31536000" {
			t.Errorf("GET over %s: got %d over %s, TLS %x, %v, want 200, TLS 1.3 and Strict-Transport-Security", proto, resp.StatusCode, resp.Proto, resp.TLS.Version, resp.Header)
		}
	}
	if resp := sendRequest(t, s.client(&tls.Config{MaxVersion: tls.VersionTLS12}, true), "GET", s.URL+"/sets", nil); resp.TLS.Version != tls.VersionTLS12 {
		t.Errorf("got TLS %x, want TLS 1.2", resp.TLS.Version)
	}
	if _, err := s.client(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, true).Get(s.URL + "/sets"); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: got %v, want an error of the protocol version", err)
	}
	if resp, body := servertest.Do(t, "GET", strings.Replace(s.URL, "https:", "http:", 1)+"/sets", ""); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "HTTP request to an HTTPS server") {
		t.Errorf("without TLS: got %d %s, want 400", resp.StatusCode, body)
	}
	s.publish(3, 10)
	if _, body := s.get(s.URL + "/sets/demo/capabilitylist.xml"); !strings.Contains(body, s.URL+"/sets/demo/") {
		t.Errorf("Capability List = %s, want URLs that start with %s", body, s.URL)
	}
	if ready, checks := readiness(t, s.testHub); !ready || checks["certificate"] != (dependency{OK: true}) {
		t.Errorf("readyz: got %t, %v, want ready with a valid certificate", ready, checks)
	}
}

// Followers over each transport receive all changes over TLS, live and from the memory, in large
// and small frames.
func TestFollowTLS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, Config{})
	s.publish(10, 10)
	sockets := []*websocket.Conn{s.dial("", 0), s.dial("?since=start", 0), s.dial("?since=start&prefix=https:", 0)}
	s.read(sockets[1], 10)
	s.read(sockets[2], 10)
	all := func(changes int) {
		t.Helper()
		for _, ws := range sockets {
			s.read(ws, changes)
		}
	}
	for _, c := range []*http.Client{s.http, s.client(&tls.Config{}, false)} {
		stream := followEvents(t, c, s.topic("demo"))
		s.publish(1, 10)
		stream.waitFor(`"loc":`)
		all(1)
		polled := s.startPoll(c, "demo")
		s.publish(1, 10)
		if page, err := io.ReadAll((<-polled).Body); err != nil || strings.Count(string(page), `"loc":`) != 1 {
			t.Errorf("long poll: got %s, %v, want one change", page, err)
		}
		all(1)
	}
	for _, size := range []int{10, 1000} {
		for range 2 {
			s.publish(300, size)
		}
		all(2 * 300)
	}
	for _, ws := range sockets { // the hub answers a ping, and closes with a code
		if err := ws.WriteControl(websocket.PingMessage, []byte("x"), time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		ponged := make(chan string, 1)
		ws.SetPongHandler(func(text string) error { ponged <- text; return nil })
		ended := make(chan error, 1)
		go func() { _, _, err := ws.ReadMessage(); ended <- err }()
		if got := <-ponged; got != "x" {
			t.Errorf("got the pong %q, want x", got)
		}
		defer func() {
			if err := <-ended; !websocket.IsCloseError(err, websocket.CloseGoingAway) {
				t.Errorf("the WebSocket ended with %v, want code %d", err, websocket.CloseGoingAway)
			}
		}()
	}
	s.Stop()
}

// A stalled WebSocket is closed and does not delay others.
func TestStalledWebSocketOverTLS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, Config{WriteTimeout: 2 * time.Second})
	healthy := s.dial("", 0)
	s.dial("", 4096)
	for range 10 { // more than the buffers of the connection hold
		s.publish(300, 2000)
		s.read(healthy, 300)
	}
	testutil.Until(t, "the stalled WebSocket is closed", func() bool {
		s.get(s.topic("other") + "?since=now&wait=100ms") // polls the metric at most ten times a second
		return s.metric(`rshub_followers_closed_total{kind="websocket",reason="slow"}`) == 1
	})
	s.publish(1, 10)
	s.read(healthy, 1)
}

// New connections use a new certificate; open ones stay open.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	s := startTLS(t, Config{})
	ws := s.dial("?since=start", 0)
	serial := func(want int64) {
		t.Helper()
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), s.pair.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("got the certificate %d, want %d", got, want)
		}
	}
	serial(1)
	ends := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	s.pair.Renew(ends)
	s.waitForLog("changed; the new content is in effect")
	serial(2)
	if got := s.metric("rshub_certificate_expires_timestamp_seconds"); got != float64(ends.Unix()) {
		t.Errorf("metric of the expiry = %v, want %v", got, ends.Unix())
	}
	s.pair.Write(s.pair.Key, []byte("invalid key"))
	s.waitForLog("the previous content remains in effect")
	if ready, checks := readiness(t, s.testHub); !ready || checks["certificate"].Required || !strings.HasPrefix(checks["certificate"].Reason, "read certificate ") {
		t.Errorf("readyz: got %t, %v, want ready with an error of the certificate", ready, checks)
	}
	s.publish(5, 10)
	s.read(ws, 5)
}

// Strict-Transport-Security is sent only where it breaks nothing else: not without TLS, and not for
// localhost, whose other ports belong to other programs.
func TestStrictTransportSecurity(t *testing.T) {
	s := startTLS(t, Config{BaseURL: "https://hub.example.org"})
	for _, test := range []struct {
		url, host string
		strict    bool
	}{
		{s.URL, "hub.example.org", true},
		{s.Ops, "hub.example.org", false}, // browsers ignore it without TLS
		{s.URL, "localhost:8080", false},
	} {
		resp := sendRequest(t, s.http, "GET", test.url+"/healthz", nil, "Host", test.host)
		if got := resp.Header.Get("Strict-Transport-Security"); (got != "") != test.strict || resp.StatusCode == http.StatusMisdirectedRequest {
			t.Errorf("Host %s at %s: got %d with %q, want the header: %t", test.host, test.url, resp.StatusCode, got, test.strict)
		}
	}
}

// Connections without a complete handshake time out on both addresses, and so do those with HTTP/2
// in cleartext.
func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	pair, log := certtest.New(t), &testutil.Log{}
	server, err := New(Config{Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Data: t.TempDir(), Logger: log.Logger(slog.LevelInfo),
		TLSCertFile: pair.Cert, TLSKeyFile: pair.Key})
	if err != nil {
		t.Fatal(err)
	}
	for _, srv := range []*http.Server{server.front.public, server.front.ops} {
		if srv.ReadHeaderTimeout > 10*time.Second {
			t.Errorf("ReadHeaderTimeout = %v, want at most 10s", srv.ReadHeaderTimeout)
		}
		if srv.HTTP2 == nil || srv.HTTP2.WriteByteTimeout <= 0 || srv.HTTP2.MaxConcurrentStreams <= 0 || srv.HTTP2.MaxConcurrentStreams > maxStreams {
			t.Errorf("HTTP2 = %+v, want a write timeout and 1 to %d streams", srv.HTTP2, maxStreams)
		}
		srv.ReadHeaderTimeout = 100 * time.Millisecond
	}
	h := servertest.Start(t, server, log)
	for _, url := range []string{h.URL, h.Ops} {
		for _, sent := range []string{"", "\x16\x03", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
			conn := testutil.Dial(t, "", strings.TrimPrefix(url, "http://"), sent)
			var answer strings.Builder
			if _, err := io.Copy(&answer, conn); errors.Is(err, context.DeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("after %q: got %v, want a closed connection", sent, err)
			}
			if strings.Contains(answer.String(), "HTTP/2") {
				t.Errorf("after %q: got %q, want no HTTP/2", sent, &answer)
			}
		}
	}
}

func TestCertificateForAnotherHost(t *testing.T) {
	s := startTLS(t, Config{BaseURL: "https://other.example.org"})
	if lines := s.log.Lines(t, "the certificate is not valid for the host in the hub's URL, so clients will refuse it"); len(lines) != 1 {
		t.Errorf("got the log %s, want one warning", s.log)
	}
}
