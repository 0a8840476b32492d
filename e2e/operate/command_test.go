package operate

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestCommands calls rshub rightly and wrongly.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string // that it contains
	}{
		{"-h", 0, "RSHUB_DISK_RESERVE", ""},
		{"--help", 0, "rshub backup DIR", ""},
		{"version", 0, "rshub ", ""},
		{"--version", 0, "rshub ", ""},
		{"launch", 2, "", "there is no command launch"},
		{"-x", 2, "", "there is no command -x"},
		{"backup", 2, "", "rshub backup DIR"},
		{"backup a b", 2, "", "rshub backup DIR"},
		{"backup -x", 2, "", "rshub backup DIR"},
		{"token", 2, "", "rshub token new"},
		{"token new", 2, "", "-name NAME"},
		{"token new -name a -rights fly", 2, "", "a right is publish:SET"},
		{"token new -name anyone -rights operate", 2, "", "not anyone"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rshub, strings.Fields(test.args)...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("it ended with %d and said: %s%s", code, stdout, stderr)
			}
			if (stdout == "") == (code == 0) || (stderr == "") == (code != 0) {
				t.Errorf("it ended with %d and wrote %d bytes to stdout, %d to stderr", code, len(stdout), len(stderr))
			}
		})
	}
}

// TestConfiguration starts hubs with bad variables. All are reported at once.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	for _, test := range []struct {
		name string
		env  []string
		says []string
	}{
		{"beyond loopback", []string{"RSHUB_LISTEN=0.0.0.0:0"}, []string{"anyone could publish", "RSHUB_BASE_URL"}},
		{"operations beyond loopback", []string{"RSHUB_OPS_LISTEN=:0"}, []string{"anyone could read a backup"}},
		{"everything", []string{
			"RSHUB_LISTEN=nowhere", "RSHUB_OPS_LISTEN=127.0.0.1", "RSHUB_BASE_URL=ftp://x", "RSHUB_DISK_RESERVE=lots", "RSHUB_SETS=a/b",
			"RSHUB_CHANGELIST_SIZE=25001", "RSHUB_RETENTION_AGE=old", "RSHUB_RETENTION_COUNT=-1", "RSHUB_INSECURE=yes", "RSHUB_ORIGINS=example.org",
			"RSHUB_MAX_BODY=1", "RSHUB_HEARTBEAT=1ms", "RSHUB_WRITE_TIMEOUT=-1s", "RSHUB_GRACE=soon", "RSHUB_LOG_LEVEL=loud",
		}, nil},
		{"misspelt", []string{"RSHUB_RETENTION_AG=1h"}, []string{"RSHUB_RETENTION_AG means nothing to rshub; did you mean RSHUB_RETENTION_AGE?"}},
		{"port in use", []string{"RSHUB_LISTEN=" + h.Host}, []string{"RSHUB_LISTEN", "address already in use"}},
		{"operations port in use", []string{"RSHUB_OPS_LISTEN=" + h.Host}, []string{"RSHUB_OPS_LISTEN", "address already in use"}},
		{"no such tokens", []string{"RSHUB_TOKENS_FILE=/nowhere"}, []string{"read tokens", "/nowhere"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			env := append([]string{"RSHUB_LISTEN=127.0.0.1:0", "RSHUB_OPS_LISTEN=127.0.0.1:0", "RSHUB_DATA=" + t.TempDir()}, test.env...)
			code, stdout, stderr := hubtest.Run(t, env, nil, hubtest.Rshub)
			t.Log(stderr)
			if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "rshub: ") {
				t.Errorf("it ended with %d and said: %s%s", code, stdout, stderr)
			}
			says := test.says
			if says == nil { // every variable
				for _, v := range test.env {
					name, _, _ := strings.Cut(v, "=")
					says = append(says, name)
				}
			}
			for _, s := range says {
				if !strings.Contains(stderr, s) {
					t.Errorf("it does not say %s", s)
				}
			}
		})
	}
}

// TestDefaults runs the hub as somebody does who tries it out, only elsewhere.
func TestDefaults(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	page := hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/", nil)
	if !strings.Contains(string(page.Body), "<html") || !strings.Contains(string(page.Body), h.URL) {
		t.Errorf("the page for people is %s", page.Body)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+path, nil)
	}
	for _, path := range []string{"/nothing", "/sets/none", "/sets/none/capabilitylist.xml", "/sets/none/nothing.xml", "/healthz"} {
		if p, err := hubtest.ProblemOf(hubtest.Must(t, http.StatusNotFound, http.MethodGet, h.URL+path, nil)); err != nil {
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		if a := hubtest.Must(t, http.StatusMethodNotAllowed, method, h.Topic("a"), nil); a.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", method)
		}
	}
	// A name that was rebound to this machine, and a page of somebody else's.
	for _, test := range []struct {
		status int
		header string
	}{{http.StatusForbidden, "Origin: https://evil.example"}, {http.StatusOK, "Origin: " + h.URL}} {
		hubtest.Must(t, test.status, http.MethodGet, h.URL+"/sets", nil, test.header)
	}
	req, err := http.NewRequest(http.MethodGet, h.URL+"/sets", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	resp, err := hubtest.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another Host is answered %s", resp.Status)
	}
}
