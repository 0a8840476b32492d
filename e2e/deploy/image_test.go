//go:build linux

package deploy

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestImage runs the image as Kubernetes does: with the user of the image, without capabilities,
// with a read-only root, a volume at /data, and the variables of the Helm chart. The hub becomes
// ready, accepts a publish, reaches a callback over TLS, and stops.
func TestImage(t *testing.T) {
	switch {
	case os.Geteuid() != 0:
		t.Skip("needs root to change the root directory and the user of processes")
	case os.Getenv("RSHUB_E2E_RACE") != "":
		t.Skip("programs with the race detector are not static like the programs of the image")
	}
	file := makeImage(t)
	c := unpackImage(t, file)
	if got := strings.Join(c.config.Config.Entrypoint, " "); got != "/rshub" {
		t.Errorf("entrypoint = %q, want /rshub", got)
	}
	info, err := os.Stat(filepath.Join(c.root, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); info.Mode() != os.ModeDir|0o700 || int(owner.Uid) != c.ids(t).uid || int(owner.Gid) != c.ids(t).gid {
		t.Errorf("/data of the image has mode %v and owner %d:%d, want 0700 and the user of the image", info.Mode(), owner.Uid, owner.Gid)
	}
	for name, dir := range map[string]string{"LICENSE": "../..", "THIRD_PARTY.txt": filepath.Dir(hubtest.Rshub)} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(c.root, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s of the image differs from the one of rshub: %v", name, err)
		}
	}
	if v := c.config.Config.Labels["org.opencontainers.image.version"]; v != "v1.2.3" {
		t.Errorf("version label of the image = %q, want v1.2.3", v)
	}

	// The mounts of the chart.
	cert, key := hubtest.Certificate(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	token := hubtest.NewToken(t, tokens, "both", "publish:*,follow:*")
	c.put(t, "/etc/rshub/tokens/tokens", tokens)
	c.put(t, "/etc/rshub/ca/ca.pem", cert)
	destination, challenged := serveTLS(t, cert, key)

	c.isolate(t)
	addr, ops := hubtest.FreePort(t), hubtest.FreePort(t)
	h := &hubtest.Hub{Host: addr, URL: "http://" + addr, Ops: "http://" + ops}
	anywhere := func(addr string) string { return strings.TrimPrefix(addr, "127.0.0.1") } // only the ports differ
	h.Process = c.start(t, append(chartVariables(t),
		"RSHUB_LISTEN="+anywhere(addr), "RSHUB_OPS_LISTEN="+anywhere(ops), "RSHUB_BASE_URL="+h.URL,
		"RSHUB_CALLBACK_CA_FILE=/etc/rshub/ca/ca.pem", "RSHUB_CALLBACK_ALLOW=127.0.0.0/8", // in config
	))
	ready := func() {
		t.Helper()
		hubtest.Until(t, "the hub is ready", func() error {
			if h.Exited() {
				t.Fatalf("the hub exited: %s", h.Stderr.String())
			}
			a, err := hubtest.Request(http.MethodGet, h.Ops+"/readyz", nil)
			if err == nil && a.Status != http.StatusOK {
				err = fmt.Errorf("%d: %s", a.Status, a.Body)
			}
			return err
		})
	}
	ready()
	wantConfined(t, h.Process)
	health := func(want int) {
		t.Helper()
		check := c.config.Config.Healthcheck.Test
		if len(check) < 2 || check[0] != "CMD" {
			t.Fatalf("health check of the image = %q, want CMD", check)
		}
		if code, stdout, stderr := c.runWith(t, []string{"RSHUB_OPS_LISTEN=" + anywhere(ops)}, check[1:]...); code != want {
			t.Errorf("%q = %d: %s%s, want %d", check[1:], code, stdout, stderr, want)
		}
	}
	health(0)

	const set = "image"
	bearer := "Authorization: Bearer " + token
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start", bearer)
	hubtest.Publish(t, h, set, hubtest.Changes("image", 2), bearer)
	f.WaitEntries(t, 2)
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.Topic(set)}, "hub.callback": {destination}}
	hubtest.Must(t, http.StatusAccepted, http.MethodPost, h.URL+"/hub", []byte(form.Encode()), bearer, "Content-Type: application/x-www-form-urlencoded")
	hubtest.Until(t, "the callback is verified over TLS", func() error {
		if !challenged() {
			return errors.New("not yet")
		}
		return nil
	})

	h.Stop(t)
	f.WaitEnd(t, "close 1001")
	if text := h.Stderr.String(); strings.Contains(text, "after the grace period") || !strings.Contains(text, `"stopped"`) {
		t.Errorf("got no graceful stop: %s", trial.Tail(text))
	}
	health(1)

	// Platforms such as OpenShift choose a user.
	c.user = 1000680000
	h.Process = c.start(t, append(chartVariables(t), "RSHUB_LISTEN="+anywhere(addr), "RSHUB_OPS_LISTEN="+anywhere(ops), "RSHUB_BASE_URL="+h.URL, "RSHUB_DATA=/data/other"))
	ready()
	health(0)
	h.Stop(t)
	for _, name := range []string{"rspublish", "rsmirror"} {
		if code, stdout, stderr := c.run(t, "/"+name, "-version"); code != 0 || !strings.HasPrefix(stdout, name+" ") {
			t.Errorf("%s in the image exited with %d, want 0 and the version: %s%s", name, code, stdout, stderr)
		}
	}
}

var chartVariable = regexp.MustCompile(`(?m)^ +- name: (\w+)\n +value: "?(.*?)"?$`)

// chartVariables returns the environment of a hub in the chart. Appended variables take precedence.
func chartVariables(t *testing.T) (env []string) {
	t.Helper()
	text, err := os.ReadFile("../chart/golden/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hub, _, _ := strings.Cut(string(text), "helm.sh/hook: test")
	for _, v := range chartVariable.FindAllStringSubmatch(hub, -1) {
		env = append(env, v[1]+"="+v[2])
	}
	for _, mounted := range []string{"RSHUB_TOKENS_FILE=/etc/rshub/tokens/tokens", "RSHUB_DATA=/data"} { // as in this test
		if !slices.Contains(env, mounted) {
			t.Fatalf("chart sets %[2]v, want %[1]s", mounted, env)
		}
	}
	return env
}

// makeImage builds the image of the tested programs for this platform twice, and checks that the
// result is reproducible.
func makeImage(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	tool := filepath.Join(dir, "image")
	if out, err := exec.Command("go", "build", "-C", "../../tools/image", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("build tools/image: %v\n%s", err, out)
	}
	if out, err := exec.Command("../../tools/scripts/licences", filepath.Join(filepath.Dir(hubtest.Rshub), "THIRD_PARTY.txt")).CombinedOutput(); err != nil {
		t.Fatalf("tools/scripts/licences: %v\n%s", err, out)
	}
	var files, digests []string
	for _, programs := range []string{"one", "other"} {
		programs = filepath.Join(dir, programs)
		if err := errors.Join(os.Mkdir(programs, 0o755), os.Symlink(filepath.Dir(hubtest.Rshub), filepath.Join(programs, "linux_"+runtime.GOARCH))); err != nil {
			t.Fatal(err)
		}
		file := programs + ".tar"
		out, err := exec.Command(tool, "-root", "../..", "-programs", programs,
			"-platforms", "linux/"+runtime.GOARCH, "-version", "v1.2.3", "-o", file).CombinedOutput()
		if err != nil {
			t.Fatalf("build image: %v\n%s", err, out)
		}
		files, digests = append(files, file), append(digests, string(out))
	}
	if digests[0] != digests[1] || sum(t, files[0]) != sum(t, files[1]) {
		t.Errorf("got digests %s of two builds, want equal images", digests)
	}
	return files[0]
}

func sum(t *testing.T, file string) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// serveTLS starts a callback with https. It returns its URL, and a function that reports whether it
// was verified.
func serveTLS(t *testing.T, cert, key string) (callback string, challenged func() bool) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	verified := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && r.URL.Query().Get("hub.challenge") != "" {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge")) // the hub may have closed the connection
			select {
			case verified <- struct{}{}:
			default:
			}
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL + "/callback", func() bool { return len(verified) > 0 }
}
