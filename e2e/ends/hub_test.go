package ends

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// balance stands before hubs: each connection goes to any of them that takes it.
func balance(t testing.TB, r *rand.Rand, hubs ...*hubtest.Hub) string {
	var mu sync.Mutex
	dial := func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		mu.Lock()
		order := r.Perm(len(hubs))
		mu.Unlock()
		for _, i := range order {
			if conn, err = new(net.Dialer).DialContext(ctx, network, hubs[i].Host); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	to, err := url.Parse(hubs[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	p := httputil.NewSingleHostReverseProxy(to)
	p.Transport = &http.Transport{DialContext: dial, DisableKeepAlives: true}
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	s := httptest.NewServer(p)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// twoHubs starts two hubs on one memory, and what balances between them.
func twoHubs(t *testing.T, r *rand.Rand) (a, b *hubtest.Hub, both string) {
	redis, nats := hubtest.StartRedis(t), hubtest.StartNATS(t)
	a, b = hubtest.JoinCluster(t, "", redis.Addr, nats.Addr), hubtest.JoinCluster(t, "", redis.Addr, nats.Addr)
	return a, b, balance(t, r, a, b)
}

// TestDirectory changes a directory at random under rspublish watch. Three mirrors and a
// command follow it through two hubs. All of these are killed the whole time. In the end
// the mirrors are the directory, and the command was handed every change.
func TestDirectory(t *testing.T) {
	t.Parallel()
	c := choose(t)
	source := newTree(t, c.of(1), size(300, 20_000))
	origin := newOrigin(t, c.of(2), source.dir, true)
	a, b, both := twoHubs(t, c.of(3))
	in := inbox{t.TempDir()}
	publish := func(name string) {
		line := fmt.Sprintf(`{"loc":%q,"change":"created","hash":"sha-256:%s"}`, origin.loc(name), sum(nil))
		hubtest.Must(t, http.StatusOK, http.MethodPost, a.Topic("files"), []byte(line), "Content-Type: application/x-ndjson")
	}
	defer func() { in.explain(t, a, origin, "the first", "the second") }()
	publish("the first") // the directory does not have it

	var players cast
	command := players.play("command", program(t, nil, hubtest.Rsmirror, "-to", "exec:"+in.command(), both+"/sets/files/changes", t.TempDir()))
	command.Says("the baseline is complete") // of a set that has one change, so every change is handed to it
	publish("the second")
	hubtest.Until(t, "the command goes on behind its baseline", func() error {
		if n, _, err := in.whole(); err != nil || n < 2 {
			return fmt.Errorf("it was handed %d changes: %w", n, err)
		}
		return nil
	})
	players.play("hub a", hub(t, a))
	players.play("hub b", hub(t, b))
	watch := players.play("watch", program(t, []string{"XDG_CACHE_HOME=" + t.TempDir()}, hubtest.Rspublish,
		"watch", "-hub", both, "-set", "files", "-settle", "100ms", "-max-delete", "all", "-retry", "2s", "-base", origin.base(), source.dir))
	var mirrors []*mirrored
	for i, h := range []string{a.URL, b.URL, both} {
		m := &mirrored{dir: t.TempDir(), base: origin.base()}
		m.player = players.play([]string{"mirror a", "mirror b", "mirror of both"}[i], program(t, nil, hubtest.Rsmirror, m.args(h+"/sets/files/changes")...))
		mirrors = append(mirrors, m)
		defer m.explain(t)
	}
	done := source.start(size(500, 20_000), size(20*time.Millisecond, 8*time.Millisecond))
	players.killed(t, c.of(4), size(200*time.Millisecond, 1_500*time.Millisecond), done)

	origin.mend()
	source.keep(50, 5*time.Millisecond)
	want := source.contents()
	began := time.Now()
	for _, m := range mirrors {
		hubtest.Until(t, m.name+" is the directory", func() error {
			m.runs(t)
			return m.differs(want)
		})
		t.Logf("%s is the directory after %v", m.name, time.Since(began).Round(time.Millisecond))
	}
	hubtest.Until(t, "the command has got what is in the directory", func() error {
		command.runs(t)
		watch.runs(t)
		return in.differs(origin.base(), want)
	})
	for _, m := range mirrors {
		m.stop(t)
		m.proved(t, want)
	}
	command.stop(t)
	watch.stop(t)

	newest, repeats, err := in.whole()
	if err != nil {
		t.Error(err)
	}
	if memory := hubtest.Memory(t, a, "files"); uint64(len(memory)) != newest {
		t.Errorf("the command was handed %d changes, and there are %d", newest, len(memory))
	}
	t.Logf("the directory has %d files; changes made %v; published %d, handed again %d; the origin answered %v", len(want), source.done, newest, repeats, origin.served)
	if source.done["move directory"] == 0 && full() {
		t.Error(errors.New("no directory was moved"))
	}
}
