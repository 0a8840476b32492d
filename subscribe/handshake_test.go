package subscribe_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestHandshake checks that refusals list the supported versions and subprotocols, and that several
// header lines form one list.
func TestHandshake(t *testing.T) {
	s := newSite(t, settings{sets: []string{"a"}})
	ask := func(t *testing.T, headers ...string) *http.Response {
		t.Helper()
		conn, err := net.Dial("tcp", s.http.Listener.Addr().String())
		ok(t, err)
		t.Cleanup(func() { conn.Close() })
		request := "GET /sets/a/changes HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		ok(t, err)
		return resp
	}
	const key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
	for _, versions := range [][]string{
		nil, {"Sec-WebSocket-Version: 8"}, {"Sec-WebSocket-Version: 130"}, {"Sec-WebSocket-Version:"}, {"Sec-WebSocket-Version: 8, 7", "Sec-WebSocket-Version: 0"},
	} {
		resp := ask(t, append(versions, key)...)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Sec-WebSocket-Version") != "13" || resp.Header.Get("Upgrade") != "websocket" ||
			!strings.Contains(string(body), "want 13") {
			t.Errorf("%q: got %v %s, %v, want 426 with version 13", versions, resp, body, err)
		}
	}
	for _, versions := range [][]string{{"Sec-WebSocket-Version: 13"}, {"Sec-WebSocket-Version: 8, 13"}, {"Sec-WebSocket-Version: 8", "Sec-WebSocket-Version: 13"}} {
		if resp := ask(t, append(versions, key)...); resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%q: got %v, want 101", versions, resp)
		}
	}
	proxied := []string{"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version", "13"} // a handshake after some proxies
	s.refused(s.url(""), http.StatusUpgradeRequired, "proxies must pass both", proxied...)
	s.refused(s.url(""), 400, `want rs.json, rs.xml, rs.json+zstd, or none`,
		append(proxied, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Protocol", "rs.cbor, chat")...)
	for _, protocols := range [][]string{
		{"Sec-WebSocket-Protocol: chat, rs.xml"}, {"Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Protocol: rs.xml"}, {"Sec-WebSocket-Protocol: chat,", "Sec-WebSocket-Protocol: x,rs.xml"},
	} {
		resp := ask(t, append(protocols, key, "Sec-WebSocket-Version: 13")...)
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Protocol") != "rs.xml" {
			t.Errorf("%q: got %v, want 101 with rs.xml", protocols, resp)
		}
	}
}
