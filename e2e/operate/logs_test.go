package operate

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// secret is part of every value that logs must not have.
const secret = "S3CRET"

// TestNoSecretsInLogs exercises everything that involves a secret, with and without errors, at a
// hub with debug logs, while Redis and NATS fail.
func TestNoSecretsInLogs(t *testing.T) {
	t.Parallel()
	const set = "secretive"
	redis := hubtest.StartRedis(t)
	redis.Command(t, "CONFIG", "SET", "requirepass", "redis"+secret)
	nats := &hubtest.NATSServer{Addr: hubtest.FreePort(t), Options: server.Options{Username: "hub", Password: "nats" + secret}}
	nats.Start(t)
	t.Cleanup(func() { nats.Stop() })
	file := filepath.Join(t.TempDir(), "tokens")
	token := hubtest.NewToken(t, file, "all", "publish:*,follow:*,operate")
	h := hubtest.NewHub(t, append(slices.Clone(hubtest.CallbackEnv), "RSHUB_LOG_LEVEL=debug", "RSHUB_TOKENS_FILE="+file,
		"RSHUB_REDIS_URL=redis://:redis"+secret+"@"+redis.Addr, "RSHUB_NATS_URL=nats://hub:nats"+secret+"@"+nats.Addr)...)
	h.Env = append(h.Env, "RSHUB_BASE_URL="+h.URL)
	h.Start(t)
	bearer := "Authorization: Bearer " + token

	hubtest.Publish(t, h, set, hubtest.Change("a"), bearer)
	hubtest.Must(t, http.StatusUnauthorized, http.MethodGet, h.Topic(set), nil, "Authorization: Bearer rshub_WRONG"+secret)
	hubtest.Must(t, http.StatusBadRequest, http.MethodGet, h.Topic(set)+"?access_token="+secret+"&since=start", nil)
	hubtest.Must(t, http.StatusUnauthorized, http.MethodGet, h.Topic(set), nil, "Authorization: Basic "+secret)

	// A failing callback with a secret, whose URL is a secret as well. Only it knows the URL of
	// the status of its subscription.
	tr := hubtest.NewTrial(t, h)
	c := tr.Callback("/path" + secret + "?query=" + secret)
	c.Respond(trial.Delivery, trial.Status(http.StatusInternalServerError))
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.Topic(set)}, "hub.callback": {c.URL}, "hub.secret": {"hub" + secret}}
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(form.Encode()), bearer, trial.AsForm)
	statusURL := tr.WaitRequests(c, trial.Verification, 1)[0].Param("rs.status")
	hubtest.WaitOK(t, statusURL)
	capability := statusURL[strings.LastIndex(statusURL, ".")+1:]
	hubtest.Publish(t, h, set, hubtest.Change("b"), bearer)
	tr.WaitRequests(c, trial.Delivery, 1)
	hubtest.Must(t, http.StatusNotFound, http.MethodGet, statusURL+secret, nil)
	form.Set("hub.secret", strings.Repeat(secret, 100)) // too long
	hubtest.Must(t, http.StatusBadRequest, http.MethodPost, h.URL+"/hub", []byte(form.Encode()), bearer, trial.AsForm)
	form.Set("hub.secret", secret)
	form.Set("hub.callback", "http://user:"+secret+"@127.0.0.1/")
	hubtest.Must(t, http.StatusBadRequest, http.MethodPost, h.URL+"/hub", []byte(form.Encode()), bearer, trial.AsForm)

	// A source whose Change List has a secret URL, and does not exist.
	source := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(source.Close)
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(`{"changelist":"`+source.URL+"/"+secret+`"}`), bearer)
	hubtest.Must(t, http.StatusNoContent, http.MethodPost, h.URL+"/hub", []byte(url.Values{"hub.mode": {"publish"}, "hub.topic": {h.Topic(set)}}.Encode()), bearer, trial.AsForm)
	h.WaitLog("cannot poll source")
	hubtest.Must(t, http.StatusNotImplemented, http.MethodGet, h.Ops+"/backup", nil, bearer)

	nats.Stop()
	h.WaitLog("disconnected from NATS")
	redis.Kill()
	hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, statusURL, nil)
	hubtest.Must(t, http.StatusServiceUnavailable, http.MethodPost, h.Topic(set), hubtest.Change("c"), bearer, "Content-Type: application/x-ndjson")
	readyz := hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/readyz", nil)
	redis.Start(t)
	redis.Command(t, "CONFIG", "SET", "requirepass", "redis"+secret)
	nats.Options.Password = "another"
	nats.Start(t)
	h.WaitLog("uthorization")
	h.Stop(t)

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	digest := strings.Fields(string(text))[1]
	for where, shown := range map[string]string{"the log": h.Stderr.String(), "/readyz": string(readyz.Body)} {
		for _, s := range []string{secret, token, capability, digest} {
			if i := strings.Index(shown, s); i >= 0 {
				t.Errorf("%s has a secret: …%s…", where, shown[max(0, i-200):min(len(shown), i+len(s)+20)])
			}
		}
	}
	for line := range strings.Lines(h.Stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line is not JSON: %s", line)
		}
	}
}

// TestQuietLog checks that a hub with default settings logs nothing for a publish, a delivery, a
// follower or a request.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	const set = "quiet"
	h := hubtest.StartWebSub(t)
	tr := hubtest.NewTrial(t, h)
	c, tp := tr.Callback(""), tr.Topic()
	tr.Subscribe(c, tp)
	tr.WaitDelivery(c, tr.Publish(tp))
	h.WaitLog("callbacks: request confirmed")
	before := h.Stderr.String()
	var followers []*hubtest.Follower
	for _, way := range hubtest.AllTransports {
		followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
	}
	for range 50 {
		hubtest.Publish(t, h, set, hubtest.Change("a"))
		tr.WaitDelivery(c, tr.Publish(tp))
	}
	for _, f := range followers {
		f.WaitEntries(t, 50)
	}
	hubtest.Must(t, http.StatusNotFound, http.MethodGet, h.URL+"/nothing", nil)
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/readyz", nil)
	if after := h.Stderr.String(); after != before {
		t.Errorf("got log lines\n%s", strings.TrimPrefix(after, before))
	}
}
