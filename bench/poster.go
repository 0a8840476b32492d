//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answerTime bounds how long one answer of a server may take.
const answerTime = 20 * time.Second

// A poster POSTs on one kept connection, without net/http's client, which
// would cost more than what is measured.
type poster struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte
	buf  []byte
}

// The header of a POST of NDJSON, and of one of JSON.
const (
	ndjsonHead = "Content-Type: application/x-ndjson\r\n"
	jsonHead   = "Content-Type: application/json\r\n"
)

// newPoster returns a poster of NDJSON to a URL path.
func newPoster(addr, path string) (*poster, error) { return newPosterWith(addr, path, ndjsonHead) }

// newPosterWith returns a poster that sends header, whole lines of it.
func newPosterWith(addr, path, header string) (*poster, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: ", path, addr, header)
	return &poster{conn: conn, in: bufio.NewReader(conn), head: head}, nil
}

// post returns when body is published.
func (p *poster) post(body []byte) error {
	p.buf = strconv.AppendInt(append(p.buf[:0], p.head...), int64(len(body)), 10)
	p.buf = append(append(p.buf, "\r\n\r\n"...), body...)
	_ = p.conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := p.conn.Write(p.buf); err != nil {
		return err
	}
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("publish: %s: %.300s", resp.Status, answer)
	}
	return err
}

// A feeder hands the fan-out floor its messages: a length, and a frame's body.
type feeder struct {
	conn net.Conn
	buf  []byte
}

func newFeeder(addr string) (*feeder, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, feedStart)
	return &feeder{conn: conn}, err
}

func (f *feeder) post(body []byte) error {
	f.buf = append(binary.BigEndian.AppendUint32(f.buf[:0], uint32(len(body))), body...)
	_, err := f.conn.Write(f.buf)
	return err
}
