package redisconn

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

func connect(t testing.TB, url string, o Options) *Conn {
	t.Helper()
	c, err := Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onBoth runs a test on a server and on a Cluster.
func onBoth(t *testing.T, test func(*testing.T, *redistest.Server, string)) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		test(t, s, "redis://"+s.Addr)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartCluster(t)
		test(t, s, "redis://"+s.Addr+"?cluster=true")
	})
}

func TestOpen(t *testing.T) {
	if _, err := Open("redis://user:se#cret@host", Options{}); err == nil || strings.Contains(err.Error(), "cret@") {
		t.Errorf("Open() error = %v", err)
	}
	for url, cluster := range map[string]bool{
		"redis://localhost": false, "redis://localhost?cluster=true": true, "redis://a,b": true, "redis-sentinel://a,b?master=m": false,
	} {
		c := connect(t, url, Options{})
		if c.Cluster() != cluster || c.Waits() {
			t.Errorf("%s: Cluster() = %t", url, c.Cluster())
		}
	}
	if !connect(t, "redis://localhost", Options{Wait: 1}).Waits() {
		t.Error("Waits() = false, want true")
	}
}

func TestCommands(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redistest.Server, url string) {
		admin, ctx := s.Client(), t.Context()
		c := connect(t, url, Options{})
		ok(t, admin.HSet(ctx, "hash", "a", "1", "b", "2").Err())
		ok(t, admin.HSet(ctx, "other", "a", "3").Err())
		ok(t, admin.Set(ctx, "text", "x", 0).Err())
		ok(t, admin.Do(ctx, "zadd", "scores", 1, "m", 2, "n").Err())
		for _, id := range []string{"1-1", "1-2", "2-0", "3-0"} {
			field := "r"
			if id == "2-0" {
				field = "else"
			}
			ok(t, admin.Do(ctx, "xadd", "stream", id, field, "of "+id).Err())
		}
		ok(t, c.WriteCall().Do(ctx, func(try *Try) error {
			keys, err := try.HKeys("hash")
			slices.Sort(keys)
			if err != nil || !slices.Equal(keys, []string{"a", "b"}) {
				t.Errorf("HKeys() = %q, %v", keys, err)
			}
			if v, err := try.HMGet("hash", "b", "c"); err != nil || len(v) != 2 || v.Text(0) != "2" || v[1] != nil {
				t.Errorf("HMGet() = %q, %v", v, err)
			}
			all, err := try.HMGetAll([]string{"hash", "text", "nothing", "other"}, "a")
			if text, _ := ReplyText(err); !strings.HasPrefix(text, "WRONGTYPE") {
				t.Errorf("got error %v", err)
			}
			if len(all) != 4 || all[0].Text(0) != "1" || all[1] != nil || len(all[2]) != 1 || all[2][0] != nil || all[3].Text(0) != "3" {
				t.Errorf("HMGetAll() = %q", all)
			}
			if all, err := try.HMGetAll(nil, "a"); err != nil || len(all) != 0 {
				t.Errorf("HMGetAll() of no hashes = %q, %v", all, err)
			}
			messages, err := try.XRange("stream", "1-1", "r", 2)
			if want := []Message{{"1-2", "of 1-2"}, {"2-0", ""}}; err != nil || !slices.Equal(messages, want) {
				t.Errorf("XRange() = %v, %v", messages, err)
			}
			if messages, err := try.XRange("nothing", "0-0", "r", 2); err != nil || len(messages) != 0 {
				t.Errorf("XRange() = %v, %v", messages, err)
			}
			if err := try.ZRem("scores", "m"); err != nil {
				t.Error(err)
			}
			return nil
		}))
		if members := admin.ZRange(ctx, "scores", 0, -1).Val(); !slices.Equal(members, []string{"n"}) {
			t.Errorf("got members %q", members)
		}
		servers := 0
		ok(t, c.ReadCall().Do(ctx, func(try *Try) error {
			return try.EachMaster(func(try *Try) error {
				info, err := try.Info()
				if servers++; !strings.Contains(info, "redis_version:") {
					t.Errorf("Info() = %q", info)
				}
				return err
			})
		}))
		if servers != 1 {
			t.Errorf("EachMaster called do %d times", servers)
		}
	})
}

// A call whose ctx is done runs no step. On a closed Conn a call fails, and Lost is false.
func TestCallOnDoneContextOrClosedConn(t *testing.T) {
	s := redistest.Start(t)
	c := connect(t, "redis://"+s.Addr, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	err := c.WriteCall().Do(ctx, func(try *Try) error {
		steps++
		cancel()
		_, err := try.Run(set, []string{"key"}, "value")
		return err
	})
	if errors.Is(err, feed.ErrUnavailable) || steps != 1 {
		t.Errorf("ran %d steps, err = %v", steps, err)
	}
	if err := c.WriteCall().Do(ctx, func(*Try) error { steps++; return nil }); !errors.Is(err, context.Canceled) || steps != 1 {
		t.Errorf("ran %d steps, err = %v", steps, err)
	}
	ok(t, c.Close())
	write := c.WriteCall()
	if err := write.Do(t.Context(), step(&steps)); !errors.Is(err, feed.ErrUnavailable) || write.Lost() || steps != 2 {
		t.Errorf("ran %d steps, err = %v", steps, err)
	}
}

// set sets a key to a value, and says that it wrote unless the value is empty.
var set = NewScript(`
if ARGV[1] == '' then return { 'no' } end
redis.call('SET', KEYS[1], ARGV[1])
return { 'ok', ARGV[1], 7 }`, func(a Answer) bool { return a.Word() == "ok" })

// step sets a key and counts its calls.
func step(n *int) func(*Try) error {
	return func(t *Try) error {
		*n++
		_, err := t.Run(set, []string{"key"}, "value")
		return err
	}
}

// If Redis hangs, a call takes at most about twice the timeout.
func TestTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr)
	c := connect(t, "redis://"+p.Addr(), Options{Timeout: 2 * time.Second})
	steps := 0
	ok(t, c.WriteCall().Do(t.Context(), step(&steps)))
	p.Hang(true)
	begin := time.Now()
	if err := c.WriteCall().Do(t.Context(), step(&steps)); !errors.Is(err, feed.ErrUnknown) {
		t.Errorf("write: %v", err)
	}
	if err := c.ReadCall().Do(t.Context(), step(&steps)); !errors.Is(err, feed.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.ReadCall().Do(ctx, step(&steps)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read with a shorter deadline: %v", err)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("call took %v", d)
	}
}

// fill makes connections until the server accepts no more, and returns a function that closes one
// of them.
func fill(t *testing.T, addr string) (free func()) {
	t.Helper()
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	for range 100 {
		conn, err := net.Dial("tcp", addr)
		ok(t, err)
		_, err = conn.Write([]byte("PING\r\n"))
		answer := make([]byte, 100)
		n := 0
		if err == nil {
			n, err = conn.Read(answer)
		}
		if err != nil || !strings.HasPrefix(string(answer[:n]), "+PONG") {
			_ = conn.Close()
			return func() { _ = conns[0].Close() }
		}
		conns = append(conns, conn)
	}
	t.Fatal("server accepts any number of connections")
	return nil
}
