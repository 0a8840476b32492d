package client_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/pipetest"
	"github.com/rshub/rshub/internal/zst"
)

// Opcodes of WebSocket frames.
const (
	textFrame, binaryFrame, closing, ping, pong = 1, 2, 8, 9, 10
)

// A hubConn is the hub's end of a WebSocket, which a test scripts.
type hubConn struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// scriptedHub returns a handler that accepts WebSockets, and calls script with each and its number,
// from 0. The connection is closed when script returns.
func scriptedHub(t *testing.T, subprotocol string, script func(n int, c *hubConn)) http.Handler {
	var conns atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/changes" || r.Header.Get("Sec-WebSocket-Protocol") != "rs.json+zstd" {
			t.Errorf("got a request for %s with subprotocol %q", r.URL, r.Header.Get("Sec-WebSocket-Protocol"))
		}
		conn, in, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]), subprotocol)
		script(int(conns.Add(1))-1, &hubConn{t, conn, in.Reader})
	})
}

// startScript starts a scripted hub on a socket.
func startScript(t *testing.T, script func(n int, c *hubConn)) (url string) {
	t.Helper()
	s := httptest.NewServer(scriptedHub(t, "rs.json+zstd", script))
	t.Cleanup(s.Close)
	return s.URL
}

// frame returns a frame of a server.
func frame(opcode byte, payload []byte) []byte {
	f := []byte{0x80 | opcode}
	switch n := len(payload); {
	case n < 126:
		f = append(f, byte(n))
	case n < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, 126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, 127), uint64(n))
	}
	return append(f, payload...)
}

// write writes frames. An error means that the client has left.
func (c *hubConn) write(frames ...[]byte) { _, _ = c.conn.Write(bytes.Join(frames, nil)) }

// send sends messages.
func (c *hubConn) send(messages ...string) {
	for _, m := range messages {
		c.write(frame(binaryFrame, zst.Append(nil, []byte(m))))
	}
}

// sendBatch sends a batch of a set from one position to another.
func (c *hubConn) sendBatch(set string, after, to int) { c.send(batchJSON(set, after, to)) }

func batchJSON(set string, after, to int) string {
	return string(feed.NewBatch(set, cursor(after), cursor(to), updated(locs(after+1, to)...)).JSON())
}

// read reads a frame of the client. ok is false if the client has left.
func (c *hubConn) read() (opcode byte, payload string, ok bool) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, "", false
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		var long [2]byte
		_, _ = io.ReadFull(c.in, long[:])
		n = int(binary.BigEndian.Uint16(long[:]))
	}
	if head[0]&0x80 == 0 || head[1]&0x80 == 0 || n > 16<<10 {
		c.t.Errorf("got a frame with the header %x and %d bytes, want one that is final and masked", head, n)
		return 0, "", false
	}
	rest := make([]byte, 4+n)
	if _, err := io.ReadFull(c.in, rest); err != nil {
		return 0, "", false
	}
	for i := range rest[4:] {
		rest[4+i] ^= rest[i%4]
	}
	return head[0] & 0x0f, string(rest[4:]), true
}

// commands reads n commands, and returns them as "follow SET SINCE" or "unfollow SET".
func (c *hubConn) commands(n int) (all []string) {
	for len(all) < n {
		opcode, payload, ok := c.read()
		var m struct{ Follow, Unfollow, Since string }
		switch {
		case !ok:
			return all
		case opcode != textFrame:
			continue
		case json.Unmarshal([]byte(payload), &m) != nil:
			c.t.Errorf("got command %s, want JSON", payload)
		case m.Follow != "":
			all = append(all, "follow "+m.Follow+" "+m.Since)
		default:
			all = append(all, "unfollow "+m.Unfollow)
		}
	}
	return all
}

// await waits until the client leaves, and returns the payload of its close frame.
func (c *hubConn) await() (payload string) {
	for {
		opcode, p, ok := c.read()
		if !ok {
			return payload
		}
		if opcode == closing {
			payload = p
		}
	}
}

// TestFollowAllViolations checks that FollowAll connects again with its cursor after each message that
// violates the protocol, and yields nothing of it. As the first message it ends FollowAll.
func TestFollowAllViolations(t *testing.T) {
	message := func(s string) []byte { return frame(binaryFrame, zst.Append(nil, []byte(s))) }
	for _, tt := range []struct {
		name   string
		frames []byte
		want   string
		later  bool // whether it is valid as the first message
	}{
		{"garbage", []byte("garbage"), "invalid WebSocket frame", false},
		{"masked", []byte{0x82, 0x80, 0, 0, 0, 0}, "invalid WebSocket frame", false},
		{"unknown opcode", frame(3, nil), "invalid WebSocket frame", false},
		{"long ping", frame(ping, make([]byte, 126)), "control frame that is fragmented or too long", false},
		{"continuation first", frame(0, nil), "in the wrong order", false},
		{"message within another", append([]byte{0x02, 0}, message("{}")...), "in the wrong order", false},
		{"text", frame(textFrame, []byte(batchJSON("a", 3, 4))), "got a text message", false},
		{"not compressed", frame(binaryFrame, []byte(batchJSON("a", 3, 4))), "decompress", false},
		{"not JSON", message("a"), "read message: ", false},
		{"half of a batch", message(batchJSON("a", 3, 4)[:100]), "read message: ", false},
		{"huge", []byte{0x82, 127, 0, 0, 0, 0, 1, 0, 0, 0}, "more than 8388608 bytes", false},
		{"huge fragments", bytes.Join([][]byte{{0x02, 1, 'x'}, {0x80, 127, 0, 0, 0, 0, 0, 0x80, 0, 0}}, nil), "more than 8388608 bytes", false},
		{"huge text", frame(binaryFrame, zst.Append(nil, make([]byte, 9<<20))), "got a message of 9437184 bytes", false},
		{"gap", message(batchJSON("a", 4, 5)), `got changes of set "a" after 4-1004, want after 3-1003`, false},
		{"repeat", message(batchJSON("a", 2, 4)), `got changes of set "a" after 2-1002, want after 3-1003`, false},
		{"entry after the cursor", message(strings.Replace(batchJSON("a", 3, 5), `"cursor":"5-1005"`, `"cursor":"4-1004"`, 1)), "are not between", false},
		{"foreign set", message(batchJSON("b", 0, 1)), `got changes of set "b", which is not followed`, false},
		{"error of a foreign set", message(`{"set":"b","error":{"status":404}}`), `got an error of set "b"`, false},
		{"invalid status", message(`{"set":"a","error":{"status":200}}`), "got status 200", false},
		{"cursor of a foreign set", message(`{"cursors":{"b":"7-1007"}}`), `got a cursor of set "b"`, false},
		{"earlier cursor", message(`{"cursors":{"a":"2-1002"}}`), "got cursor 2-1002", false},
		{"invalid cursor", message(`{"cursors":{"a":"2"}}`), "invalid cursor", false},
		{"unfollowed", message(`{"unfollowed":"a"}`), `no longer follows set "a"`, false},
		{"two kinds", message(`{"unfollowed":"a","followed":"*"}`), "of 2 kinds", false},
		{"close", frame(closing, []byte{1001 >> 8, 1001 & 0xff, 's', 't', 'o', 'p'}), "closed with code 1001: stop", true},
		{"too slow", frame(closing, []byte{4408 >> 8, 4408 & 0xff}), "closed with code 4408", true},
		{"close without code", frame(closing, nil), "closed with code 1005", true},
		{"end", nil, "unexpected EOF", true},
		{"limit of all sets", message(`{"set":"*","error":{"status":429,"title":"Too Many Requests"}}`), "429 Too Many Requests", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, first := range []bool{false, true} {
				url := startScript(t, func(n int, c *hubConn) {
					want := []string{"follow a 3-1003"}
					if got := c.commands(1); !slices.Equal(got, want) {
						t.Errorf("got commands %q on connection %d, want %q", got, n, want)
					}
					if n == 0 && first {
						c.write(tt.frames)
						return
					}
					if c.sendBatch("a", 3, 3); n == 0 {
						c.write(tt.frames)
						return
					}
					c.sendBatch("a", 3, 4)
					c.await()
				})
				clock := newClock()
				r := newAllReader(t, newClient(t, url, clock.options()).FollowAll(t.Context(), client.FollowAllOptions{Sets: []client.FollowSet{{Set: "a", Since: "3-1003"}}}))
				if first && !tt.later {
					if err := r.endError(); !errors.Is(err, client.ErrNotHub) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), url+"/changes") {
						t.Errorf("FollowAll ends with %v, want %v with %q", err, client.ErrNotHub, tt.want)
					}
					continue
				}
				r.readUntil("a", "urn:4")
				if got := r.locs["a"]; len(got) != 1 {
					t.Errorf("FollowAll yields %q, want urn:4", got)
				}
				if notes := clock.noted(); len(notes) != 1 || !strings.Contains(notes[0], tt.want) {
					t.Errorf("got retries %q, want one because of %q", notes, tt.want)
				}
			}
		})
	}
}

// TestFollowAllSubprotocol checks that another subprotocol than the requested one ends FollowAll.
func TestFollowAllSubprotocol(t *testing.T) {
	s := httptest.NewServer(scriptedHub(t, "rs.json", func(_ int, c *hubConn) { c.await() }))
	defer s.Close()
	err := newAllReader(t, newClient(t, s.URL, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{All: true})).endError()
	if !errors.Is(err, client.ErrNotHub) || !strings.Contains(err.Error(), `got subprotocol "rs.json", want rs.json+zstd`) {
		t.Errorf("FollowAll ends with %v, want %v because of the subprotocol", err, client.ErrNotHub)
	}
}

// TestFollowAllTokenEnded checks that close code 4401 ends FollowAll.
func TestFollowAllTokenEnded(t *testing.T) {
	url := startScript(t, func(_ int, c *hubConn) {
		c.commands(1)
		c.write(frame(closing, append([]byte{4401 >> 8, 4401 & 0xff}, "the token has expired"...)))
		c.await()
	})
	err := newAllReader(t, newClient(t, url, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{All: true})).endError()
	if refused, ok := errors.AsType[*client.RefusedError](err); !ok || refused.Status != 401 || refused.Detail != "the token has expired" {
		t.Errorf("FollowAll ends with %v, want a RefusedError with status 401", err)
	}
}

// TestFollowAllLeaves checks that FollowAll sends a close frame when the loop ends, and answers pings.
func TestFollowAllLeaves(t *testing.T) {
	left := make(chan string, 1)
	url := startScript(t, func(_ int, c *hubConn) {
		c.commands(1)
		c.write(frame(ping, []byte("a")), frame(ping, []byte("b")))
		for payload := ""; payload != "b"; {
			opcode, p, ok := c.read()
			if payload = p; !ok || opcode != pong {
				t.Errorf("got a frame with opcode %d, %q, want a pong", opcode, p)
				return
			}
		}
		message := zst.Append(nil, []byte(batchJSON("a", 0, 1)))
		c.write([]byte{binaryFrame, 1, message[0]}, frame(ping, nil), frame(0, message[1:])) // in two fragments
		left <- c.await()
	})
	for b, err := range newClient(t, url, client.Options{}).FollowAll(t.Context(), client.FollowAllOptions{All: true}) {
		if err != nil || len(b.Entries) != 1 {
			t.Errorf("FollowAll yields %+v, %v, want a batch with one entry", b, err)
		}
		break
	}
	if got := <-left; got != "\x03\xe8" {
		t.Errorf("got payload %q of the close frame, want code 1000", got)
	}
}

// TestFollowAllExcluded checks that a set with an error stays excluded from All after a reconnect,
// and that a set which does not exist is not named.
func TestFollowAllExcluded(t *testing.T) {
	url := startScript(t, func(n int, c *hubConn) {
		if n == 0 {
			c.commands(4)
			c.sendBatch("a", 3, 3)
			c.sendBatch("b", 3, 3)
			c.send(`{"set":"c","error":{"status":404,"type":"https://github.com/rshub/rshub/terms/problems/no-such-set"}}`,
				`{"followed":"*","sets":0}`, `{"unknown":"message"}`,
				`{"set":"b","error":{"status":410,"type":"https://github.com/rshub/rshub/terms/problems/gone","cursor":"9-1009"}}`)
			c.sendBatch("a", 3, 4)
			return
		}
		want := []string{"follow a 4-1004", "follow * start", "unfollow b"}
		if got := c.commands(3); !slices.Equal(got, want) {
			t.Errorf("got commands %q, want %q", got, want)
		}
		c.sendBatch("a", 4, 4)
		c.sendBatch("b", 9, 9)
		c.sendBatch("c", 0, 0)
		c.send(`{"followed":"*","sets":2}`, `{"cursors":{"b":"10-1010"}}`)
		c.sendBatch("b", 10, 11)
		c.send(`{"unfollowed":"b"}`)
		c.sendBatch("a", 4, 5)
		c.await()
	})
	r := newAllReader(t, newClient(t, url, newClock().options()).FollowAll(t.Context(), client.FollowAllOptions{All: true, Sets: []client.FollowSet{
		{Set: "a", Since: "3-1003"}, {Set: "b", Since: "3-1003"}, {Set: "c", Since: "start"},
	}}))
	if e := r.readSetError(); e.Set != "c" || !errors.Is(e, feed.ErrNoSet) {
		t.Errorf("got error %v, want %v of set c", e, feed.ErrNoSet)
	}
	if e := r.readSetError(); e.Set != "b" || !errors.Is(e, feed.ErrGone) || e.Cursor != cursor(9) {
		t.Errorf("got error %v with cursor %v, want %v of set b with %v", e, e.Cursor, feed.ErrGone, cursor(9))
	}
	r.readUntil("a", "urn:4")
	if b := r.readBatch(); b.Set != "c" || !b.Diverged {
		t.Errorf("got batch %+v, want a diverged one of set c", b)
	}
	if r.readUntil("a", "urn:5"); len(r.locs["b"]) > 0 {
		t.Errorf("FollowAll yields %q of set b, want nothing", r.locs["b"])
	}
}

// TestFollowAllTemporary checks that FollowAll retries a set that the hub temporarily refuses to
// continue, and that a set is not retried before its first batch.
func TestFollowAllTemporary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipetest.Network
		defer network.Close()
		network.Serve("hub.example.org:80", scriptedHub(t, "rs.json+zstd", func(n int, c *hubConn) {
			c.commands(2)
			c.sendBatch("a", 3, 3)
			c.send(`{"set":"a","error":{"status":429}}`, `{"set":"b","error":{"status":429}}`)
			if got, want := c.commands(1), []string{"follow a 3-1003"}; !slices.Equal(got, want) {
				t.Errorf("got commands %q, want %q", got, want)
			}
			c.sendBatch("a", 3, 4)
			c.await()
		}))
		var retries []string
		o := client.Options{HTTP: &http.Client{Transport: network.Transport()}, OnRetry: func(err error, _ time.Duration) { retries = append(retries, err.Error()) }}
		r := newAllReader(t, newClient(t, "http://hub.example.org", o).FollowAll(t.Context(), client.FollowAllOptions{
			Sets: []client.FollowSet{{Set: "a", Since: "3-1003"}, {Set: "b"}},
		}))
		if e := r.readSetError(); e.Set != "b" {
			t.Errorf("got error %v, want one of set b", e)
		}
		r.readUntil("a", "urn:4")
		if len(retries) != 1 || !strings.Contains(retries[0], `follow set "a": http://hub.example.org: 429`) {
			t.Errorf("got retries %q, want one of set a", retries)
		}
		r.stop()
	})
}

// TestFollowAllSilence checks that FollowAll connects again after the hub was silent, but not while
// the caller is slow, and that the hub then gets signs of life.
func TestFollowAllSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network pipetest.Network
		defer network.Close()
		begin := time.Now()
		var pongs atomic.Int32
		network.Serve("hub.example.org:80", scriptedHub(t, "rs.json+zstd", func(n int, c *hubConn) {
			c.commands(1)
			if n > 0 {
				c.sendBatch("a", 2, 3)
			} else {
				c.sendBatch("a", 0, 1)
				go c.sendBatch("a", 1, 2) // net.Pipe has no buffer
			}
			for {
				opcode, _, ok := c.read()
				if !ok {
					return
				}
				if opcode == pong {
					pongs.Add(1)
				}
			}
		}))
		clock := newClock()
		o := clock.options()
		o.HTTP = &http.Client{Transport: network.Transport()}
		r := newAllReader(t, newClient(t, "http://hub.example.org", o).FollowAll(t.Context(), client.FollowAllOptions{
			Sets: []client.FollowSet{{Set: "a", Since: "0-1000"}}, Silence: 40 * time.Second,
		}))
		r.readUntil("a", "urn:1")
		time.Sleep(5 * time.Minute) // a slow caller, in fake time
		if r.readUntil("a", "urn:2"); len(clock.noted()) > 0 || pongs.Load() < 10 {
			t.Errorf("got retries %q and %d pongs while the caller is slow, want none and a pong every 25 s", clock.noted(), pongs.Load())
		}
		r.readUntil("a", "urn:3")
		if got, want := time.Since(begin), 5*time.Minute+40*time.Second; got != want {
			t.Errorf("got the batch of another connection after %v, want %v", got, want)
		}
		if notes := clock.noted(); len(notes) != 1 || !strings.Contains(notes[0], "nothing arrived for 40s") {
			t.Errorf("got retries %q, want one after 40s", notes)
		}
		r.stop()
	})
}
