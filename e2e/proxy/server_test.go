package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A kind is a proxy with a configuration in deploy/proxy.
type kind struct {
	name, program string
	debian        string        // name of its package
	file          string        // in deploy/proxy
	replacements  []replacement // replacements for tests, in addition to the addresses of hubs
	command       func(dir, file string) []string
}

// A replacement is a text of a configuration, and its replacement in tests.
type replacement struct{ old, new string }

var kinds = []kind{
	{
		name: "nginx", program: "nginx", debian: "nginx-light", file: "nginx.conf",
		replacements: []replacement{
			{"listen 80;", "listen {http};"}, {"listen 443 ssl http2;", "listen {https} ssl http2;"}, {"https://$server_name$", "https://localhost:{port}$"},
			{"/etc/ssl/hub.example.org/fullchain.pem", "{cert}"}, {"/etc/ssl/hub.example.org/privkey.pem", "{key}"}, {"/var/log/nginx/", "{dir}/"},
		},
		command: func(dir, file string) []string { return []string{"-p", dir, "-e", "stderr", "-c", "around.conf"} },
	},
	{
		name: "HAProxy", program: "haproxy", debian: "haproxy", file: "haproxy.cfg",
		replacements: []replacement{
			{"bind :80\n", "bind {http}\n"}, {"bind :443 ", "bind {https} "}, {"redirect scheme https", "redirect prefix https://localhost:{port}"},
			{"/etc/haproxy/hub.example.org.pem", "{both}"},
		},
		command: func(dir, file string) []string {
			return []string{"-db", "-f", filepath.Join(dir, "around.conf"), "-f", file}
		},
	},
	{
		name: "Caddy", program: "caddy", debian: "caddy", file: "Caddyfile",
		replacements: []replacement{
			{"{\n\tlog default", "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port {httpPort}\n\thttps_port {port}\n\tlog default"},
			{"hub.example.org {", "localhost {\n\ttls {cert} {key}"}, {"/var/log/caddy/", "{dir}/"},
		},
		command: func(_, file string) []string { return []string{"run", "--adapter", "caddyfile", "--config", file} },
	},
}

// baseConfig has the configuration of the distribution, which includes deploy/proxy.
var baseConfig = map[string]string{
	"nginx": "daemon off;\nuser root;\npid nginx.pid;\nerror_log stderr;\nevents { worker_connections 512; }\nhttp {\n\taccess_log access.log;\n\tgzip on;\n\tclient_body_temp_path body;\n\tproxy_temp_path proxy;\n" +
		"\tfastcgi_temp_path fastcgi;\n\tuwsgi_temp_path uwsgi;\n\tscgi_temp_path scgi;\n\tinclude rshub.conf;\n}\n",
	"HAProxy": "global\n\tlog stdout format raw daemon\n",
}

// A server is a running proxy.
type server struct {
	*hubtest.Process
	kind
	dir         string // directory of its configuration and logs
	url, plain  string // by https and by http, without a trailing slash
	https, http string // addresses
	trust       *x509.CertPool
	trustFile   string
	hubs        []*hubtest.Hub
}

// start starts a proxy for hubs that may not be running yet, with additional replacements in its
// configuration.
func (p *reservedProxy) start(t *testing.T, replacements ...replacement) *server {
	t.Helper()
	s := &server{kind: p.kind, dir: t.TempDir(), https: p.https, http: hubtest.FreePort(t), url: p.url, trust: x509.NewCertPool(), hubs: p.hubs}
	s.plain = "http://" + s.http
	cert, key := hubtest.Certificate(t)
	s.trustFile = cert
	both := filepath.Join(s.dir, "both.pem")
	public, private := readFile(t, cert), readFile(t, key)
	s.trust.AppendCertsFromPEM([]byte(public))
	writeFile(t, both, public+private)
	_, port, _ := net.SplitHostPort(s.https)
	_, httpPort, _ := net.SplitHostPort(s.http)
	places := strings.NewReplacer("{http}", s.http, "{https}", s.https, "{port}", port, "{httpPort}", httpPort, "{cert}", cert, "{key}", key, "{both}", both, "{dir}", s.dir)

	text := readFile(t, filepath.Join("../../deploy/proxy", p.file))
	for _, w := range append(p.replacements, replacements...) {
		if !strings.Contains(text, w.old) {
			t.Fatalf("found no %[2]q in %[1]s", p.file, w.old)
		}
		text = strings.ReplaceAll(text, w.old, places.Replace(w.new))
	}
	text = strings.ReplaceAll(text, "hub.example.org;", "localhost;")
	text = withHubs(t, text, p.hubs, p.opsPort)
	file := filepath.Join(s.dir, "rshub.conf")
	writeFile(t, file, text)
	writeFile(t, filepath.Join(s.dir, "around.conf"), baseConfig[p.name])
	s.Process = hubtest.Start(t, []string{"PATH=" + os.Getenv("PATH")}, nil, p.path, p.command(s.dir, file)...)
	hubtest.Until(t, p.name+" listens", func() error {
		if s.Exited() {
			t.Fatalf("%s exited: %s%s", p.name, s.Stdout.String(), s.Stderr.String())
		}
		conn, err := tls.Dial("tcp", s.https, &tls.Config{RootCAs: s.trust, ServerName: "localhost"})
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return s
}

var second = regexp.MustCompile(`(?m)^(\s*)# (.*192\.0\.2\.12.*)$`)

// withHubs sets the addresses of one or two hubs in a configuration. The lines of the second hub
// are commented out in the file.
func withHubs(t *testing.T, text string, hubs []*hubtest.Hub, opsPort string) string {
	t.Helper()
	if !second.MatchString(text) {
		t.Fatal("found no line for a second hub")
	}
	if len(hubs) > 1 {
		text = second.ReplaceAllString(text, "$1$2")
		text = strings.ReplaceAll(text, "192.0.2.12:8080", hubs[1].Host)
	}
	text = strings.ReplaceAll(text, "127.0.0.1:8080", hubs[0].Host)
	text = strings.ReplaceAll(text, "check port 8081", "check port "+opsPort)
	return strings.ReplaceAll(text, "health_port 8081", "health_port "+opsPort)
}

// A reservedProxy is a proxy with reserved addresses, so that its hubs can be configured.
type reservedProxy struct {
	kind
	path, https, url string
	opsPort          string // of all hubs
	hubs             []*hubtest.Hub
}

// prepare reserves addresses for a proxy and for n hubs with additional variables, without starting
// them. All hubs have the same ports, as on separate machines.
func (k kind) prepare(t *testing.T, n int, env ...string) *reservedProxy {
	t.Helper()
	path, err := exec.LookPath(k.program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + k.program) // may be missing in PATH
	}
	if err != nil {
		t.Fatalf("this test needs %s: apt-get install %s", k.name, k.debian)
	}
	p := &reservedProxy{kind: k, path: path, https: hubtest.FreePort(t)}
	_, port, _ := net.SplitHostPort(p.https)
	p.url = "https://localhost:" + port
	_, hubPort, _ := net.SplitHostPort(hubtest.FreePort(t))
	_, p.opsPort, _ = net.SplitHostPort(hubtest.FreePort(t))
	for i := range n {
		h := hubtest.NewHub(t)
		h.Host = fmt.Sprintf("127.0.0.%d:%s", i+1, hubPort)
		h.URL = "http://" + h.Host
		h.Env = append(h.Env, "RSHUB_LISTEN="+h.Host, fmt.Sprintf("RSHUB_OPS_LISTEN=127.0.0.%d:%s", i+1, p.opsPort), "RSHUB_BASE_URL="+p.url, "RSHUB_TRUSTED_PROXIES=127.0.0.1/32")
		h.Env = append(h.Env, env...)
		p.hubs = append(p.hubs, h)
	}
	return p
}

// proxiedHub returns the hub as clients see it through the proxy.
func (s *server) proxiedHub() *hubtest.Hub {
	return &hubtest.Hub{Process: s.hubs[0].Process, URL: s.url, Host: strings.TrimPrefix(s.url, "https://"), Ops: s.hubs[0].Ops}
}

// client returns a new client whose requests come from an address.
func (s *server) client(t *testing.T, from string, http2 bool) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.trust}, ForceAttemptHTTP2: http2,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, "tcp4", "127.0.0.1:"+port)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// logText returns all logs of the proxy.
func (s *server) logText(t *testing.T) string {
	t.Helper()
	all := s.Stdout.String() + s.Stderr.String()
	files, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all += readFile(t, f)
	}
	return all
}

// waitLog waits until the proxy has logged a text.
func (s *server) waitLog(t *testing.T, text string) {
	t.Helper()
	hubtest.Until(t, s.name+" logs "+text, func() error {
		if !strings.Contains(s.logText(t), text) {
			return errors.New("not yet")
		}
		return nil
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
