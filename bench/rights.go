//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rshub/rshub/access"
)

// turns is how many times a round measures each hub. What else the machine does changes from
// second to second, and so it does the same to both.
const turns = 12

// rightsCost is what tokens, limits and the audit log may cost.
const rightsCost = 1.05

var (
	rightsPerPublish   = metric{name: "CPU µs/publish", limit: rightsCost, ratio: true}
	rightsPerDelivery  = metric{name: "CPU µs/delivery", limit: rightsCost, ratio: true}
	dialectsPerPublish = metric{name: "CPU µs/publish", limit: 1.02, ratio: true}
)

// generous are limits of every kind that nobody here reaches.
const generous = "requests:1000000000/s,publishes:1000000000/s,changes:1000000000/s,bytes:1000GiB/s,sets:1000000/h,connections:100000"

// A pair is two hubs: with something that may be off, and without.
type pair struct {
	off, on *server
	token   string // header of a request to on, a whole line; empty: none
}

func (p *pair) stop() {
	p.off.stop()
	p.on.stop()
}

// startPair starts both hubs, one of them with further variables.
func (b *bench) startPair(dir string, on ...string) (p *pair, err error) {
	p = new(pair)
	if p.off, err = b.rshub(filepath.Join(dir, "off")); err != nil {
		return nil, err
	}
	if p.on, err = b.rshub(filepath.Join(dir, "on"), on...); err != nil {
		p.off.stop()
		return nil, err
	}
	return p, nil
}

// rightsPair starts a hub with tokens, limits and an audit log, and one without.
func (b *bench) rightsPair() (*pair, error) {
	dir, err := b.dir()
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens")
	token, err := writeTokens(tokens, 10, generous) // more would have Go collect garbage less often, which is cheaper
	if err != nil {
		return nil, err
	}
	p, err := b.startPair(dir, "RSHUB_TOKENS_FILE="+tokens, "RSHUB_LIMITS_TOTAL="+generous, "RSHUB_AUDIT_LOG="+filepath.Join(dir, "audit.log"))
	if err != nil {
		return nil, err
	}
	p.token = "Authorization: Bearer " + token + "\r\n"
	return p, nil
}

// writeTokens makes a tokens file with n callers, each with limits of its own if limits are
// not empty, and returns the token of one in the middle.
func writeTokens(file string, n int, limits string) (token string, err error) {
	var text strings.Builder
	if limits != "" {
		limits = " limits=" + limits
	}
	for i := range n {
		one, digest := access.NewToken()
		if i == n/2 {
			token = one
		}
		fmt.Fprintf(&text, "caller-%d %s publish:%s,follow:*,publish:other-%d expires=2099-12-31%s\n", i, digest, benchSet, i, limits)
	}
	beside := file + ".new"
	return token, cmp.Or(os.WriteFile(beside, []byte(text.String()), 0o600), os.Rename(beside, file))
}

// rights measures what rights, limits and the audit log cost a publish and a delivery.
func (b *bench) rights(t *table) error {
	t.heads = [2]string{"off", "on"}
	p, err := b.rightsPair()
	if err != nil {
		return err
	}
	defer p.stop()
	if err := b.publishesOf(t, p, rightsPerPublish); err != nil {
		return err
	}
	return b.rightsOfDeliveries(t, p)
}

// dialects measures what it costs a publish that a hub speaks all dialects that are off by
// default, and nobody asks for any.
func (b *bench) dialects(t *table) error {
	t.heads = [2]string{"off", "on"}
	dir, err := b.dir()
	if err != nil {
		return err
	}
	p, err := b.startPair(dir, "RSHUB_RDM=true", "RSHUB_ROBOTS=true", "RSHUB_CONTENT_PLACE="+filepath.Join(dir, "content"),
		"RSHUB_XMPP_SERVER=127.0.0.1:1", "RSHUB_XMPP_DOMAIN=rshub.example.org", "RSHUB_XMPP_SECRET=secret", "RSHUB_XMPP_SERVICE=pubsub.example.org", "RSHUB_XMPP_SETS=other")
	if err != nil {
		return err
	}
	defer p.stop()
	return b.publishesOf(t, p, dialectsPerPublish)
}

// publishesOf measures publishes of one change and of a hundred to both hubs.
func (b *bench) publishesOf(t *table, p *pair, cost metric) error {
	for _, c := range []struct {
		what, header string
		n            int
	}{{"JSON", jsonHead, 1}, {"JSON", jsonHead, 100}, {"NDJSON", ndjsonHead, 1}, {"NDJSON", ndjsonHead, 100}} {
		if err := b.somePublishesOf(t, p, cost, c.what, c.header, c.n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) somePublishesOf(t *table, p *pair, cost metric, what, header string, n int) error {
	l := load{publishers: 16, n: n, length: b.publishing / 2}
	bodies := make([][]byte, len(b.content)/n)
	for i := range bodies {
		if bodies[i] = ndjson(b.content.batch(i, n)); what == "JSON" {
			bodies[i] = document(b.content.batch(i, n))
		}
	}
	path := "/sets/" + benchSet + "/changes"
	for range b.rounds {
		var off, on publishing
		err := inTurn(
			func() error { return off.more(l.with(p.off, path, header, bodies)) },
			func() error { return on.more(l.with(p.on, path, header+p.token, bodies)) })
		if err != nil {
			return err
		}
		t.add(fmt.Sprintf("%v, %s", l, what), cost, 1e6*off.cpu/off.publishes, 1e6*on.cpu/on.publishes, max(off.others, on.others)/turns)
	}
	return nil
}

// more adds what another publishing measured.
func (p *publishing) more(q publishing, err error) error {
	p.seconds, p.cpu, p.own, p.others, p.publishes = p.seconds+q.seconds, p.cpu+q.cpu, p.own+q.own, p.others+q.others, p.publishes+q.publishes
	return err
}

// inTurn calls both functions turns times, each as often first as the other.
func inTurn(f, g func() error) error {
	for i := range turns {
		if i%2 == 1 {
			f, g = g, f
		}
		if err := f(); err != nil {
			return err
		}
		if err := g(); err != nil {
			return err
		}
		if i%2 == 1 {
			f, g = g, f
		}
	}
	return nil
}

func (b *bench) rightsOfDeliveries(t *table, p *pair) error {
	path := "/sets/" + benchSet + "/changes"
	line, _ := marked(messageSize)
	measure := func(s *server, header string, length time.Duration, rate int) (delivery, error) {
		c := channel{server: s, path: path, header: header, subscribers: b.connections, body: line}
		for range publishersFor(rate) {
			post, err := newPosterWith(s.addr, path, ndjsonHead+header)
			if err != nil {
				return delivery{}, err
			}
			defer post.conn.Close()
			c.posts = append(c.posts, post.post)
		}
		return b.deliver(c, length, rate)
	}
	for _, rate := range []int{pace, 0} {
		what, length := fmt.Sprintf("%d WebSockets, saturated", b.connections), b.saturated/2
		if rate > 0 {
			what, length = fmt.Sprintf("%d WebSockets, %d/s", b.connections, pace), b.paced/4
		}
		for range b.rounds {
			var off, on delivery
			more := func(d *delivery, s *server, header string) func() error {
				return func() error {
					one, err := measure(s, header, length, rate)
					d.cpu, d.count, d.others = d.cpu+one.cpu, d.count+one.count, d.others+one.others
					return err
				}
			}
			if err := inTurn(more(&off, p.off, ""), more(&on, p.on, p.token)); err != nil {
				return err
			}
			t.add(what, rightsPerDelivery, 1e6*off.cpu/off.count, 1e6*on.cpu/on.count, max(off.others, on.others)/turns)
		}
	}
	return nil
}
