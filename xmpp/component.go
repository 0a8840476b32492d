package xmpp

import (
	"context"
	"crypto/rand"
	"crypto/sha1" // XEP-0114 has no other
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// How long the server may take.
const (
	dialWithin   = 10 * time.Second // to take the connection, and to agree to it
	writeWithin  = 10 * time.Second // to take a stanza
	answerWithin = 30 * time.Second // to answer one
)

// maxAnswer is the least that a stanza from the server may have, in bytes. An error may repeat
// what was sent, so it is more if larger stanzas are sent.
const maxAnswer = 256 << 10

// A component is a connection to an XMPP server as an external component. Whoever dials it
// calls read, and close at the end.
type component struct {
	account *Account
	conn    net.Conn
	stream  *stream
	prefix  string // of the ids of this connection, so that nobody guesses them

	writing sync.Mutex // is held while a stanza is sent

	mu      sync.Mutex
	asked   uint64                  // how many stanzas were sent that have an answer
	waiting map[string]chan *stanza // for answers, by id
	err     error                   // why the connection ended

	done chan struct{} // closed when err is set
}

// dial connects to a server, and says who the component is.
func dial(ctx context.Context, a *Account, maxStanza int, connect func(ctx context.Context, network, address string) (net.Conn, error)) (*component, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := connect(ctx, "tcp", a.Server)
	if err != nil {
		return nil, fmt.Errorf("connect to the XMPP server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c := &component{
		account: a, conn: conn, stream: newStream(conn, max(maxAnswer, 2*maxStanza)), prefix: rand.Text() + "-",
		waiting: map[string]chan *stanza{}, done: make(chan struct{}),
	}
	err = c.greet()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("the XMPP server does not answer: %w", ctx.Err())
		}
		return nil, err
	}
	return c, nil
}

// greet opens the stream and does the handshake (XEP-0114 section 3).
func (c *component) greet() error {
	begin := appendAttr([]byte("<?xml version='1.0'?><stream:stream xmlns='"+nsComponent+"' xmlns:stream='"+nsStreams+"'"), "to", c.account.Domain)
	if _, err := c.conn.Write(append(begin, '>')); err != nil {
		return fmt.Errorf("write to the XMPP server: %w", err)
	}
	id, err := c.stream.open()
	if err != nil {
		return err
	}
	sum := sha1.Sum([]byte(id + c.account.Secret))
	if _, err := c.conn.Write([]byte("<handshake>" + hex.EncodeToString(sum[:]) + "</handshake>")); err != nil {
		return fmt.Errorf("write to the XMPP server: %w", err)
	}
	answer, err := c.stream.next()
	switch {
	case err != nil:
		return err
	case answer.failure != nil:
		return answer.failure
	case answer.name.Local != "handshake":
		return fmt.Errorf("the XMPP server answers the handshake with <%s>", answer.name.Local)
	}
	return nil
}

// read takes what the server sends until the connection ends.
func (c *component) read() {
	for {
		st, err := c.stream.next()
		if err == nil && st.failure != nil && st.failure.Stream {
			err = st.failure
		}
		if err == nil {
			err = c.take(st)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// take hands an answer to whoever waits for it. What others ask the component is refused (RFC
// 6120 section 8.2.3 wants an answer), and all else is dropped.
func (c *component) take(st *stanza) error {
	switch {
	case st.name.Local != "iq":
	case st.kind == "get" || st.kind == "set":
		b := appendAttr([]byte("<iq type='error'"), "from", c.account.Domain)
		b = appendAttr(appendAttr(b, "to", st.from), "id", st.id)
		return c.send(append(b, "><error type='cancel'><service-unavailable xmlns='"+nsStanzas+"'/></error></iq>"...))
	case strings.EqualFold(st.from, c.account.Service): // nobody else answers for it
		c.mu.Lock()
		answer := c.waiting[st.id]
		delete(c.waiting, st.id)
		c.mu.Unlock()
		if answer != nil {
			answer <- st // it has room
		}
	}
	return nil
}

// ask sends the content of an iq to the pubsub service, and waits for the answer. An error
// that is a *Failure and not of the stream is that answer. After any other error it is
// unknown whether the service got it, and the connection has ended, or ctx is done.
func (c *component) ask(ctx context.Context, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	answer := make(chan *stanza, 1)
	c.mu.Lock()
	c.asked++
	id := fmt.Sprint(c.prefix, c.asked)
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.send(frame(c.account, id, content)); err != nil {
		c.fail(err)
		return c.failure()
	}
	select {
	case st := <-answer:
		if st.failure != nil {
			return st.failure
		}
		return nil
	case <-c.done:
		return c.failure()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.fail(fmt.Errorf("the pubsub service has not answered for %v: %w", answerWithin, ctx.Err()))
		}
		return ctx.Err()
	}
}

// send sends a stanza.
func (c *component) send(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := c.conn.Write(b); err != nil {
		return fmt.Errorf("write to the XMPP server: %w", err)
	}
	return nil
}

// fail ends the connection for a reason. Only the first counts.
func (c *component) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
		_ = c.conn.Close()
	}
}

// failure returns why the connection ended; nil: it has not.
func (c *component) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the stream and the connection.
func (c *component) close() {
	_ = c.send([]byte("</stream:stream>"))
	c.fail(errClosed)
}
