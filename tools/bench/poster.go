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

// An asker sends a request on a persistent connection, and returns after the response. It does not
// use net/http's client, which would cost more than the measured work.
type asker func(request []byte) error

// asker returns an asker for a server.
func (b *bench) asker(addr string) asker {
	conn := have(net.Dial("tcp", addr))
	b.later(conn.Close)
	in := bufio.NewReader(conn)
	return func(request []byte) error {
		_ = conn.SetDeadline(time.Now().Add(answerTime))
		if _, err := conn.Write(request); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%.30q: %s: %.300s", request, resp.Status, answer)
		}
		return err
	}
}

// A poster POSTs a body, and returns after the response of the server.
type poster func(body []byte) error

// posters returns n posters of bodies of a media type.
func (b *bench) posters(n int, addr, path, mediaType string) []poster {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: ", path, addr, mediaType)
	posts := make([]poster, n)
	for i := range posts {
		var request []byte
		ask := b.asker(addr)
		posts[i] = func(body []byte) error {
			request = strconv.AppendInt(append(request[:0], head...), int64(len(body)), 10)
			request = append(append(request, "\r\n\r\n"...), body...)
			return ask(request)
		}
	}
	return posts
}
