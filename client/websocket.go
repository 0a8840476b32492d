package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

// A webSocket is a client's end of a WebSocket (RFC 6455). The handshake is an ordinary request of
// the http.Client, so its proxy, its TLS configuration and its redirects apply.
//
// It reads a message only when receive is called, so a slow caller slows down the server. In the
// meantime it answers pings.
type webSocket struct {
	conn    io.ReadWriteCloser
	in      *bufio.Reader // reads from conn through webSocket.Read
	timeout time.Duration // limit for the silence of the server
	silence *time.Timer   // closes conn at the end of timeout; stopped while the caller is slow
	silent  atomic.Bool   // whether silence has closed conn

	demand   chan struct{} // requests for a message; at most one is pending
	messages chan message
	done     chan struct{} // closed by close
	wg       sync.WaitGroup

	wakeup backoff.Wakeup // wakes the writer
	mu     sync.Mutex
	texts  [][]byte // messages to send; guarded by mu
	pong   []byte   // payload of the next pong; nil if no pong is due; guarded by mu

	writing sync.Mutex // held while a frame is written
	broken  bool       // whether a write has failed; guarded by writing
}

// A message is a data message of the server, or the error that ended the reading.
type message struct {
	opcode byte
	data   []byte // valid until the next receive
	err    error
}

// Frames (RFC 6455 section 5.2).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10

	finalBit, reservedBits, opcodeBits = 0x80, 0x70, 0x0f
	maskBit, lengthBits                = 0x80, 0x7f

	maxControl = 125 // bytes of the payload of a control frame
)

const (
	maxMessage     = 8 << 20          // bytes; a hub sends at most 1 MiB, except for a single larger change
	closeTimeout   = time.Second      // limit for the close frame
	keepAlive      = 25 * time.Second // interval of pongs while the caller is slow, so that the hub does not mistake it for dead
	closeNormal    = 1000
	webSocketMagic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// dialWebSocket opens a WebSocket. The server must select the subprotocol. The caller must close the
// webSocket. An error is an *UnavailableError, a *RefusedError or ErrNotHub.
func (c *Client) dialWebSocket(ctx context.Context, url, subprotocol string, timeout time.Duration) (*webSocket, error) {
	through := c.http
	through.Timeout = 0 // it would limit the whole connection
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel() // has no effect on a connection after its handshake
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", url, err)
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": subprotocol,
	} {
		req.Header.Set(name, value)
	}
	resp, err := c.send(&through, req)
	if err != nil {
		return nil, err
	}
	if err := c.checkHandshake(resp, key, subprotocol); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return nil, errors.New("the transport of Options.HTTP does not support WebSockets")
	}
	return newWebSocket(conn, timeout), nil
}

// checkHandshake checks the response to a handshake with the given key.
func (c *Client) checkHandshake(resp *http.Response, key, subprotocol string) error {
	sum := sha1.Sum([]byte(key + webSocketMagic))
	h := resp.Header
	switch {
	case resp.StatusCode == http.StatusOK:
		return fmt.Errorf("%s: %w", resp.Request.URL.Redacted(), ErrNotHub)
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return c.statusError(resp)
	case !strings.EqualFold(h.Get("Upgrade"), "websocket"), h.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]):
		return notHubError(c.base.Changes() + ": got an invalid WebSocket handshake")
	case h.Get("Sec-WebSocket-Extensions") != "":
		return notHubError(c.base.Changes() + ": got a WebSocket extension that was not requested")
	case h.Get("Sec-WebSocket-Protocol") != subprotocol:
		return notHubError(fmt.Sprintf("%s: got subprotocol %.40q, want %s", c.base.Changes(), h.Get("Sec-WebSocket-Protocol"), subprotocol))
	}
	return nil
}

// newWebSocket returns the webSocket of a connection after its handshake, and starts its goroutines.
func newWebSocket(conn io.ReadWriteCloser, timeout time.Duration) *webSocket {
	s := &webSocket{
		conn: conn, timeout: timeout,
		demand: make(chan struct{}, 1), messages: make(chan message), done: make(chan struct{}), wakeup: backoff.NewWakeup(),
	}
	s.in = bufio.NewReader(s)
	s.silence = time.AfterFunc(timeout, func() {
		s.silent.Store(true)
		_ = conn.Close()
	})
	s.wg.Go(s.read)
	s.wg.Go(s.write)
	return s
}

// Read implements io.Reader for s.in. Every byte is a sign of life.
func (s *webSocket) Read(p []byte) (int, error) {
	n, err := s.conn.Read(p)
	if n > 0 {
		s.silence.Reset(s.timeout)
	}
	return n, err
}

// receive waits for the next message. Its data is valid until the next call. The error is a
// *closeError, ErrNotHub, ctx's error, or another error of the connection.
func (s *webSocket) receive(ctx context.Context) (opcode byte, data []byte, err error) {
	s.demand <- struct{}{} // does not block: each call receives a message, or is the last one
	select {
	case m := <-s.messages:
		return m.opcode, m.data, m.err
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
}

// send queues a text message. It does not block. After an error, messages are lost, and receive
// returns the error.
func (s *webSocket) send(texts ...[]byte) {
	s.mu.Lock()
	s.texts = append(s.texts, texts...)
	s.mu.Unlock()
	s.wakeup.Wake()
}

// close sends a close frame, closes the connection, and waits for the goroutines.
func (s *webSocket) close() {
	close(s.done)
	force := time.AfterFunc(closeTimeout, func() { _ = s.conn.Close() })
	s.writeFrame(opClose, binary.BigEndian.AppendUint16(nil, closeNormal))
	force.Stop()
	_ = s.conn.Close()
	s.wg.Wait()
	s.silence.Stop()
}

// write is the goroutine that writes frames.
func (s *webSocket) write() {
	for {
		s.mu.Lock()
		pong, texts := s.pong, s.texts
		s.pong = nil
		if len(texts) > 0 {
			s.texts = texts[1:]
		}
		s.mu.Unlock()
		if pong != nil {
			s.writeFrame(opPong, pong)
		}
		if len(texts) > 0 {
			s.writeFrame(opText, texts[0])
		}
		if pong == nil && len(texts) == 0 {
			select {
			case <-s.wakeup:
			case <-s.done:
				return
			}
		}
		select {
		case <-s.done:
			return
		default:
		}
	}
}

// writeFrame writes a message as one masked frame. After an error it writes nothing more. The reader
// notices, perhaps after the close frame of the server.
func (s *webSocket) writeFrame(opcode byte, payload []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.broken {
		return
	}
	frame := []byte{finalBit | opcode}
	switch n := len(payload); {
	case n <= maxControl:
		frame = append(frame, maskBit|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, maskBit|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, maskBit|127), uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // never fails
	frame = append(frame, mask[:]...)
	for i, b := range payload {
		frame = append(frame, b^mask[i%len(mask)])
	}
	_, err := s.conn.Write(frame)
	s.broken = err != nil
}

// sendPong queues a pong. Only the newest is sent.
func (s *webSocket) sendPong(payload []byte) {
	s.mu.Lock()
	s.pong = append([]byte{}, payload...)
	s.mu.Unlock()
	s.wakeup.Wake()
}

// read is the goroutine that reads messages.
func (s *webSocket) read() {
	var buffer []byte
	for {
		m := s.readMessage(buffer[:0])
		if m.err != nil && s.silent.Load() {
			m.err = fmt.Errorf("nothing arrived for %v", s.timeout)
		}
		select {
		case s.messages <- m:
		case <-s.done:
			return
		}
		if m.err != nil {
			return
		}
		buffer = m.data
		if cap(buffer) > maxMessage/8 {
			buffer = nil
		}
	}
}

// readMessage reads a message into a buffer when it is requested. It answers the control frames
// before it.
func (s *webSocket) readMessage(buffer []byte) message {
	m := message{data: buffer}
	for {
		opcode, final, size, err := s.readHeader()
		switch {
		case err != nil:
			return message{err: err}
		case opcode >= opClose:
			if err := s.readControl(opcode, int(size)); err != nil {
				return message{err: err}
			}
			continue
		case (m.opcode != 0) != (opcode == opContinuation):
			return message{err: notHubError("got a WebSocket message in the wrong order")}
		case size > uint64(maxMessage-len(m.data)):
			return message{err: notHubError(fmt.Sprintf("got a message of more than %d bytes", maxMessage))}
		case m.opcode == 0:
			if m.opcode = opcode; !s.awaitDemand() {
				return message{err: io.ErrClosedPipe}
			}
		}
		begin := len(m.data)
		m.data = append(m.data, make([]byte, size)...)
		if _, err := io.ReadFull(s.in, m.data[begin:]); err != nil {
			return message{err: unexpectedEOF(err)}
		}
		if final {
			return m
		}
	}
}

// awaitDemand waits until a message is requested. It returns false if s is closed.
func (s *webSocket) awaitDemand() bool {
	select {
	case <-s.demand:
		return true
	default:
	}
	s.silence.Stop()
	defer s.silence.Reset(s.timeout)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-s.demand:
			return true
		case <-s.done:
			return false
		case <-tick.C:
			s.sendPong(nil)
		}
	}
}

// readHeader reads the header of a frame.
func (s *webSocket) readHeader() (opcode byte, final bool, size uint64, err error) {
	var head [8]byte
	if _, err := io.ReadFull(s.in, head[:2]); err != nil {
		return 0, false, 0, unexpectedEOF(err)
	}
	opcode, final, size = head[0]&opcodeBits, head[0]&finalBit != 0, uint64(head[1]&lengthBits)
	switch {
	case head[0]&reservedBits != 0, head[1]&maskBit != 0, opcode > opPong, opcode > opBinary && opcode < opClose:
		return 0, false, 0, notHubError("got an invalid WebSocket frame")
	case opcode >= opClose && (!final || size > maxControl):
		return 0, false, 0, notHubError("got a WebSocket control frame that is fragmented or too long")
	case size <= maxControl:
		return opcode, final, size, nil
	}
	field := head[6:] // of 16 bits
	if size == lengthBits {
		field = head[:]
	}
	clear(head[:])
	if _, err := io.ReadFull(s.in, field); err != nil {
		return 0, false, 0, unexpectedEOF(err)
	}
	return opcode, final, binary.BigEndian.Uint64(head[:]), nil
}

// readControl reads the payload of a control frame, and handles the frame.
func (s *webSocket) readControl(opcode byte, size int) error {
	payload := make([]byte, size)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return unexpectedEOF(err)
	}
	switch opcode {
	case opPing:
		s.sendPong(payload)
	case opClose:
		e := &closeError{code: 1005} // no code (RFC 6455 section 7.4.1)
		if len(payload) >= 2 {
			e.code, e.reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
		}
		return e
	}
	return nil
}

// A closeError reports a close frame of the server.
type closeError struct {
	code   int
	reason string
}

func (e *closeError) Error() string {
	if e.reason == "" {
		return fmt.Sprintf("closed with code %d", e.code)
	}
	return fmt.Sprintf("closed with code %d: %s", e.code, e.reason)
}

// unexpectedEOF returns err, or io.ErrUnexpectedEOF in place of io.EOF.
func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
