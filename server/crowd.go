package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/problem"
)

// A crowd bounds the connections of users, so that they do not use up the file
// descriptors of the process. Some connections that do not fit are taken all the same,
// and get an answer that says why. What is more than that is closed without a word. A
// crowd is a net.Listener.
type crowd struct {
	net.Listener
	most int64 // connections that fit
	away int64 // connections above that which get an answer, at the same time
	log  *slog.Logger

	now     atomic.Int64 // open connections
	said    atomic.Int64 // when the log was told last that there are too many, in microseconds
	refused prometheus.Counter
}

// newCrowd returns a crowd that takes connections from l as d says.
func newCrowd(l net.Listener, d shares, log *slog.Logger, r prometheus.Registerer) *crowd {
	return &crowd{Listener: l, most: d.users, away: d.away, log: log, refused: promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "rshub_connections_refused_total",
		Help: "Connections to RSHUB_LISTEN that were closed because there were too many for the limit of file descriptors.",
	})}
}

// Accept waits for a connection that fits, or that can be told that it does not.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := c.now.Add(1)
		if n <= c.most {
			return c.guest(conn, false), nil
		}
		c.refused.Inc()
		c.say()
		if n <= c.most+c.away {
			return c.guest(conn, true), nil
		}
		c.now.Add(-1)
		_ = conn.Close()
	}
}

// say tells the log that there are too many connections, at most once a minute.
func (c *crowd) say() {
	if minutely(&c.said) {
		c.log.Error("there are too many connections for the limit of file descriptors; further ones are refused", "most", c.most)
	}
}

// A guest is a connection that a crowd counts until it is closed. It keeps the methods
// of a TCP connection, such as those for the socket.
type guest struct {
	*net.TCPConn
	tooMany bool
	leave   func()
}

func (c *crowd) guest(conn net.Conn, tooMany bool) net.Conn {
	return &guest{conn.(*net.TCPConn), tooMany, sync.OnceFunc(func() { c.now.Add(-1) })}
}

// Write writes as a TCP connection does. But the kernel wakes a writer only when a third of
// its buffer is free. So at its deadline, Write tries once more, in case the client has
// taken something. A write over TLS that fails has spoiled the connection for good.
func (g *guest) Write(p []byte) (n int, err error) {
	if n, err = g.TCPConn.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = g.SetWriteDeadline(time.Now().Add(lastTry))
	m, err := g.TCPConn.Write(p[n:])
	return n + m, err
}

// lastTry is how long a write goes on at its deadline. It is there for the first attempt
// only, which does not wait.
const lastTry = 10 * time.Millisecond

func (g *guest) Close() error {
	defer g.leave()
	return g.TCPConn.Close()
}

type tooManyKey struct{}

// noteGuest notes in the context of a connection's requests whether it is to be turned
// away. It is a ConnContext of an http.Server.
func noteGuest(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if g, ok := conn.(*guest); ok && g.tooMany {
		return context.WithValue(ctx, tooManyKey{}, true)
	}
	return ctx
}

// turnAway answers requests on connections that are too many with 503. They are
// counted, and not logged one by one: there may be thousands a second.
func turnAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(tooManyKey{}) == nil {
			next.ServeHTTP(w, r)
			return
		}
		p := problem.New(http.StatusServiceUnavailable, "too-many-connections", "this hub has as many connections as it can have; try again later")
		p.RetryAfter = 10
		w.Header().Set("Connection", "close")
		problem.Write(w, r, p)
	})
}
