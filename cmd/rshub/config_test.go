package main

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/tabletest"
)

func TestDefaults(t *testing.T) {
	setenv(t)
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8080" || c.OpsListen != "127.0.0.1:8081" || c.Data != "./rshub-data" || c.BaseURL != "" {
		t.Errorf("addresses and places: %+v", c)
	}
	if c.ChangeListSize != 10_000 || c.DiskReserve != 64<<20 || c.MaxBody != 50<<20 || c.LogLevel != slog.LevelInfo {
		t.Errorf("sizes and times: %+v", c)
	}
}

func TestConfig(t *testing.T) {
	setenv(t, "RSHUB_LISTEN", "0.0.0.0:80", "RSHUB_BASE_URL", "https://Hub.bücher.example/rs//", "RSHUB_INSECURE", insecure,
		"RSHUB_OPS_LISTEN", "", "RSHUB_SETS", "a, b", "RSHUB_ORIGINS", "https://Example.org,*", "RSHUB_MAX_BODY", "2MiB", "RSHUB_LOG_LEVEL", "debug",
		"RSHUB_CALLBACK_ALLOW", "127.0.0.0/8, 10.0.0.0/8",
		// Without their prefix they are others' variables.
		"DATA", "/tmp/other", "GRACE", "nonsense", "LOG_LEVEL", "nonsense", "TOKENS_FILE", "other")
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	if c.BaseURL != "https://hub.xn--bcher-kva.example/rs" || c.OpsListen != "" || !slices.Equal(c.Sets, []string{"a", "b"}) || !slices.Equal(c.Origins, []string{"https://example.org", "*"}) {
		t.Errorf("the configuration is %+v", c)
	}
	if fmt.Sprint(c.CallbackAllow) != "[127.0.0.0/8 10.0.0.0/8]" {
		t.Errorf("callbacks may be at %v", c.CallbackAllow)
	}
	if c.MaxBody != 2<<20 || c.LogLevel != slog.LevelDebug || c.Data != "./rshub-data" || c.Grace != 25*time.Second || c.TokensFile != "" {
		t.Errorf("the configuration is %+v", c)
	}
}

func TestConfigProblems(t *testing.T) {
	for _, test := range []struct {
		name      string
		variables []string
		want      []string // a part of each problem, in order
	}{
		{"all at once", []string{"RSHUB_LISTEN", "here", "RSHUB_OPS_LISTEN", "there", "RSHUB_HEARTBEAT", "often", "RSHUB_CHANGELIST_SIZE", "many",
			"RSHUB_SETS", "a,B", "RSHUB_DESCRIBED_BY", "about", "RSHUB_INSECURE", "yes", "RSHUB_LOG_LEVEL", "loud", "RSHUB_DISK_RESERVE", "1 apple"},
			[]string{`RSHUB_CHANGELIST_SIZE is "many"`, `RSHUB_DISK_RESERVE is "1 apple"`, `RSHUB_HEARTBEAT is "often"`, `RSHUB_LOG_LEVEL is "loud"`,
				`RSHUB_LISTEN is "here"`, `RSHUB_OPS_LISTEN is "there"`, `RSHUB_SETS has`, `RSHUB_DESCRIBED_BY is "about"`, `RSHUB_INSECURE is "yes"`}},
		{"list size", []string{"RSHUB_CHANGELIST_SIZE", "25001"}, []string{"RSHUB_CHANGELIST_SIZE is 25001; it is 1 to 25000"}},
		{"no list size", []string{"RSHUB_CHANGELIST_SIZE", "0"}, []string{"RSHUB_CHANGELIST_SIZE is 0"}},
		{"times", []string{"RSHUB_RETENTION_AGE", "-1h", "RSHUB_HEARTBEAT", "1ms", "RSHUB_LEASE_MIN", "1ms", "RSHUB_WRITE_TIMEOUT", "0", "RSHUB_GRACE", "-1s"},
			[]string{"RSHUB_RETENTION_AGE is -1h", "RSHUB_HEARTBEAT is 1ms", "RSHUB_WRITE_TIMEOUT is 0s", "RSHUB_GRACE is -1s", "RSHUB_LEASE_MIN is 1ms; it must be at least 1s"}},
		{"body", []string{"RSHUB_MAX_BODY", "1"}, []string{"RSHUB_MAX_BODY is 1 bytes"}},
		{"origins", []string{"RSHUB_ORIGINS", "example.org,https://example.org/,null"}, []string{`"example.org"`, `"https://example.org/"`, `"null"`}},

		{"beyond loopback", []string{"RSHUB_LISTEN", "0.0.0.0:8080"}, []string{"RSHUB_INSECURE=anyone-may-publish", "set RSHUB_BASE_URL"}},
		{"any address", []string{"RSHUB_LISTEN", ":8080"}, []string{"RSHUB_TOKENS_FILE", "set RSHUB_BASE_URL"}},
		{"a name", []string{"RSHUB_LISTEN", "hub.example.org:8080", "RSHUB_BASE_URL", "http://hub.example.org"}, []string{"beyond loopback"}},
		{"IPv6", []string{"RSHUB_LISTEN", "[::]:8080", "RSHUB_BASE_URL", "http://hub.example.org"}, []string{"beyond loopback"}},
		{"with tokens", []string{"RSHUB_LISTEN", ":8080", "RSHUB_TOKENS_FILE", "x"}, []string{"set RSHUB_BASE_URL"}},
		{"told so in as many words", []string{"RSHUB_LISTEN", ":8080", "RSHUB_INSECURE", insecure, "RSHUB_BASE_URL", "http://hub.example.org"}, nil},
		{"not quite told so", []string{"RSHUB_LISTEN", ":8080", "RSHUB_INSECURE", "true", "RSHUB_BASE_URL", "http://hub.example.org"}, []string{"anyone could publish", "RSHUB_INSECURE is"}},
		{"loopback", []string{"RSHUB_LISTEN", "[::1]:8080", "RSHUB_OPS_LISTEN", "localhost:1"}, nil},
		{"all of 127", []string{"RSHUB_LISTEN", "127.3.2.1:8080"}, nil},
		{"operations beyond loopback", []string{"RSHUB_OPS_LISTEN", ":8081"}, []string{"anyone could read a backup"}},

		{"callbacks", []string{"RSHUB_CALLBACK_ALLOW", "::ffff:10.0.0.0/104"},
			[]string{`RSHUB_CALLBACK_ALLOW is "::ffff:10.0.0.0/104": ::ffff:10.0.0.0/104 is IPv4 within IPv6`}},
		{"no networks", []string{"RSHUB_CALLBACK_ALLOW", "127.0.0.0/8 10.0.0.0/8"}, []string{"RSHUB_CALLBACK_ALLOW is"}},

		{"of Redis", []string{"RSHUB_REDIS_WAIT", "1", "RSHUB_REDIS_TIMEOUT", "1ms"},
			[]string{"RSHUB_REDIS_WAIT is 1", "RSHUB_REDIS_TIMEOUT is 1ms"}},
		{"of NATS", []string{"RSHUB_NATS_CA_FILE", "ca.pem"}, []string{"RSHUB_NATS_CA_FILE"}},

		{"base", []string{"RSHUB_BASE_URL", "hub.example.org"}, []string{`RSHUB_BASE_URL is "hub.example.org"`}},
		{"base of another kind", []string{"RSHUB_BASE_URL", "ftp://hub.example.org"}, []string{"RSHUB_BASE_URL is"}},
		{"base with a query", []string{"RSHUB_BASE_URL", "https://hub.example.org/?a"}, []string{"RSHUB_BASE_URL is"}},
		{"a password is not shown", []string{"RSHUB_BASE_URL", "https://me:secret@hub.example.org"}, []string{"RSHUB_BASE_URL has a user or a password"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, test.variables...)
			_, err := readConfig()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("there are %d problems, want %d:\n%v", len(got), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], "RSHUB_") || !strings.Contains(got[i], want) || strings.Contains(got[i], "secret") {
					t.Errorf("problem %d is %q, want %q", i+1, got[i], want)
				}
			}
		})
	}
}

// TestListVariables reads each variable that is a list, with blanks around an entry and
// with an empty entry. A new list needs a row.
func TestListVariables(t *testing.T) {
	rows := map[string][2]string{ // two entries
		"RSHUB_HOSTS":           {"a.example.org", "b.example.org"},
		"RSHUB_ORIGINS":         {"https://a.example.org", "https://b.example.org"},
		"RSHUB_TRUSTED_PROXIES": {"10.0.0.0/8", "192.168.0.0/16"},
		"RSHUB_SETS":            {"a", "b"},
		"RSHUB_JWT_AUDIENCE":    {"https://a.example.org", "https://b.example.org"},
		"RSHUB_LIMITS_CALLER":   {"publishes:1/s", "sets:2/h"},
		"RSHUB_LIMITS_ADDRESS":  {"publishes:1/s", "sets:2/h"},
		"RSHUB_CALLBACK_ALLOW":  {"10.0.0.0/8", "192.168.0.0/16"},
	}
	for i, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		name := f.Tag.Get("envconfig")
		row, ok := rows[name]
		if kind := f.Type.Kind(); !ok && (kind == reflect.Slice || kind == reflect.Array) {
			t.Errorf("%s is a list, and has no row", name)
		}
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			others := []string{"RSHUB_JWT_KEYS", "https://id.example.org/keys", "RSHUB_JWT_ISSUER", "https://id.example.org/", "RSHUB_BASE_URL", "http://127.0.0.1:8080"}
			value := func(text string) (any, error) {
				setenv(t, append(others, name, text)...)
				c, err := readConfig()
				return reflect.ValueOf(c).Elem().Field(i).Interface(), err
			}
			want, err := value(row[0] + "," + row[1])
			if err != nil {
				t.Fatal(err)
			}
			if got, err := value(" " + row[0] + " , " + row[1] + " "); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("with blanks the value is %v, %v; want %v", got, err, want)
			}
			for _, text := range []string{row[0] + ",", "," + row[0], row[0] + ", ," + row[1]} {
				if got, err := value(text); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("value of %q = %v, %v; want an error that names %s", text, got, err, name)
				}
			}
		})
	}
}

func TestUnknownVariables(t *testing.T) {
	setenv(t, "RSHUB_LISTEN", "x", "RSHUB_LISTENN", "x", "RSHUB_TOKEN", "x", "RSHUB_REDDIS_URL", "redis://x",
		"RSHUB_CALLBACK_PORT", "443", "RSHUB_PORTS", "80",
		"RSHUB_SERVICE_HOST", "10.0.0.1", "RSHUB_SERVICE_PORT_HTTP", "8080", "RSHUB_PORT", "tcp://10.0.0.1:8080", // Kubernetes sets these
		"RSHUB_PORT_8080_TCP", "tcp://10.0.0.1:8080", "RSHUB_PORT_8080_TCP_PORT", "8080")
	got := unknownVariables()
	slices.Sort(got)
	if !slices.Equal(got, []string{"RSHUB_CALLBACK_PORT", "RSHUB_LISTENN", "RSHUB_PORTS", "RSHUB_REDDIS_URL"}) {
		t.Errorf("unknownVariables() = %v", got)
	}
	_, err := newHub(io.Discard)
	for _, want := range []string{"rshub knows no variable RSHUB_LISTENN; did you mean RSHUB_LISTEN?", "rshub knows no variable RSHUB_REDDIS_URL; did you mean RSHUB_REDIS_URL?"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, without %s", err, want)
		}
	}
}

// docs/reference.md has every variable. With -update the table there is written.
func TestConfigurationTable(t *testing.T) {
	var table strings.Builder
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		if group := f.Tag.Get("group"); group != "" {
			fmt.Fprintf(&table, "\n**%s**\n\n| variable | default | meaning |\n|---|---|---|\n", group)
		}
		value := f.Tag.Get("default")
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", f.Tag.Get("envconfig"), value, tabletest.Cell(f.Tag.Get("desc")))
	}
	tabletest.Check(t, "../../docs/reference.md", "configuration", strings.TrimPrefix(table.String(), "\n"))
}
