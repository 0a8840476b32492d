package operate

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestAlerts causes the condition of each alert at real hubs, and evaluates all
// alerts over what the hubs say before and meanwhile: exactly those fire that
// should.
func TestAlerts(t *testing.T) {
	t.Parallel()
	program := buildAlerts(t)
	caused := map[string]bool{}
	for _, test := range []struct {
		name string
		want string // the alerts that fire
		run  func(*testing.T, *alertWatch)
	}{
		{"a healthy cluster", "", healthyCluster},
		{"a healthy hub on the disk", "", healthyDisk},
		{"a hub is killed", "RshubHubDown", hubKilled},
		{"all hubs are killed", "RshubDown RshubHubDown", allHubsKilled},
		{"all hubs are down for days", "RshubDown RshubHubDown", hubsDownForDays},
		{"Prometheus finds no hub", "RshubDown", hubsVanished},
		{"Redis is killed", "RshubClaimsMissing RshubMemoryUnavailable RshubPublishFailing", redisKilled},
		{"Redis is slow", "RshubPublishSlow", redisSlow},
		{"NATS is stopped", "RshubAnnouncementsDown", natsStopped},
		{"the disk fills up", "RshubDiskFull", diskFillsUp},
		{"the disk is full", "RshubDiskFull RshubMemoryUnavailable RshubPublishFailing", diskIsFull},
		{"a follower takes nothing", "RshubFollowersLag", followerStuck},
		{"callbacks answer 500", "RshubCallbacksFailing", callbacksFail},
		{"retention overruns a callback", "RshubCallbackGap", callbackOverrun},
		{"nobody works on a claim", "RshubClaimsMissing", claimMissing},
		{"a hub without inventories holds the others up", "RshubInventoryBehind", inventoryHeldUp},
	} {
		want := strings.Fields(test.want)
		for _, name := range want {
			caused[name] = true
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := &alertWatch{}
			test.run(t, w)
			for _, a := range evaluateAlerts(t, program, w.series(t)) {
				if a.Fires != slices.Contains(want, a.Alert) {
					t.Errorf("%s fires: %v; what the hubs say: %q", a.Alert, a.Fires, w.said(a.Metrics))
				}
			}
		})
	}
	alerts := evaluateAlerts(t, program, nil)
	for _, a := range alerts {
		if !caused[a.Alert] {
			t.Errorf("nothing causes %s", a.Alert)
		}
	}
	documented(t, alerts)
}

// documented holds that each metric that an alert names is there, and that
// docs/operate.md says of each alert what to do, and of no other.
func documented(t *testing.T, alerts []alert) {
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, m := range regexp.MustCompile(`(?m)^### (Rshub\S*)$`).FindAllStringSubmatch(string(text), -1) {
		headings = append(headings, m[1])
	}
	there := map[string]bool{"up": true}
	for _, h := range []*hubtest.Hub{hubtest.StartHub(t), hubtest.StartCluster(t, 1).Hubs[0]} {
		all, err := scrape(h)
		if err != nil {
			t.Fatal(err)
		}
		for series := range all {
			name, _, _ := strings.Cut(series, "{")
			there[name] = true
		}
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a.Alert)
		for _, name := range a.Metrics {
			if !there[name] {
				t.Errorf("%s: no hub has the metric %s", a.Alert, name)
			}
		}
		if a.Labels["severity"] != "critical" && a.Labels["severity"] != "warning" {
			t.Errorf("%s: the severity is %q", a.Alert, a.Labels["severity"])
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s: the annotations are %q", a.Alert, a.Annotations)
		}
		if url := a.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operate.md#"+strings.ToLower(a.Alert)) {
			t.Errorf("%s: the runbook is %s", a.Alert, url)
		}
	}
	if !slices.Equal(names, headings) {
		t.Errorf("docs/operate.md has headings for %q, and the alerts are %q", headings, names)
	}
}

// healthyCluster has two hubs that do everything there is, with a publisher who
// is wrong at times and one callback of four that fails.
func healthyCluster(t *testing.T, w *alertWatch) {
	const set = "healthy"
	c := hubtest.StartCluster(t, 2, hubtest.Callable...)
	w.hubs = c.Hubs
	tr := hubtest.TrialOf(t, c.Hubs[0])
	tp := tr.Topic()
	var last *trial.Callback
	for range 4 {
		last = tr.Callback("")
		tr.Subscribed(last, tp)
	}
	last.On(trial.Delivery, trial.Status(http.StatusInternalServerError))
	var followers []*hubtest.Follower
	for _, h := range c.Hubs {
		for _, way := range hubtest.AllWays {
			followers = append(followers, hubtest.Follow(t, h, way, set, "start"))
		}
	}
	busy := func(name string) {
		for i, h := range c.Hubs {
			hubtest.Publish(t, h, set, hubtest.Changes(name+strconv.Itoa(i), 20), "Idempotency-Key: "+name+strconv.Itoa(i))
			hubtest.Publish(t, h, set, hubtest.Changes(name+strconv.Itoa(i), 20), "Idempotency-Key: "+name+strconv.Itoa(i))
			hubtest.Must(t, http.StatusBadRequest, http.MethodPost, h.Topic(set), []byte("nonsense"), "Content-Type: application/x-ndjson")
		}
		tr.Publish(tp)
		for _, f := range followers {
			f.Has(t, f.Count())
		}
	}
	busy("a")
	hubtest.Until(t, "the last callback fails", func() error { return w.sums("rshub_callback_failing", 1) })
	w.lookShared(t)
	busy("b")
	w.lookShared(t)
}

// healthyDisk has a hub with its memory on the disk.
func healthyDisk(t *testing.T, w *alertWatch) {
	h := hubtest.StartWebSub(t)
	w.hubs = []*hubtest.Hub{h}
	tr := hubtest.TrialOf(t, h)
	c, tp := tr.Callback(""), tr.Topic()
	tr.Subscribed(c, tp)
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, tp.Set, "start")
	w.lookShared(t)
	tr.Delivered(c, tr.Publish(tp))
	f.Has(t, 2)
	w.lookShared(t)
}

func hubKilled(t *testing.T, w *alertWatch) {
	c := hubtest.StartCluster(t, 2)
	w.hubs = c.Hubs
	w.lookShared(t)
	c.Hubs[1].Kill()
	w.lookShared(t)
}

func allHubsKilled(t *testing.T, w *alertWatch) {
	w.hubs = []*hubtest.Hub{hubtest.StartHub(t)}
	w.look(t)
	w.hubs[0].Kill()
	w.look(t)
}

func hubsDownForDays(t *testing.T, w *alertWatch) {
	w.eventful = 50 * time.Hour
	allHubsKilled(t, w)
}

// hubsVanished has hubs that are no targets any more, as pods without an address.
func hubsVanished(t *testing.T, w *alertWatch) {
	w.vanish = true
	w.eventful = 20 * time.Hour
	allHubsKilled(t, w)
}

func redisKilled(t *testing.T, w *alertWatch) {
	c := hubtest.StartCluster(t, 1)
	w.hubs = c.Hubs
	hubtest.Publish(t, c.Hubs[0], "killed", hubtest.Change("before"))
	w.look(t)
	c.Redis.Kill()
	hubtest.Must(t, http.StatusServiceUnavailable, http.MethodPost, c.Hubs[0].Topic("killed"), hubtest.Change("a"), "Content-Type: application/x-ndjson")
	hubtest.Until(t, "the claims are lost", func() error { return w.sums("rshub_callback_claims", 0) })
	w.look(t)
}

func redisSlow(t *testing.T, w *alertWatch) {
	c := hubtest.StartCluster(t, 1)
	w.hubs = c.Hubs
	hubtest.Publish(t, c.Hubs[0], "slow", hubtest.Change("before"))
	w.lookShared(t)
	for range 2 {
		c.Redis.Tell(t, "CLIENT", "PAUSE", "1500", "ALL")
		hubtest.Publish(t, c.Hubs[0], "slow", hubtest.Change("a"))
	}
	w.lookShared(t)
}

func natsStopped(t *testing.T, w *alertWatch) {
	c := hubtest.StartCluster(t, 1)
	w.hubs = c.Hubs
	w.lookShared(t)
	c.NATS.Stop()
	hubtest.Until(t, "it is not connected", func() error { return w.sums("rshub_nats_connected", 0) })
	w.lookShared(t)
}

// diskFillsUp has less free than twice the reserve, and more than the reserve.
func diskFillsUp(t *testing.T, w *alertWatch) {
	h := hubtest.NewHub(t)
	var disk syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &disk); err != nil {
		t.Fatal(err)
	}
	h.Start(t, fmt.Sprintf("RSHUB_DISK_RESERVE=%dB", disk.Bavail*uint64(disk.Bsize)/4*3))
	w.hubs = []*hubtest.Hub{h}
	w.lookShared(t)
	hubtest.Publish(t, h, "nearly", hubtest.Change("a"))
	w.lookShared(t)
}

func diskIsFull(t *testing.T, w *alertWatch) {
	h := hubtest.StartHub(t, "RSHUB_DISK_RESERVE=1000000TiB", "RSHUB_SETS=full")
	w.hubs = []*hubtest.Hub{h}
	w.lookShared(t)
	hubtest.Must(t, http.StatusInsufficientStorage, http.MethodPost, h.Topic("full"), hubtest.Change("a"), "Content-Type: application/x-ndjson")
	w.lookShared(t)
}

// followerStuck has an event stream that is not read, behind all buffers that
// are between here and there.
func followerStuck(t *testing.T, w *alertWatch) {
	const set = "stuck"
	h := hubtest.StartHub(t, "RSHUB_WRITE_TIMEOUT=1h")
	w.hubs = []*hubtest.Hub{h}
	conn, err := net.Dial("tcp", h.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /sets/%s/changes?since=start HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", set, h.Host)
	hubtest.Until(t, "it follows", func() error { return w.sums(`rshub_followers{kind="eventstream"}`, 1) })
	long := hubtest.Changes(strings.Repeat("long", 400), 1000)
	hubtest.Until(t, "it is behind, and stays so", func() error {
		if err := w.over(`rshub_follower_lag_changes{kind="eventstream"}`, 1000); err != nil {
			hubtest.Publish(t, h, set, long)
			return err
		}
		return w.over(`rshub_follower_lag_seconds{kind="eventstream"}`, 1)
	})
	w.lookShared(t)
	w.lookShared(t)
}

func callbacksFail(t *testing.T, w *alertWatch) {
	h := hubtest.StartWebSub(t)
	w.hubs = []*hubtest.Hub{h}
	tr := hubtest.TrialOf(t, h)
	tp := tr.Topic()
	for i := range 3 {
		c := tr.Callback("")
		tr.Subscribed(c, tp)
		if i > 0 {
			c.On(trial.Delivery, trial.Status(http.StatusInternalServerError))
		}
	}
	w.lookShared(t)
	tr.Publish(tp)
	hubtest.Until(t, "they fail", func() error { return w.sums("rshub_callback_failing", 2) })
	w.lookShared(t)
}

// callbackOverrun has a callback that wants nothing within the hour, and then a
// hub that keeps less than the one before.
func callbackOverrun(t *testing.T, w *alertWatch) {
	env := append(slices.Clone(hubtest.Callable), "RSHUB_CHANGELIST_SIZE=10")
	c := hubtest.StartCluster(t, 1, env...)
	tr := hubtest.TrialOf(t, c.Hubs[0])
	cb, tp := tr.Callback(""), tr.Topic()
	tr.Subscribed(cb, tp)
	cb.On(trial.Delivery, trial.Status(http.StatusServiceUnavailable, "Retry-After: 3600"))
	tr.Publish(tp)
	tr.Wait("it is answered", func() error { return trial.Answered(cb, trial.Delivery, 1) })
	hubtest.Publish(t, c.Hubs[0], tp.Set, hubtest.Changes("more", 50))
	w.hubs = c.Hubs
	hubtest.Until(t, "the inventory has them", func() error { return w.over("rshub_inventory_resources", 50) }) // retention waits for it
	c.Hubs[0].Stop(t)

	h := hubtest.JoinCluster(t, c.Hubs[0].URL, c.Redis.Addr, c.NATS.Addr, append(env, "RSHUB_RETENTION_COUNT=10")...)
	w.hubs = []*hubtest.Hub{h}
	hubtest.Until(t, "old changes are removed", func() error {
		if v := hubtest.Get[struct{ Floor string }](t, h.URL+"/sets/"+tp.Set); strings.HasPrefix(v.Floor, "0-") {
			return errors.New(v.Floor)
		}
		return nil
	})
	w.lookShared(t)
	cb.On(trial.Delivery, trial.Status(http.StatusOK))
	tr.Hub = hubtest.HubOf(h)
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/sets/"+tp.Set+"/subscriptions/"+hubtest.SubscriptionsOf(t, h, tp.Set)[0].ID+"/retry", []byte{})
	hubtest.Until(t, "it is told of the gap", func() error {
		all := cb.Got(trial.Delivery)
		if last := all[len(all)-1]; last.Header.Get("RS-Gap") == "" {
			return trial.ErrNotYet
		}
		return w.sums("rshub_callback_gaps_total", 1)
	})
	w.lookShared(t)
}

// inventoryHeldUp has something else in Redis where pages of an inventory belong.
func inventoryHeldUp(t *testing.T, w *alertWatch) {
	const set = "heldup"
	c := hubtest.StartCluster(t, 1)
	w.hubs = c.Hubs
	for i := range 64 {
		c.Redis.Tell(t, "SET", fmt.Sprintf("rshub:{%s}:page%d", set, i), "no hash")
	}
	w.eventful, w.late = time.Hour, "rshub_inventory_lag_seconds"
	hubtest.Publish(t, c.Hubs[0], set, hubtest.Changes("waiting", 100))
	hubtest.Until(t, "it waits", func() error { return w.over("rshub_inventory_lag_seconds", 1) })
	w.lookShared(t)
	hubtest.Until(t, "it waits on", func() error { return w.over("rshub_inventory_lag_seconds", 3) })
	w.lookShared(t)
}

// claimMissing has a claim in Redis that belongs to nobody who lives, and does
// not end soon.
func claimMissing(t *testing.T, w *alertWatch) {
	c := hubtest.StartCluster(t, 1)
	w.hubs = c.Hubs
	w.lookShared(t)
	end := strconv.FormatInt(time.Now().Add(30*time.Second).UnixMicro(), 10)
	c.Redis.Tell(t, "HSET", "rshub:{callback/7}:claim", "hub", "nobody", "number", end, "until", end)
	hubtest.Until(t, "the claim is lost", func() error { return w.sums("rshub_callback_claims", 255) })
	w.look(t)
}
