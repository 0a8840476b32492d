//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const inLines = "application/x-ndjson"

// A poster POSTs a body, and returns when the server has answered: rshub has published
// the body, a floor has done what it does.
type poster func(body []byte) error

// posters returns n posters of bodies of a media type.
func (b *bench) posters(n int, addr, path, mediaType string) []poster {
	posts := make([]poster, n)
	for i := range posts {
		conn := have(net.Dial("tcp", addr))
		b.later(conn.Close)
		posts[i] = newPoster(conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: ", path, addr, mediaType))
	}
	return posts
}

// newPoster returns one that posts on a kept connection, without net/http's client, which
// would cost more than what is measured.
func newPoster(conn net.Conn, head string) poster {
	in := bufio.NewReader(conn)
	var out []byte
	return func(body []byte) error {
		out = strconv.AppendInt(append(out[:0], head...), int64(len(body)), 10)
		out = append(append(out, "\r\n\r\n"...), body...)
		_ = conn.SetDeadline(time.Now().Add(answerTime))
		if _, err := conn.Write(out); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("POST: %s: %.300s", resp.Status, answer)
		}
		return err
	}
}
