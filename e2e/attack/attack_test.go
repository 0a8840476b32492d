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

// An attack is a kind of attack. do returns when the attacker's context is canceled, or when it has
// tried everything.
type attack struct {
	name string
	do   func(a *attacker)
}

// TestAttacks runs one attack after the other on a hub with few file descriptors. Other clients of
// the hub are not affected: no publish is refused, and nothing is lost or late.
//
// The package hub tests forged announcements over NATS: TestAnnouncement.
func TestAttacks(t *testing.T) {
	for _, at := range []*net.TCPAddr{bystanderAddr, attackerAddr} {
		l, err := net.ListenTCP("tcp", at)
		if err != nil {
			t.Skipf("no second loopback address: %v", err)
		}
		_ = l.Close()
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell")
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
		"RSHUB_CALLBACK_ALLOW=127.0.0.2/31", "RSHUB_LEASE_MIN=1s", // only the addresses of the bystander and of the attackers
		"RSHUB_LIMITS_CALLER=sets:200/h,bytes:600MiB/m", "RSHUB_LIMITS_ADDRESS=requests:3000/m,connections:200")...)
	h.Process = hubtest.Start(t, h.Env, nil, shell, "-c", `ulimit -n 2048 && exec "$0"`, hubtest.Rshub)
	h.WaitRunning()
	b := newBystander(t, h, good)
	b.measure(func() {}) // warm up
	calm := b.measure(func() {})

	for _, attack := range slices.Concat(injections(audit), []attack{{"callbacks on this machine", forbiddenCallbacks}}, forgeries(issuer), bombs(), floods(), slowness()) {
		t.Run(strings.ReplaceAll(attack.name, " ", "-"), func(t *testing.T) {
			const duration = 1500 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), duration)
			defer cancel()
			transport := &http.Transport{MaxIdleConnsPerHost: 100}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: hubtest.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			a := &attacker{t: t, ctx: ctx, hub: h, auth: "Authorization: Bearer " + evil, token: evil, client: client, statuses: map[int]int{}, sample: map[int]string{}}
			for retries := 2; !b.checkUnaffected(t, calm, b.measure(func() { attack.do(a) }), retries); retries-- {
				calm = calm.max(b.measure(func() {})) // other programs may slow down the machine
				ctx, cancel := context.WithTimeout(t.Context(), duration)
				defer cancel()
				a.ctx = ctx
			}
			if n := hubtest.Metric(t, h, "process_resident_memory_bytes"); n > 2<<30 {
				t.Errorf("memory of the hub = %.0f MB, want at most 2048", n/(1<<20))
			} else {
				t.Logf("memory of the hub: %.0f MB", n/(1<<20))
			}
		})
	}
	b.checkAll()
}
