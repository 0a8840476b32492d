//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A callbackFloor is the least that delivers with net/http: a goroutine for each
// callback that POSTs the bodies it is given, one after the other. It keeps
// nothing, and knows of no failure.
type callbackFloor struct {
	client *http.Client
	secret string
	queues []chan work
}

// A work is a body, and how often to send it.
type work struct {
	times, changes int
	body           []byte
}

// A callbackFeed hands the floor its work, in front of the body: how often it is
// sent, how many changes it has, and how many bytes.
type callbackFeed struct{ conn net.Conn }

func (f callbackFeed) post(times, changes int, body []byte) error {
	var head []byte
	for _, n := range []int{times, changes, len(body)} {
		head = binary.BigEndian.AppendUint32(head, uint32(n))
	}
	_, err := f.conn.Write(append(head, body...))
	return err
}

// serveCallbackFloor calls n callbacks of the sink at addr, and signs with the
// secret if there is one.
func serveCallbackFloor(l net.Listener, addr string, n int, secret string) error {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	f := &callbackFloor{secret: secret, client: &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConns: 1000, MaxIdleConnsPerHost: 8,
		DisableCompression: true, ReadBufferSize: 1 << 10, WriteBufferSize: 4 << 10,
	}}}
	failed := make(chan error, 1)
	for i := range n {
		u, err := url.Parse(callbackURL(addr, i))
		if err != nil {
			return err
		}
		queue := make(chan work, 10_000)
		f.queues = append(f.queues, queue)
		go func() { failed <- f.call(u, queue) }()
	}
	go func() {
		if err := f.feed(l); err != io.EOF { // else it ends with the bench
			failed <- err
		}
	}()
	return <-failed
}

func (f *callbackFloor) feed(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 256<<10)
	for {
		var head [3]uint32
		if err := binary.Read(in, binary.BigEndian, &head); err != nil {
			return err
		}
		w := work{int(head[0]), int(head[1]), make([]byte, head[2])}
		if _, err := io.ReadFull(in, w.body); err != nil {
			return err
		}
		for _, queue := range f.queues {
			queue <- w
		}
	}
}

// call calls one callback. Like a hub, it sends all bodies that wait in one request.
func (f *callbackFloor) call(u *url.URL, queue <-chan work) error {
	position := 0
	for w := range queue {
		for more := len(queue); more > 0; more-- {
			next := <-queue
			w.body, w.changes = append(w.body[:len(w.body):len(w.body)], next.body...), w.changes+next.changes
		}
		for range w.times {
			if err := f.post(u, w.body, position, position+w.changes); err != nil {
				return err
			}
			position += w.changes
		}
	}
	return nil
}

// post sends one delivery, with the same headers as a hub.
func (f *callbackFloor) post(u *url.URL, body []byte, previous, position int) error {
	h := http.Header{
		"Content-Type": {"application/xml"},
		"User-Agent":   {"rshub (+https://github.com/rshub/rshub)"},
		"Link":         {`<http://127.0.0.1:12345/hub>; rel="hub", <http://127.0.0.1:12345/sets/bench/changes>; rel="self"`},
		"Rs-Position":  {strconv.Itoa(position)},
		"Rs-Previous":  {strconv.Itoa(previous)},
		"Rs-Attempt":   {"1"},
	}
	if f.secret != "" {
		mac := hmac.New(sha256.New, []byte(f.secret))
		mac.Write(body)
		h["X-Hub-Signature"] = []string{"sha256=" + hex.EncodeToString(mac.Sum(nil))}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	r := (&http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: h,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}).WithContext(ctx)
	resp, err := f.client.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
