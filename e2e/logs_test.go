package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// secret is in everything that logs must not show.
const secret = "S3CRET"

// TestNoSecretsInLogs does everything that involves a secret, well and wrongly,
// at a hub that logs all it can, and takes Redis and NATS away meanwhile.
func TestNoSecretsInLogs(t *testing.T) {
	t.Parallel()
	const set = "secretive"
	redis := startRedis(t)
	redis.tell(t, "CONFIG", "SET", "requirepass", "redis"+secret)
	nats := &natsServer{addr: freePort(t), options: server.Options{Username: "hub", Password: "nats" + secret}}
	nats.start(t)
	t.Cleanup(func() { nats.stop() })
	file := filepath.Join(t.TempDir(), "tokens")
	token := newToken(t, file, "all", "publish:*,follow:*,operate")
	h := newHub(t, append(slices.Clone(callable), "RSHUB_LOG_LEVEL=debug", "RSHUB_TOKENS_FILE="+file,
		"RSHUB_REDIS_URL=redis://:redis"+secret+"@"+redis.addr, "RSHUB_NATS_URL=nats://hub:nats"+secret+"@"+nats.addr)...)
	h.env = append(h.env, "RSHUB_BASE_URL="+h.url)
	h.start(t)
	bearer := "Authorization: Bearer " + token

	publish(t, h, set, change("a"), bearer)
	must(t, http.StatusUnauthorized, http.MethodGet, h.topic(set), nil, "Authorization: Bearer rshub_WRONG"+secret)
	must(t, http.StatusUnauthorized, http.MethodGet, h.topic(set)+"?access_token="+secret+"&since=start", nil)
	must(t, http.StatusUnauthorized, http.MethodGet, h.topic(set), nil, "Authorization: Basic "+secret)

	// A callback whose URL is a secret, that has one, and fails. It is asked about
	// the status of its subscription, which only it knows.
	tr := trialOf(t, h)
	c := tr.callback("/path" + secret + "?query=" + secret)
	c.on(delivery, status(http.StatusInternalServerError))
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.topic(set)}, "hub.callback": {c.url}, "hub.secret": {"hub" + secret}}
	must(t, http.StatusAccepted, http.MethodPost, h.url+"/hub", []byte(form.Encode()), bearer, asForm)
	statusURL := tr.arrives(c, verification, 1)[0].param("rs.status")
	until(t, "it is subscribed", func() error {
		a, err := request(http.MethodGet, statusURL, nil)
		if err == nil && a.status != http.StatusOK {
			err = errors.New(string(a.body))
		}
		return err
	})
	capability := statusURL[strings.LastIndex(statusURL, ".")+1:]
	publish(t, h, set, change("b"), bearer)
	tr.arrives(c, delivery, 1)
	must(t, http.StatusNotFound, http.MethodGet, statusURL+secret, nil)
	form.Set("hub.secret", strings.Repeat(secret, 100)) // too long
	must(t, http.StatusBadRequest, http.MethodPost, h.url+"/hub", []byte(form.Encode()), bearer, asForm)
	form.Set("hub.secret", secret)
	form.Set("hub.callback", "http://user:"+secret+"@127.0.0.1/")
	must(t, http.StatusBadRequest, http.MethodPost, h.url+"/hub", []byte(form.Encode()), bearer, asForm)

	// A source whose Change List is at a secret place, and not to be had.
	source := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(source.Close)
	must(t, http.StatusOK, http.MethodPut, h.url+"/sets/"+set, []byte(`{"changelist":"`+source.URL+"/"+secret+`"}`), bearer)
	must(t, http.StatusAccepted, http.MethodPost, h.url+"/hub", []byte(url.Values{"hub.mode": {"publish"}, "hub.topic": {h.topic(set)}}.Encode()), bearer, asForm)
	h.says("could not be taken")
	must(t, http.StatusNotImplemented, http.MethodGet, h.ops+"/backup", nil, bearer)

	nats.stop()
	h.says("NATS is gone")
	redis.kill()
	must(t, http.StatusServiceUnavailable, http.MethodGet, statusURL, nil)
	must(t, http.StatusServiceUnavailable, http.MethodPost, h.topic(set), change("c"), bearer, "Content-Type: application/x-ndjson")
	readyz := must(t, http.StatusServiceUnavailable, http.MethodGet, h.ops+"/readyz", nil)
	redis.start(t)
	redis.tell(t, "CONFIG", "SET", "requirepass", "redis"+secret)
	nats.options.Password = "another"
	nats.start(t)
	h.says("uthorization")
	h.stop(t)

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	digest := strings.Fields(string(text))[1]
	for where, shown := range map[string]string{"the log": h.stderr.String(), "/readyz": string(readyz.body)} {
		for _, s := range []string{secret, token, capability, digest} {
			if i := strings.Index(shown, s); i >= 0 {
				t.Errorf("%s shows a secret: …%s…", where, shown[max(0, i-200):min(len(shown), i+len(s)+20)])
			}
		}
	}
	for line := range strings.Lines(h.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has a line that is no JSON: %s", line)
		}
	}
}

// TestQuietLog counts the lines that a hub logs, as it comes: none for a publish,
// a delivery, a follower or a request.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	const set = "quiet"
	h := startWebSub(t)
	tr := trialOf(t, h)
	c, tp := tr.callback(""), tr.topic()
	tr.subscribed(c, tp)
	tr.delivered(c, tr.publish(tp))
	h.says("callbacks: confirmed")
	before := h.stderr.String()
	var followers []*follower
	for _, way := range allWays {
		followers = append(followers, follow(t, h, way, set, "start"))
	}
	for range 50 {
		publish(t, h, set, change("a"))
		tr.delivered(c, tr.publish(tp))
	}
	for _, f := range followers {
		f.has(t, 50)
	}
	must(t, http.StatusNotFound, http.MethodGet, h.url+"/nothing", nil)
	must(t, http.StatusOK, http.MethodGet, h.ops+"/readyz", nil)
	if after := h.stderr.String(); after != before {
		t.Errorf("it has logged\n%s", strings.TrimPrefix(after, before))
	}
}

// TestRequestIDs asks with an id, and finds it in the answer and in the log.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_LOG_LEVEL=debug")
	a := must(t, http.StatusNotFound, http.MethodGet, h.url+"/nothing", nil, "X-Request-Id: of-a-balancer")
	var p struct{ RequestID string }
	decode(t, a.body, &p)
	if a.header.Get("X-Request-Id") != "of-a-balancer" || p.RequestID != "of-a-balancer" {
		t.Errorf("the answer is %v %s", a.header, a.body)
	}
	h.says(`"requestId":"of-a-balancer"`)
}
