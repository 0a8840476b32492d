package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/certtest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// If Redis has too many connections, nothing is sent on a new one, however Redis closes it and
// however go-redis starts it.
func TestTooManyClients(t *testing.T) {
	s := redistest.Start(t, "--maxclients", "8")
	ok(t, s.Client().ACLSetUser(t.Context(), "hub", "on", ">secret", "~*", "+@all").Err())
	for _, url := range []string{
		"redis://" + s.Addr, "redis://" + s.Addr + "/3?client_name=hub", "redis://hub:secret@" + s.Addr, "redis://" + s.Addr + "?cluster=true",
	} {
		free := fill(t, s.Addr)
		c := connect(t, url, Options{})
		steps := 0
		for range 20 {
			write := c.WriteCall()
			err := write.Once(t.Context(), step(&steps))
			if !errors.Is(err, feed.ErrUnavailable) || errors.Is(err, feed.ErrUnknown) || write.Lost() {
				t.Errorf("%s: write: %v", url, err)
			}
			if err := c.ReadCall().Once(t.Context(), step(&steps)); !errors.Is(err, feed.ErrUnavailable) {
				t.Errorf("%s: read: %v", url, err)
			}
		}
		if c.Cluster() {
			continue
		}
		steps = 0
		err := c.WriteCall().Do(t.Context(), func(try *Try) error {
			if steps == 1 {
				free()
			}
			return step(&steps)(try)
		})
		if err != nil || steps < 2 {
			t.Errorf("%s: after a connection was freed, %d tries: %v", url, steps, err)
		}
		ok(t, c.Close())
	}
}

// Each error reply of Redis becomes the error that callers expect.
func TestErrorsAreTranslated(t *testing.T) {
	s := redistest.Start(t)
	admin, ctx := s.Client(), t.Context()
	ok(t, admin.ACLSetUser(ctx, "hub", "on", ">secret", "~*", "+@all", "-info", "-zrem").Err())
	ok(t, admin.RPush(ctx, "list", "x").Err())
	url := "redis://" + s.Addr
	c := connect(t, url, Options{})
	user := connect(t, "redis://hub:secret@"+s.Addr, Options{})
	stranger := connect(t, "redis://hub:wrong@"+s.Addr, Options{})
	fails := NewScript(`error('damaged: all of it')`, nil)
	unknown := NewScript(`return redis.call('NOSUCH')`, nil)
	info := func(try *Try) error { _, err := try.Info(); return err }
	runs := func(s *Script) func(*Try) error {
		return func(try *Try) error { _, err := try.Run(s, []string{"key"}, "value"); return err }
	}
	for _, test := range []struct {
		what              string
		conn              *Conn
		step              func(*Try) error
		is                error
		denied, forbidden bool
		says              string
	}{
		{"wrong password", stranger, runs(set), feed.ErrUnavailable, true, false, "WRONGPASS"},
		{"forbidden", user, info, feed.ErrUnavailable, true, true, "NOPERM"},
		{"forbidden write", user, func(try *Try) error { return try.ZRem("key", "x") }, feed.ErrUnavailable, true, true, "NOPERM"},
		{"wrong type", c, func(try *Try) error { _, err := try.HMGet("list", "a"); return err }, nil, false, false, "WRONGTYPE"},
		{"a script's error", c, runs(fails), nil, false, false, "damaged: all of it"},
		{"a script's mistake", c, runs(unknown), nil, false, false, "Unknown Redis command"},
	} {
		t.Run(test.what, func(t *testing.T) {
			steps := 0
			for _, call := range []*Call{test.conn.ReadCall(), test.conn.WriteCall()} {
				err := call.Do(ctx, func(try *Try) error { steps++; return test.step(try) })
				if err == nil {
					t.Errorf("got no error, want %q", test.says)
					continue
				}
				for _, e := range []error{feed.ErrUnavailable, feed.ErrUnknown, feed.ErrFull} {
					if errors.Is(err, e) != (test.is == e) {
						t.Errorf("got %v, want %v", err, test.is)
					}
				}
				if text, answered := ReplyText(err); !answered || !strings.Contains(text, test.says) {
					t.Errorf("ReplyText() = %q, want %q", text, test.says)
				}
				if Denied(err) != test.denied || Forbidden(err) != test.forbidden {
					t.Errorf("Denied() = %t, Forbidden() = %t, want %t, %t", Denied(err), Forbidden(err), test.denied, test.forbidden)
				}
			}
			if steps != 2 {
				t.Errorf("got %d tries, want 2", steps)
			}
		})
	}

	ok(t, admin.ConfigSet(ctx, "maxmemory", "1").Err())
	if err := c.WriteCall().Do(ctx, runs(set)); !errors.Is(err, feed.ErrFull) {
		t.Errorf("out of memory: %v", err)
	}
	ok(t, admin.ConfigSet(ctx, "maxmemory", "0").Err())

	ok(t, admin.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	steps := 0
	write := c.WriteCall()
	if err := write.Do(ctx, step(&steps)); !errors.Is(err, feed.ErrUnavailable) || steps != maxTries || write.Lost() {
		t.Errorf("replica, after %d tries: %v", steps, err)
	}
	ok(t, admin.ReplicaOf(ctx, "no", "one").Err())
	ok(t, c.WriteCall().Do(ctx, step(&steps)))

	s.Kill()
	steps = 0
	write = c.WriteCall()
	if err := write.Do(ctx, step(&steps)); !errors.Is(err, feed.ErrUnavailable) || steps != maxTries || write.Lost() {
		t.Errorf("killed script, after %d tries: %v", steps, err)
	}
	steps = 0
	if err := c.WriteCall().Once(ctx, step(&steps)); !errors.Is(err, feed.ErrUnavailable) || steps != 1 {
		t.Errorf("killed script, after %d tries: %v", steps, err)
	}
	s.Restart()
	ok(t, c.WriteCall().Do(ctx, step(&steps)))
}

// An error of Refuse is not retried.
func TestRefuseIsNotRetried(t *testing.T) {
	c := connect(t, "redis://localhost", Options{})
	steps := 0
	err := c.WriteCall().Do(t.Context(), func(*Try) error {
		steps++
		return Refuse(fmt.Errorf("wrapped: %w", feed.ErrGone))
	})
	if steps != 1 || !errors.Is(err, feed.ErrGone) || err.Error() != "wrapped: "+feed.ErrGone.Error() {
		t.Errorf("got %d tries: %v", steps, err)
	}
}

// A lost reply makes the outcome of a write unknown, but not of a read.
func TestLostReplyIsUnknown(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	c := connect(t, "redis://"+p.Addr(), Options{Timeout: 5 * time.Second})
	ctx := t.Context()
	var lose atomic.Int32 // how many answers
	p.Lose(func() bool { return lose.Add(-1) >= 0 })
	steps := 0
	// warm makes sure of a connection, so that no greeting is lost.
	warm := func(n int32) {
		t.Helper()
		lose.Store(0)
		ok(t, c.ReadCall().Do(ctx, func(try *Try) error { _, err := try.HKeys("nothing"); return err }))
		lose.Store(n)
		steps = 0
	}

	warm(1)
	write := c.WriteCall()
	if err := write.Do(ctx, step(&steps)); err != nil || steps != 2 || !write.Lost() {
		t.Errorf("write, %d tries: %v", steps, err)
	}
	warm(1)
	if err := c.WriteCall().Once(ctx, step(&steps)); !errors.Is(err, feed.ErrUnknown) || steps != 1 {
		t.Errorf("write with one try: %v", err)
	}
	warm(1)
	if err := c.ReadCall().Once(ctx, step(&steps)); !errors.Is(err, feed.ErrUnavailable) {
		t.Errorf("read with one try: %v", err)
	}
	warm(1)
	err := c.WriteCall().Do(ctx, func(try *Try) error {
		if err := step(&steps)(try); err != nil {
			return err
		}
		return Refuse(feed.ErrNoSet)
	})
	if !errors.Is(err, feed.ErrUnknown) || errors.Is(err, feed.ErrNoSet) || steps != 2 {
		t.Errorf("refusal after a lost try: %v", err)
	}
	warm(1)
	write = c.WriteCall()
	err = write.Once(ctx, func(try *Try) error { _, err := try.HMGet("hash", "a"); return err })
	if !errors.Is(err, feed.ErrUnavailable) || write.Lost() {
		t.Errorf("read-only command in a write call: %v", err)
	}
	warm(1)
	err = c.WriteCall().Once(ctx, func(try *Try) error { return try.ZRem("key", "a") })
	if !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("plain write command: %v", err)
	}
	warm(1)
	err = c.WriteCall().Once(ctx, func(try *Try) error {
		return try.RunAll(set, 3, func(i int) ([]string, []any) { return []string{"key"}, []any{i} }, func(int, Answer) {})
	})
	if !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("RunAll: %v", err)
	}

	// A greeting is not a write.
	warm(1 << 30)
	steps = 0
	_ = c.WriteCall().Do(ctx, step(&steps)) // breaks the existing connections
	write = c.WriteCall()
	if err := write.Do(ctx, step(&steps)); !errors.Is(err, feed.ErrUnavailable) || write.Lost() {
		t.Errorf("greeting: %v", err)
	}
}

// A server that uses TLS contrary to its URL, or has an unknown certificate, gives an error with
// advice.
func TestTLSMismatchGivesAdvice(t *testing.T) {
	pair := certtest.New(t)
	certificate, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	ok(t, err)
	speaks, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	ok(t, err)
	defer speaks.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // answers nothing, as Redis does to a greeting of TLS
	ok(t, err)
	defer silent.Close()
	go func() {
		for {
			conn, err := speaks.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.(*tls.Conn).Handshake() // fails
				_ = conn.Close()
			}()
		}
	}()
	for _, tt := range []struct {
		name, url, want string
		timeout         time.Duration
		untrusted       bool
	}{
		{"TLS not expected", "redis://" + speaks.Addr().String(), "Redis closed the connection; if it uses TLS, its URL must start with rediss://", time.Minute, false},
		{"TLS expected", "rediss://" + silent.Addr().String(), "timeout: no reply from Redis; if it does not use TLS, its URL must start with redis://", 100 * time.Millisecond, false},
		{"unknown certificate", "rediss://" + speaks.Addr().String(), "failed to verify certificate", time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := connect(t, tt.url, Options{Timeout: tt.timeout})
			steps := 0
			err := c.ReadCall().Once(t.Context(), step(&steps))
			if !errors.Is(err, feed.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Once() = %v, want %q", err, tt.want)
			}
			if Untrusted(err) != tt.untrusted {
				t.Errorf("Untrusted(%v) = %v, want %v", err, Untrusted(err), tt.untrusted)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := c.ReadCall().Once(ctx, step(&steps)); strings.Count(err.Error(), "deadline exceeded") > 0 {
				t.Errorf("Once() = %v, want no text of package context", err)
			}
		})
	}
}
