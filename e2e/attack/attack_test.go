package attack

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// An attack is one sort of harm. do returns when the attacker's context is done, or when
// everything was tried.
type attack struct {
	name string
	do   func(a *attacker)
}

// TestAttacks does one harm after the other to a hub with few file descriptors. Whoever
// else uses the hub notices nothing: no publish is refused, nothing is lost or late.
//
// Forged announcements over NATS are tried in package hub: TestAnnouncement.
func TestAttacks(t *testing.T) {
	for _, at := range []*net.TCPAddr{place, lair} {
		l, err := net.ListenTCP("tcp", at)
		if err != nil {
			t.Skipf("this machine has no second address: %v", err)
		}
		_ = l.Close()
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("this needs a shell")
	}
	dir := t.TempDir()
	file, audit := filepath.Join(dir, "tokens"), filepath.Join(dir, "audit.jsonl")
	good := hubtest.NewToken(t, file, "good", "publish:calm,follow:calm")
	evil := hubtest.NewToken(t, file, "evil", "publish:evil*,follow:evil*")
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString("anyone - follow:*\n"); err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	issuer := newIssuer(t, dir)
	h := hubtest.NewHub(t, append(issuer.env(), "RSHUB_TOKENS_FILE="+file, "RSHUB_AUDIT_LOG="+audit, "RSHUB_LOG_LEVEL=debug",
		"RSHUB_CALLBACK_ALLOW=127.0.0.2/31", "RSHUB_LEASE_MIN=1s", // the bystander's place and the attacker's lair, and nothing else on this machine
		"RSHUB_LIMITS_CALLER=sets:200/h,bytes:600MiB/m", "RSHUB_LIMITS_ADDRESS=requests:3000/m,connections:200")...)
	h.Process = hubtest.Start(t, h.Env, nil, shell, "-c", `ulimit -n 2048 && exec "$0"`, hubtest.Rshub)
	h.WaitRunning()
	b := newBystander(t, h, good)
	b.while(func() {}) // warm
	calm := b.while(func() {})

	for _, attack := range slices.Concat(injections(audit), []attack{{"callbacks on this machine", forbiddenCallbacks}}, forgeries(issuer), bombs(), floods(), slowness()) {
		t.Run(strings.ReplaceAll(attack.name, " ", "-"), func(t *testing.T) {
			const long = 1500 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			transport := &http.Transport{MaxIdleConnsPerHost: 100}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: hubtest.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			a := &attacker{t: t, ctx: ctx, hub: h, auth: "Authorization: Bearer " + evil, token: evil, client: client, statuses: map[int]int{}, sample: map[int]string{}}
			for again := 2; !b.unharmed(t, calm, b.while(func() { attack.do(a) }), again); again-- {
				calm = calm.max(b.while(func() {})) // others may use this machine, too
				ctx, cancel := context.WithTimeout(t.Context(), long)
				defer cancel()
				a.ctx = ctx
			}
			if n := hubtest.Metric(t, h, "process_resident_memory_bytes"); n > 2<<30 {
				t.Errorf("the hub has %.0f MB of memory", n/(1<<20))
			} else {
				t.Logf("the hub has %.0f MB of memory", n/(1<<20))
			}
		})
	}
	b.all()
}
